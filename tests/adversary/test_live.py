"""The attacker over real libp2p: the keys that it signs with."""

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sapo_adversary.live import band_of
from sapo_node.storage.keys import Identity

HOST = Identity(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"host").digest()))


def test_one_key_is_that_of_the_host():
    assert [key.peer for key in band_of(HOST, 1)] == [HOST.peer_id]


def test_a_band_has_as_many_keys_as_asked_for_and_none_is_that_of_the_host():
    peers = {key.peer for key in band_of(HOST, 64)}
    assert len(peers) == 64
    assert HOST.peer_id not in peers


def test_the_keys_of_a_band_follow_from_the_key_of_the_host():
    assert [key.peer for key in band_of(HOST, 3)] == [key.peer for key in band_of(HOST, 3)]


def test_each_key_of_a_band_signs_for_itself():
    for key in band_of(HOST, 3):
        Ed25519PublicKey.from_public_bytes(key.issuer).verify(key.sign(b"message"), b"message")
