"""The node's key on disk: one Ed25519 key in PKCS#8 PEM, optionally under a passphrase. Only its owner can read it."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_protocol import LocalError, peer_id
from sapo_protocol.files import NoSuchFile, read_bounded

_MAX_KEY_FILE = 16_384
_MAX_PASSPHRASE_FILE = 4_096
PASSPHRASE_VARIABLE = "SAPO_NODE_PASSPHRASE"  # noqa: S105 - a name, not a secret
"""Environment variable that holds the passphrase of the key file."""
PASSPHRASE_FILE_VARIABLE = "SAPO_NODE_PASSPHRASE_FILE"  # noqa: S105 - a name, not a secret
"""Environment variable that names a file with the passphrase, such as a credential of systemd."""
_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO


class PassphraseNeeded(LocalError):
    """The key file is encrypted, and the passphrase is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key, with its public key and peer id."""

    key: Ed25519PrivateKey

    @property
    def public_key(self) -> bytes:
        """The 32-byte public key: the issuer of this node's envelopes."""
        return self.key.public_key().public_bytes_raw()

    @property
    def peer_id(self) -> str:
        """The peer id: the public key as text, as libp2p writes it."""
        return peer_id(self.public_key)

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes, for libp2p's own key type."""
        return self.key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature of `message`, 64 bytes."""
        return self.key.sign(message)


def require_no_key(path: Path) -> None:
    """Raise LocalError if the file exists: a key that somebody uses must not be lost."""
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> LocalError:
    return LocalError(f"{path} exists, and a key is never overwritten: give another path, or move this file away")


def create_key(path: Path, passphrase: str | None = None) -> Identity:
    """Write a new key to `path`, mode 0600. Raises LocalError if the file exists or cannot be written.

    It makes no folder: a misspelt path would make a node that no peer knows.
    """
    require_folder(path)
    key = Ed25519PrivateKey.generate()
    pem = _pem(key, passphrase)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise LocalError(f"cannot write the key file {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)  # a partial file would make the next attempt fail
        raise LocalError(f"cannot write the key file {path}: {error.strerror}") from error
    return Identity(key)


def _pem(key: Ed25519PrivateKey, passphrase: str | None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(_bytes(passphrase))
    try:
        return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    except ValueError as error:
        raise LocalError(f"this passphrase cannot be used: {error}") from error


def _bytes(passphrase: str) -> bytes:
    """The bytes of the passphrase as the terminal or the environment gave them. They may not be UTF-8."""
    return passphrase.encode("utf-8", "surrogateescape")


def require_folder(path: Path) -> None:
    """Raise LocalError if the folder of a key file is missing."""
    if path.parent.is_dir():
        return
    if os.path.lexists(path.parent):
        raise LocalError(f"{path.parent} is not a folder, so it cannot hold a key: give another path")
    raise LocalError(
        f"there is no folder {path.parent} for the key {path}: make the folder first, or give another path"
    )


def load_key(path: Path, passphrase: str | None = None) -> Identity:
    """Read a key file.

    Raises NoSuchFile or PassphraseNeeded. Raises LocalError if other users can read the file, or if it holds no Ed25519
    key.
    """
    pem = _read(path)
    is_encrypted = b"ENCRYPTED" in pem
    if passphrase and not is_encrypted and b"PRIVATE KEY" in pem:
        raise LocalError(
            f"{path} has no passphrase, but one was given: leave out --passphrase and --passphrase-file, and unset "
            f"{PASSPHRASE_VARIABLE} and {PASSPHRASE_FILE_VARIABLE}"
        )
    if is_encrypted and not passphrase:
        raise PassphraseNeeded(
            f"{path} has a passphrase: set {PASSPHRASE_VARIABLE} or {PASSPHRASE_FILE_VARIABLE}, or run this "
            f"at a terminal, where the node asks"
        )
    try:
        key = serialization.load_pem_private_key(pem, _bytes(passphrase) if is_encrypted and passphrase else None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        if is_encrypted:
            raise PassphraseNeeded(f"{path} does not open with that passphrase") from error
        raise LocalError(_why_no_key(path, pem)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise LocalError(
            f"{path} holds a key of another kind ({type(key).__name__}); a node needs an Ed25519 key: give "
            f"another path with --key"
        )
    return Identity(key)


def read_passphrase(path: Path) -> str:
    """Return the passphrase in a file: its text without the line break at its end.

    Raises LocalError if there is no such file, if other users can read it, or if it is empty.
    """
    data = read_bounded(path, _MAX_PASSPHRASE_FILE, "passphrase file")
    # systemd gives its user a credential of root by an ACL, whose mask stands in place of the mode of the group.
    _require_private(path, _OTHERS_MAY_READ if path.stat().st_uid == os.geteuid() else stat.S_IRWXO)
    passphrase = data.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
    if not passphrase:
        raise LocalError(f"the passphrase file {path} is empty: write the passphrase into it")
    return passphrase


def _require_private(path: Path, forbidden: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & forbidden:
        raise LocalError(f"other users can read {path} (mode {mode:04o}); run: chmod 600 {path}")


def _read(path: Path) -> bytes:
    try:
        pem = read_bounded(path, _MAX_KEY_FILE, "key file")
    except NoSuchFile as error:
        if path.is_symlink():
            raise LocalError(
                f"{path} is a link to {path.readlink()}, which does not exist: put the key there, or give another path "
                f"with --key"
            ) from error
        raise NoSuchFile(
            f"there is no key file {path}; run this in the folder of the node's key, give its path with --key, or make "
            f"a new key with: sapo-node keygen --key {path}"
        ) from error
    _require_private(path, _OTHERS_MAY_READ)
    return pem


def _why_no_key(path: Path, pem: bytes) -> str:
    if b"PUBLIC KEY" in pem:
        return f"{path} holds a public key; a node needs the private key: give its path with --key"
    if b"OPENSSH PRIVATE KEY" in pem:
        return f"{path} holds a key in OpenSSH's format; a node needs PKCS#8 PEM: give another path with --key"
    return (
        f"{path} is {'damaged' if pem.strip() else 'empty'}: restore your copy of it; or move it away and create a new "
        f"key, which peers see as a new node"
    )
