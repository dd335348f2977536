"""The node's identity on disk: one Ed25519 key, PKCS#8 PEM, optionally under a passphrase, readable by its owner
alone.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_protocol import LocalError, peer_id

_MAX_KEY_FILE = 16_384
_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO


class PassphraseNeeded(LocalError):
    """The key file is encrypted and no passphrase, or a wrong one, was given."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and what follows from it."""

    key: Ed25519PrivateKey

    @property
    def public_key(self) -> bytes:
        """The 32-byte public key: the issuer of this node's envelopes."""
        return self.key.public_key().public_bytes_raw()

    @property
    def peer_id(self) -> str:
        """The public key as people and libp2p write it."""
        return peer_id(self.public_key)

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes, for libp2p's own key type."""
        return self.key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature, 64 bytes."""
        return self.key.sign(message)


def create_key(path: Path, passphrase: str | None = None) -> Identity:
    """Write a new key to `path`, mode 0600. Raises LocalError when the file exists or cannot be written."""
    key = Ed25519PrivateKey.generate()
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise LocalError(
            f"{path} exists; a key is never overwritten: name another file or move this one away"
        ) from error
    except OSError as error:
        raise LocalError(f"cannot write the key file {path}: {error.strerror}") from error
    return Identity(key)


def load_key(path: Path, passphrase: str | None = None) -> Identity:
    """Read a key file. Raises LocalError for a missing, too open, foreign or damaged file; PassphraseNeeded."""
    try:
        mode = path.stat().st_mode
        if mode & _OTHERS_MAY_READ:
            raise LocalError(f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}); run: chmod 600 {path}")
        with path.open("rb") as file:
            pem = file.read(_MAX_KEY_FILE)
    except FileNotFoundError as error:
        raise LocalError(f"no key file {path}; make one with: sapo-node keygen --key {path}") from error
    except OSError as error:
        raise LocalError(f"cannot read the key file {path}: {error.strerror}") from error
    try:
        key = serialization.load_pem_private_key(pem, passphrase.encode() if passphrase else None)
    except TypeError as error:
        raise PassphraseNeeded(f"{path} is encrypted, or is not and a passphrase was given: {error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        if passphrase:
            raise PassphraseNeeded(f"{path} does not open with that passphrase") from error
        raise LocalError(f"{path} is not a PKCS#8 PEM private key; make one with: sapo-node keygen") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise LocalError(f"{path} holds a {type(key).__name__}; a node needs an Ed25519 key: sapo-node keygen")
    return Identity(key)
