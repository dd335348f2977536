"""Signed peer records: whose key may have signed one."""

from typing import Any

import pytest
from libp2p.crypto import ed25519, secp256k1
from libp2p.crypto.keys import KeyPair
from libp2p.peer.envelope import seal_record
from libp2p.peer.id import ID
from libp2p.peer.peer_record import PeerRecord
from multiaddr import Multiaddr

from sapo_node.net.peer_records import PeerRecords
from stock_libp2p import stock_host

PLACE = Multiaddr("/ip4/127.0.0.1/tcp/4001")
OURS, OTHER = ed25519.create_new_key_pair(bytes([2]) * 32), secp256k1.create_new_key_pair()


def signed(keys: KeyPair) -> tuple[Any, bytes]:
    """A peer with these keys, and its record."""
    peer = ID.from_pubkey(keys.public_key)
    return peer, seal_record(PeerRecord(peer, [PLACE]), keys.private_key).marshal_envelope()


@pytest.mark.parametrize(("keys", "is_taken"), [(OURS, True), (OTHER, False)], ids=["Ed25519", "secp256k1"])
def test_a_record_is_taken_if_an_ed25519_key_signed_it(keys: KeyPair, *, is_taken: bool) -> None:
    host = stock_host(bytes([1]) * 32)
    peer, record = signed(keys)
    assert PeerRecords(host).take(peer, record) is is_taken
    assert (peer in host.get_peerstore().peer_data_map) is is_taken
