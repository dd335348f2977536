"""The publishers' keys. The same words give the same keys, so that a target can be configured to trust them."""

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.storage.keys import Identity


def seed_of(words: str, user: int) -> bytes:
    """The secret bytes of a publisher's key."""
    return hashlib.sha256(f"sapo/load/{words}/{user}".encode("utf-8", "surrogateescape")).digest()


def identity_of(words: str, user: int) -> Identity:
    """A publisher's key."""
    return Identity(Ed25519PrivateKey.from_private_bytes(seed_of(words, user)))
