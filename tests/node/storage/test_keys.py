"""The key file: made once, private, and refused with advice when something is wrong with it."""

import os
import stat
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sapo_node.storage.keys import PassphraseNeeded, create_key, load_key, read_passphrase
from sapo_protocol import LocalError
from sapo_protocol.files import NoSuchFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "node.key"


def test_no_folder_is_made_for_a_key(tmp_path):
    with pytest.raises(LocalError, match=f"there is no folder {tmp_path / 'typo'} for the key"):
        create_key(tmp_path / "typo" / "node.key")
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("text", ["secret", "secret\n", "secret\r\n"])
def test_a_passphrase_is_read_from_a_private_file(tmp_path, text):
    write_passphrase(tmp_path / "p", text)
    assert read_passphrase(tmp_path / "p") == "secret"


@pytest.mark.parametrize(
    ("text", "mode", "told"), [("x", 0o640, "chmod"), ("x", 0o604, "chmod"), ("\n", 0o600, "empty")]
)
def test_a_passphrase_file_that_others_may_read_or_that_is_empty_is_refused(tmp_path, text, mode, told):
    write_passphrase(tmp_path / "p", text).chmod(mode)
    with pytest.raises(LocalError, match=told):
        read_passphrase(tmp_path / "p")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_credential_of_systemd_is_of_another_owner_and_shows_the_mask_of_its_acl_as_mode_of_the_group(tmp_path):
    credential = write_passphrase(tmp_path / "p", "secret")
    os.chown(credential, 65_534, 65_534)
    credential.chmod(0o440)
    assert read_passphrase(credential) == "secret"


def write_passphrase(path, text):
    path.write_bytes(text.encode())
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("passphrase", [None, "wrong"])
def test_without_the_right_passphrase_an_encrypted_key_stays_shut(path, passphrase):
    create_key(path, "secret")
    with pytest.raises(PassphraseNeeded):
        load_key(path, passphrase)


def test_a_missing_file_names_the_command_that_makes_one(path):
    with pytest.raises(LocalError, match="sapo-node keygen"):
        load_key(path)


@pytest.mark.parametrize(
    ("content", "state"), [(b"", "empty"), (b"garbage", "damaged"), (b"\xff" * 100, "damaged"), (b"\0", "damaged")]
)
def test_a_damaged_key_is_told_as_such_with_what_a_new_one_would_mean(path, content, state):
    create_key(path)
    path.write_bytes(content)
    with pytest.raises(
        LocalError,
        match=rf"is {state}: restore your copy .*move it away .* peers see as a new node",
    ):
        load_key(path)


def test_every_byte_of_a_key_that_is_lost_is_noticed_or_harmless(path):
    made = create_key(path)
    pem = path.read_bytes()
    for place in range(len(pem)):
        path.write_bytes(pem[:place] + pem[place + 1 :])
        with suppress(LocalError):
            assert load_key(path).peer_id == made.peer_id


def test_a_damaged_key_with_a_passphrase_is_not_a_wrong_passphrase(path):
    create_key(path)
    path.write_bytes(b"garbage")
    with pytest.raises(LocalError, match="is damaged"):
        load_key(path, "secret")


def test_a_passphrase_for_a_key_that_has_none_is_told_as_such(path):
    create_key(path)
    with pytest.raises(LocalError, match="has no passphrase, but one was given"):
        load_key(path, "secret")


def test_a_key_that_needs_a_passphrase_names_a_way_that_every_command_has(path):
    """`status`, `export` and most others have no --passphrase."""
    create_key(path, "open sesame")
    with pytest.raises(PassphraseNeeded, match="set SAPO_NODE_PASSPHRASE or SAPO_NODE_PASSPHRASE_FILE") as refused:
        load_key(path)
    assert "--passphrase" not in str(refused.value)


@pytest.mark.parametrize("passphrase", ["x" * 2_000, "\udcff"])
def test_a_passphrase_of_any_kind_opens_its_key_or_is_refused(path, passphrase):
    with suppress(LocalError):
        assert create_key(path, passphrase).peer_id == load_key(path, passphrase).peer_id


PEM, PKCS8, PLAIN = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
OTHER_KEYS = {
    "X25519": (X25519PrivateKey.generate().private_bytes(PEM, PKCS8, PLAIN), "needs an Ed25519 key"),
    "RSA": (rsa.generate_private_key(65_537, 1_024).private_bytes(PEM, PKCS8, PLAIN), "needs an Ed25519 key"),
    "OpenSSH": (
        Ed25519PrivateKey.generate().private_bytes(PEM, serialization.PrivateFormat.OpenSSH, PLAIN),
        "OpenSSH's format",
    ),
    "public": (
        Ed25519PrivateKey.generate().public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        "holds a public key",
    ),
}


@pytest.mark.parametrize(("pem", "reason"), OTHER_KEYS.values(), ids=OTHER_KEYS.keys())
def test_a_key_of_another_kind_is_refused_and_named(path, pem, reason):
    create_key(path)
    path.write_bytes(pem)
    with pytest.raises(LocalError, match=reason):
        load_key(path)


def test_a_folder_is_no_key_and_is_not_to_be_changed(path):
    path.mkdir()
    with pytest.raises(LocalError, match="is a folder, not a key file: give the path of a file"):
        load_key(path)


def test_a_pipe_is_no_key_and_is_not_waited_for(path):
    os.mkfifo(path, 0o600)
    with pytest.raises(LocalError, match="not a key file"):
        load_key(path)


def test_a_huge_file_is_no_key(path):
    create_key(path)
    path.write_bytes(bytes(20_000))
    with pytest.raises(LocalError, match="larger than 16,384 bytes"):
        load_key(path)


def test_a_link_to_nowhere_is_told_as_such_and_no_key_is_made_there(path):
    path.symlink_to("moved.key")
    with pytest.raises(LocalError, match=r"link to moved\.key, which does not exist") as refused:
        load_key(path)
    assert not isinstance(refused.value, NoSuchFile)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_key_that_may_not_be_read_says_so(path):
    create_key(path)
    path.chmod(0)
    with pytest.raises(LocalError, match="change its owner or its mode"):
        load_key(path)


def test_a_key_below_a_file_is_refused_for_what_it_is(tmp_path):
    (tmp_path / "file").write_text("")
    for path, told in ((tmp_path / "file/k", "is not a folder"), (tmp_path / "file/deeper/k", "there is no folder")):
        with pytest.raises(LocalError, match=told):
            create_key(path)
        with pytest.raises(LocalError, match="Not a directory"):
            load_key(path)
