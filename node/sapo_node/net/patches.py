"""Changes inside py-libp2p 0.8.1 that must be made before a host is built. Each says what the library does.

`sapo_node.net.host` applies them on import, once per process. They do not change the wire.
"""

import logging
import weakref
from typing import Any

import trio
from libp2p.crypto import serialization
from libp2p.crypto.keys import KeyType
from libp2p.peer import envelope
from libp2p.peer.id import ID
from libp2p.pubsub import gossipsub, pubsub
from libp2p.stream_muxer.yamux import yamux

from sapo_node.net.outbound import BoundedRpcQueue
from sapo_node.net.yamux import PING_SECONDS, WINDOW_BYTES, BoundedStream
from sapo_node.processes.bounded import Bounded

RECORDS = 1024  # signed peer records remembered per host
OWN_RECORD_SECONDS = 5.0  # from one look at our own addresses to the next
_NO_END = 0  # seconds of life of a record's addresses: as long as the peer is connected

_seen_records: "weakref.WeakKeyDictionary[Any, Bounded[Any, bytes]]" = weakref.WeakKeyDictionary()
_own_records: "weakref.WeakKeyDictionary[Any, tuple[float, tuple[bytes, bool]]]" = weakref.WeakKeyDictionary()
_make_record = pubsub.env_to_send_in_RPC
_read_record_key = envelope.pub_key_from_protobuf


def consume_record_once(rpc: Any, host: Any, peer_id: Any) -> bool:
    """Take a signed peer record. False if its sender did not sign it.

    The library verifies it with every RPC, here only a new one is verified. The library calls an older record invalid,
    here it changes nothing: the peer's clock was set back, or two machines have its key. The library forgets addresses
    after two hours, which is meant for records that come with every RPC.
    """
    if not rpc.HasField("senderRecord"):
        return True
    records = _seen_records.setdefault(host, Bounded(RECORDS))
    if records.get(peer_id) == rpc.senderRecord:
        return True
    try:
        signed, record = envelope.consume_envelope(rpc.senderRecord, "libp2p-peer-record")
    except Exception:  # noqa: BLE001 - the library has errors of many kinds for what is no record
        return False
    if not peer_id == record.peer_id == ID.from_pubkey(signed.public_key):
        return False
    host.get_peerstore().consume_peer_record(signed, _NO_END)
    records[peer_id] = rpc.senderRecord
    return True


def own_record(host: Any) -> tuple[bytes, bool]:
    """Our signed record, renewed every OWN_RECORD_SECONDS. The library renews it with every RPC that it sends."""
    until, record = _own_records.get(host, (0.0, (b"", False)))
    if trio.current_time() >= until:
        record = _make_record(host)
        _own_records[host] = (trio.current_time() + OWN_RECORD_SECONDS, record)
    return record


def forget_record(host: Any, peer_id: Any) -> None:
    """Forget the signed record of a peer that left, and its key and addresses.

    The library keeps the record, and refuses an older one. A peer that restarts with another clock has an older one.
    It keeps the rest for every key that ever connected.
    """
    _seen_records.get(host, {}).pop(peer_id, None)
    host.get_peerstore().peer_record_map.pop(peer_id, None)
    host.get_peerstore().peer_data_map.pop(peer_id, None)


def read_record_key(key: Any) -> Any:
    """The key in a signed peer record, which has a reader of its own in the library."""
    if key.Type != KeyType.Ed25519.value:
        raise ValueError(f"key of type {key.Type} in a peer record, not Ed25519")
    return _read_record_key(key)


def read_ed25519_keys_only() -> None:
    """Refuse keys of other types by their type: no peer of a swarm has one.

    The library accepts an RSA key from anybody, in a handshake, a message or a record. It takes a private key for one
    as well, and tests whether the primes of that are prime. One of 7 KB takes 2 s of CPU, in which this node does
    nothing else.
    """
    for kind in [kind for kind in serialization.key_type_to_public_key_deserializer if kind != KeyType.Ed25519.value]:
        del serialization.key_type_to_public_key_deserializer[kind]
    envelope.pub_key_from_protobuf = read_record_key


def apply() -> None:
    """Make all changes. Must run before the first host is built; a second call does nothing more."""
    pubsub.RpcQueue = BoundedRpcQueue
    pubsub.maybe_consume_signed_record = consume_record_once
    gossipsub.maybe_consume_signed_record = consume_record_once
    pubsub.env_to_send_in_RPC = own_record
    gossipsub.env_to_send_in_RPC = own_record
    read_ed25519_keys_only()
    yamux.RTT_MEASURE_INTERVAL = PING_SECONDS
    yamux.MAX_WINDOW_SIZE = WINDOW_BYTES
    yamux.YamuxStream = BoundedStream
    library = logging.getLogger("libp2p")
    if not library.handlers:
        # The library logs each failed dial as an error. Set LIBP2P_DEBUG to see its log.
        library.addHandler(logging.NullHandler())
