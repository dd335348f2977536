"""Ed25519 public keys and their libp2p peer ids.

The peer id of an Ed25519 key is base58btc of an identity multihash over its libp2p protobuf (libp2p specs, peer-ids): a
constant prefix of 6 bytes and the 32 bytes of the key.
"""

from functools import lru_cache

import base58

from .errors import LocalError
from .signature import PUBLIC_KEY_BYTES

_PREFIX = bytes.fromhex("002408011220")
_CHARACTERS = 52
"""Of each peer id of an Ed25519 key."""


@lru_cache(maxsize=4096)
def peer_id(public_key: bytes) -> str:
    """The peer id ("12D3KooW...") of a 32-byte Ed25519 public key."""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise ValueError(f"an Ed25519 public key has {PUBLIC_KEY_BYTES} bytes, not {len(public_key)}")
    return str(base58.b58encode(_PREFIX + public_key), "ascii")


def public_key_of(peer: str) -> bytes:
    """The Ed25519 public key in a peer id. Raises LocalError if the text is not the peer id of an Ed25519 key."""
    try:
        # The time to decode a text grows with the square of its length.
        raw: bytes = base58.b58decode(peer) if len(peer.rstrip()) <= _CHARACTERS else b""
    except ValueError as error:
        raise LocalError(f"{peer!r} is not a peer id: it has characters outside base58") from error
    if len(raw) != len(_PREFIX) + PUBLIC_KEY_BYTES or not raw.startswith(_PREFIX):
        raise LocalError(f"{peer!r} is not the peer id of an Ed25519 key: those peer ids start with 12D3KooW")
    if peer != peer.rstrip():  # the library ignores it, and a decision about this text would be one about nobody
        raise LocalError(f"{peer!r} is not a peer id: there is a blank or a line end behind it, take that away")
    return raw[len(_PREFIX) :]
