"""Whether a gossip message is signed as GossipSub's policy StrictSign wants it.

The library verifies the signature. It ignores the key if the author's peer id holds it too, and the signature does not
cover the key. It takes sequence numbers of any length. Other libraries refuse such a message, and charge the peer that
forwarded it. Either field could also hold a megabyte, which each peer would forward with a short message.
"""

from typing import Any

from libp2p.pubsub.validators import signature_validator

SEQNO_BYTES = 8
_IDENTITY_HEAD = 2
"""Bytes of a peer id before the encoded Ed25519 key: of an identity multihash, code and length."""


def is_strictly_signed(message: Any) -> bool:
    """Return whether author, number, key and signature are there as they must be. The key may be left out.

    Raises an error of the library for a key that it cannot read.
    """
    if not signature_validator(message) or len(message.seqno) != SEQNO_BYTES:
        return False
    return message.key in (b"", message.from_id[_IDENTITY_HEAD:])
