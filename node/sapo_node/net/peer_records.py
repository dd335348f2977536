"""Signed peer records: a peer signs the addresses at which it can be dialled (libp2p specs, RFC 0002 and 0003).

A record only adds addresses. `Session.recorded` gives them, and `feelers` dials them before any is told to others.
"""

from typing import Any

from libp2p.crypto.keys import KeyType
from libp2p.peer.envelope import consume_envelope
from libp2p.peer.id import ID
from libp2p.peer.pb.envelope_pb2 import Envelope
from libp2p.peer.peerstore import env_to_send_in_RPC

from sapo_node.processes.bounded import Bounded

RECORDS = 1024  # that are remembered
_DOMAIN = "libp2p-peer-record"
_NO_END = 0  # seconds of life of a record's addresses: as long as the peer is connected


class PeerRecords:
    """The records that one host got from its peers, and its own."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._taken: Bounded[Any, bytes] = Bounded(RECORDS)

    def own(self) -> bytes:
        """The record of this host, with its addresses of now."""
        record, _ = env_to_send_in_RPC(self._host)
        return bytes(record)

    def take(self, peer_id: Any, record: bytes) -> bool:
        """Take the record of a peer. Returns False if the peer did not sign it with an Ed25519 key.

        The library calls an older record invalid, here it changes nothing: the peer's clock was set back, or two
        machines have its key. It forgets addresses after two hours, which suits records that come with every RPC.
        """
        if self._taken.get(peer_id) == record:
            return True
        try:
            if Envelope.FromString(record).public_key.Type != KeyType.Ed25519.value:
                return False  # before the library reads the key: see `patches.read_ed25519_keys_only`
            signed, content = consume_envelope(record, _DOMAIN)
        except Exception:  # noqa: BLE001 - the library has errors of many kinds for what is no record
            return False
        if not peer_id == content.peer_id == ID.from_pubkey(signed.public_key):
            return False
        self._host.get_peerstore().consume_peer_record(signed, _NO_END)
        self._taken[peer_id] = record
        return True

    def forget(self, peer_id: Any) -> None:
        """Forget the record of a peer that left, and its key and addresses.

        The library keeps the record, and refuses an older one. A peer that restarts with another clock has an older
        one. It keeps the rest for every key that ever connected.
        """
        self._taken.pop(peer_id, None)
        self._host.get_peerstore().peer_record_map.pop(peer_id, None)
        self._host.get_peerstore().peer_data_map.pop(peer_id, None)
