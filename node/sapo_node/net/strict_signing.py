"""Whether a gossip message is signed as GossipSub's policy StrictSign wants it.

Libraries differ. This one ignores the key if the author's peer id holds it too, and takes sequence numbers of any
length; others refuse such a message, and charge the peer that forwarded it. Either field could also hold a megabyte,
which each peer would forward with a short message. OpenSSL takes keys of small order, of which anybody can make
signatures, and libsodium does not. So the node forwards only what every library takes, and charges a peer only for what
no library takes: an honest peer may have forwarded what lies between.
"""

from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX, signature_validator

from sapo_protocol.signature import PUBLIC_KEY_BYTES

SEQNO_BYTES = 8
_MULTIHASH_BYTES = 2
"""Bytes of a peer id before the encoded key of the peer."""


def is_strictly_signed(message: Any) -> bool:
    """Return whether author, number, key and signature are there as they must be. The key may be left out.

    Raises an error of the library for a key that it cannot read.
    """
    if not signature_validator(message) or len(message.seqno) != SEQNO_BYTES:
        return False
    return message.key in (b"", message.from_id[_MULTIHASH_BYTES:])


def may_be_taken_elsewhere(message: Any) -> bool:
    """Return whether OpenSSL takes the signature of a message for the key in its author's peer id."""
    fields = {"data": message.data, "topicIDs": message.topicIDs, "from_id": message.from_id, "seqno": message.seqno}
    signed = PUBSUB_SIGNING_PREFIX.encode() + rpc_pb2.Message(**fields).SerializeToString()
    try:
        Ed25519PublicKey.from_public_bytes(message.from_id[-PUBLIC_KEY_BYTES:]).verify(message.signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True
