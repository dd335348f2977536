"""GossipSub's policy StrictSign (libp2p specs, pubsub/README.md, "Message Signing"), as narrow as every library has it.

The author of a message is the peer id of an Ed25519 key, so the key need not come with the message. A sequence number
has eight bytes. Libraries differ about other numbers and keys: some charge the peer that forwarded such a message.
Either field could also hold a megabyte. So the node forwards only what every library takes.
"""

from collections.abc import Callable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sapo_node.gossip.rpc import Message
from sapo_protocol.signature import PUBLIC_KEY_BYTES, verify_signature

SEQNO_BYTES = 8
_PREFIX = b"libp2p-pubsub:"
_KEY = bytes.fromhex("08011220")
"""Before the 32 bytes of an Ed25519 key in libp2p's encoding of keys."""
_AUTHOR = b"\x00\x24" + _KEY
"""Before the same bytes in a peer id: an identity multihash of 36 bytes."""


def author_of(public_key: bytes) -> bytes:
    """The peer id of a key, as bytes."""
    return _AUTHOR + public_key


def signed_bytes(message: Any) -> bytes:
    """The bytes of a message that its signature covers."""
    signed = Message(author=message.author, data=message.data, seqno=message.seqno, topics=message.topics)
    return _PREFIX + bytes(signed.SerializeToString())


def key_field(public_key: bytes) -> bytes:
    """The `key` of a message whose author has this key."""
    return _KEY + public_key


def is_strictly_signed(message: Any) -> bool:
    """Return whether a message is signed as StrictSign demands. The key may be missing."""
    public_key = message.author.removeprefix(_AUTHOR)
    if len(message.author) != len(_AUTHOR) + PUBLIC_KEY_BYTES or len(public_key) != PUBLIC_KEY_BYTES:
        return False
    if len(message.seqno) != SEQNO_BYTES or message.key not in (b"", key_field(public_key)):
        return False
    return verify_signature(public_key, signed_bytes(message), message.signature)


def may_be_taken_elsewhere(message: Any) -> bool:
    """Return whether OpenSSL accepts the signature of a message for the key in its author's peer id.

    OpenSSL accepts keys of small order, with which anybody can sign, and libsodium does not. An honest peer may have
    forwarded such a message, so the node does not charge the sender.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(message.author[-PUBLIC_KEY_BYTES:])
        key.verify(message.signature, signed_bytes(message))
    except (InvalidSignature, ValueError):
        return False
    return True


class Author:
    """Signs the messages of this node."""

    def __init__(self, public_key: bytes, sign: Callable[[bytes], bytes], counter: int) -> None:
        """`counter` must be above every sequence number that the key has used, so it is the time in nanoseconds."""
        self.identity = author_of(public_key)
        self._key = key_field(public_key)
        self._sign = sign
        self._counter = counter

    def signed(self, topic: bytes, data: bytes) -> Any:
        """A message with the next sequence number."""
        self._counter += 1
        seqno = self._counter.to_bytes(SEQNO_BYTES, "big")
        message = Message(author=self.identity, data=data, seqno=seqno, topics=[topic])
        message.signature = self._sign(signed_bytes(message))
        message.key = self._key
        return message
