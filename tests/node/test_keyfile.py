"""The key file: made once, private, and refused with advice when something is wrong with it."""

import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sapo_node.keyfile import PassphraseNeeded, create_key, load_key
from sapo_protocol import LocalError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys" / "node.key"


def test_a_new_key_loads_to_the_same_identity(path):
    assert create_key(path).peer_id == load_key(path).peer_id


def test_a_new_key_is_readable_by_its_owner_alone(path):
    create_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_that_others_may_read_is_refused_with_the_command_that_mends_it(path):
    create_key(path)
    path.chmod(0o640)
    with pytest.raises(LocalError, match="chmod 600"):
        load_key(path)


def test_a_key_is_never_overwritten(path):
    create_key(path)
    with pytest.raises(LocalError, match="never overwritten"):
        create_key(path)


def test_a_passphrase_opens_the_key_it_was_made_with(path):
    assert create_key(path, "secret").peer_id == load_key(path, "secret").peer_id


@pytest.mark.parametrize("passphrase", [None, "wrong"])
def test_without_the_right_passphrase_an_encrypted_key_stays_shut(path, passphrase):
    create_key(path, "secret")
    with pytest.raises(PassphraseNeeded):
        load_key(path, passphrase)


def test_a_missing_file_names_the_command_that_makes_one(path):
    with pytest.raises(LocalError, match="sapo-node keygen"):
        load_key(path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100])
def test_a_file_that_is_no_key_is_refused(path, content):
    create_key(path)
    path.write_bytes(content)
    with pytest.raises(LocalError, match="not a PKCS#8"):
        load_key(path)


def test_a_key_of_another_kind_is_refused(path):
    create_key(path)
    path.write_bytes(
        X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    with pytest.raises(LocalError, match="needs an Ed25519 key"):
        load_key(path)
