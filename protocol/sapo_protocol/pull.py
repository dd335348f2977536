"""Requests to a peer (spec: pull): for the envelopes it holds of an epoch, for messages by id, or for other peers.

The response is a listing, a delivery or peer addresses. This module checks that a response matches its request: ids,
bodies, order and size. The node then validates the messages of a delivery like messages from gossip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import TypeGuard

from .cbor import Value, decode, encode, read_byte_string
from .envelope import parse_envelope
from .errors import Layer, RemoteError
from .limits import (
    MAX_ADDRESS_BYTES,
    MAX_DELIVERED,
    MAX_DELIVERY_BYTES,
    MAX_GROUPS,
    MAX_HOPS,
    MAX_LISTED,
    MAX_LISTING_BYTES,
    MAX_PX_BYTES,
    MAX_PX_PEERS,
    MAX_REQUEST_BYTES,
    MAX_SHARDS,
)
from .manifest import Manifest
from .rollout import decode_message

_ID_BYTES = 32
"""Bytes of an envelope id, and of a public key."""
ALL_SHARDS = (1 << MAX_SHARDS) - 1
"""Every shard that a swarm may have."""
_ARRAY, _ONE_BYTE = 0x80, 24
"""The head of an array, and the smallest count that does not fit its first byte."""


@dataclass(frozen=True, slots=True)
class InventoryItem:
    """An envelope and some of its bodies: the bodies that a peer holds, or the bodies that a request asks for."""

    envelope_id: bytes
    bodies: int
    """Bit k for the body of group k."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Requests the ids of the envelopes of an epoch, after a given id."""

    epoch: int
    after: bytes = b""
    """An envelope id (32 bytes), or empty to start from the first."""
    shards: int = ALL_SHARDS
    """Bit s for the rollouts of shard s."""


@dataclass(frozen=True, slots=True)
class GetRequest:
    """Requests messages by envelope id."""

    want: tuple[InventoryItem, ...]
    """In ascending order of ids."""
    hops: int = 0
    """Peers through which the responder may request missing bodies, at most MAX_HOPS. Above 0, `want` is one item."""


@dataclass(frozen=True, slots=True)
class PeersRequest:
    """Requests addresses of other peers of the swarm (peer exchange)."""

    most: int
    """1 to MAX_PX_PEERS."""
    shards: int = ALL_SHARDS
    """Bit s for peers that subscribe to the topic of shard s."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A peer and its address, as another peer states them. Unverified until a handshake proves the key."""

    key: bytes
    address: str
    """A multiaddress without the peer id."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A rollout message that was requested. Nothing in it is verified yet."""

    envelope_id: bytes
    message: bytes


Request = ListRequest | GetRequest | PeersRequest


def encode_request(request: Request) -> bytes:
    """The bytes of a request."""
    if isinstance(request, ListRequest):
        return encode({"after": request.after, "epoch": request.epoch, "shards": request.shards})
    if isinstance(request, PeersRequest):
        return encode({"peers": request.most, "shards": request.shards})
    hops: dict[str, Value] = {"hops": request.hops} if request.hops else {}
    return encode({**hops, "want": _inventory(request.want)})


def decode_request(data: bytes) -> Request:
    """The request of a peer. Raises RemoteError (pull)."""
    value = decode(data, limit=MAX_REQUEST_BYTES, layer=Layer.PULL)
    if not isinstance(value, dict):  # PULL-1
        raise RemoteError(Layer.PULL, "a request is a map")
    if value.keys() == {"after", "epoch", "shards"}:
        after, epoch = value["after"], value["epoch"]
        if not isinstance(after, bytes) or len(after) not in (0, _ID_BYTES):  # PULL-2
            raise RemoteError(Layer.PULL, "after is an envelope id or empty")
        if not _is_uint(epoch):
            raise RemoteError(Layer.PULL, "an epoch is an unsigned integer")
        return ListRequest(epoch, after, _read_shards(value["shards"]))
    if value.keys() in ({"want"}, {"hops", "want"}):
        want = _read_inventory(value["want"], MAX_DELIVERED)
        if not want:  # PULL-3
            raise RemoteError(Layer.PULL, "no message is requested")
        return GetRequest(want, _read_hops(value["hops"], len(want)) if "hops" in value else 0)
    if value.keys() == {"peers", "shards"}:
        most = value["peers"]
        if not _is_uint(most) or not 1 <= most <= MAX_PX_PEERS:  # PULL-7
            raise RemoteError(Layer.PULL, f"peers is a number from 1 to {MAX_PX_PEERS}")
        return PeersRequest(most, _read_shards(value["shards"]))
    raise RemoteError(
        Layer.PULL, "a request has the keys after, epoch and shards, or want, or hops and want, or peers and shards"
    )


def encode_listing(held: Sequence[InventoryItem]) -> bytes:
    """The response to a ListRequest; `held` in ascending order of ids."""
    return encode(_inventory(held))


def decode_listing(data: bytes, request: ListRequest) -> tuple[InventoryItem, ...]:
    """The envelopes that a peer claims to hold. Raises RemoteError (pull)."""
    held = _read_inventory(decode(data, limit=MAX_LISTING_BYTES, layer=Layer.PULL), MAX_LISTED)
    if held and held[0].envelope_id <= request.after:  # PULL-4
        raise RemoteError(Layer.PULL, "the first id is not greater than `after` in the request")
    return held


