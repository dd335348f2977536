"""The bodies of one envelope that came in several messages."""

from sapo_protocol import encode_message

Bodies = tuple[bytes | None, ...]
"""By k; None for one that is not here."""


def together(envelope: bytes, new: Bodies, earlier: Bodies, *, most: int) -> Bodies:
    """Return the new bodies and the earlier ones, or the new ones alone if a message of all has more than `most` bytes.

    Each message was short enough, but all their bodies together need not be. No honest node could have sent them: it
    sends all bodies in one message.
    """
    merged = tuple(each or before for each, before in zip(new, earlier, strict=True))
    return merged if len(encode_message(envelope, merged)) <= most else new