def encode_delivery(messages: Sequence[bytes]) -> bytes:
    """The response to a GetRequest: rollout messages in the order of the request."""
    return encode(list(messages))


def decode_delivery(data: bytes, request: GetRequest, manifest: Manifest) -> tuple[Delivered, ...]:
    """The messages of a delivery, each of them requested. Raises RemoteError (pull, size, frame, envelope)."""
    delivered = []
    requested = iter(request.want)
    for message in _read_messages(data):
        envelope, bodies = decode_message(message, manifest)
        envelope_id = parse_envelope(envelope, network_id=manifest.network_id).envelope_id
        wanted = next((each for each in requested if each.envelope_id == envelope_id), None)
        if wanted is None:  # PULL-6
            raise RemoteError(Layer.PULL, "an envelope that was not requested, or not in the order of the request")
        if any(body is not None and not wanted.bodies >> k & 1 for k, body in enumerate(bodies)):
            raise RemoteError(Layer.PULL, "a body that was not requested")
        delivered.append(Delivered(envelope_id, message))
    return tuple(delivered)


def encode_peers(peers: Sequence[PeerAddress]) -> bytes:
    """The response to a PeersRequest, in ascending order of keys."""
    return encode([[each.key, each.address] for each in peers])


def decode_peers(data: bytes, request: PeersRequest) -> tuple[PeerAddress, ...]:
    """The peers that another peer names. Raises RemoteError (pull)."""
    value = decode(data, limit=MAX_PX_BYTES, layer=Layer.PULL)
    return tuple(starmap(_peer_address, _read_pairs(value, request.most)))


def _peer_address(key: bytes, address: Value) -> PeerAddress:
    if not isinstance(address, str) or not 1 <= len(address.encode()) <= MAX_ADDRESS_BYTES:  # PULL-8
        raise RemoteError(Layer.PULL, f"an address is text of 1 to {MAX_ADDRESS_BYTES} bytes")
    return PeerAddress(key, address)


def _read_messages(data: bytes) -> tuple[bytes, ...]:
    """PULL-5. `cbor.decode` is not used: it would scan and encode again up to 1 MB of messages."""
    if len(data) > MAX_DELIVERY_BYTES:
        raise RemoteError(Layer.PULL, f"a delivery of {len(data)} bytes, the limit is {MAX_DELIVERY_BYTES}")
    count, position = _read_array_head(data)
    if count > MAX_DELIVERED:
        raise RemoteError(Layer.PULL, f"a delivery of {count} messages, the limit is {MAX_DELIVERED}")
    messages = []
    for _ in range(count):
        message, position = read_byte_string(data, position, Layer.PULL)
        messages.append(message)
    if position != len(data):
        raise RemoteError(Layer.PULL, "bytes after the end")
    return tuple(messages)


def _read_array_head(data: bytes) -> tuple[int, int]:
    """The number of items of the array (at most 255), and the position of the first."""
    initial = data[0] if data else 0
    if _ARRAY <= initial < _ARRAY + _ONE_BYTE:
        return initial - _ARRAY, 1
    if initial == _ARRAY + _ONE_BYTE and len(data) > 1 and data[1] >= _ONE_BYTE:
        return data[1], 2
    raise RemoteError(Layer.PULL, "a delivery is an array")


def _read_hops(value: Value, wanted: int) -> int:
    if not _is_uint(value) or not 1 <= value <= MAX_HOPS or wanted != 1:  # PULL-10
        raise RemoteError(Layer.PULL, f"hops is an integer from 1 to {MAX_HOPS}, for one message")
    return value


def _read_shards(value: Value) -> int:
    if not _is_uint(value) or not 1 <= value <= ALL_SHARDS:  # PULL-9
        raise RemoteError(Layer.PULL, f"shards is an unsigned integer from 1 to {ALL_SHARDS}")
    return value


def _inventory(held: Sequence[InventoryItem]) -> list[Value]:
    return [[each.envelope_id, each.bodies] for each in held]


def _read_inventory(value: Value, most: int) -> tuple[InventoryItem, ...]:
    return tuple(starmap(_inventory_item, _read_pairs(value, most)))


def _inventory_item(envelope_id: bytes, bodies: Value) -> InventoryItem:
    if not _is_uint(bodies) or bodies >> MAX_GROUPS:  # PULL-3
        raise RemoteError(Layer.PULL, f"bodies are an unsigned integer of {MAX_GROUPS} bits")
    return InventoryItem(envelope_id, bodies)


def _read_pairs(value: Value, most: int) -> list[tuple[bytes, Value]]:
    """Pairs of 32 bytes (an id or a key) and a value, in ascending order; PULL-3, PULL-4, PULL-8."""
    if not isinstance(value, list) or len(value) > most:
        raise RemoteError(Layer.PULL, f"an array of at most {most} pairs was expected")
    pairs = list(map(_read_pair, value))
    if any(one >= other for (one, _), (other, _) in pairwise(pairs)):
        raise RemoteError(Layer.PULL, "ids or keys do not ascend")
    return pairs


def _read_pair(value: Value) -> tuple[bytes, Value]:
    if not isinstance(value, list) or len(value) != 2:
        raise RemoteError(Layer.PULL, "a pair was expected")
    identifier, more = value
    if not isinstance(identifier, bytes) or len(identifier) != _ID_BYTES:
        raise RemoteError(Layer.PULL, "an id or a key has 32 bytes")
    return identifier, more


def _is_uint(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
