"""Asking a peer for what gossip did not bring (spec: pull): what it holds of an epoch, messages by id, other peers.

A request is answered with a listing, a delivery or introductions. What is delivered was asked for, id by id and body by
body; that, and its size, is all that is judged here: the messages themselves go the way of any other.
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
    MAX_LISTED,
    MAX_LISTING_BYTES,
    MAX_PX_BYTES,
    MAX_PX_PEERS,
    MAX_REQUEST_BYTES,
    MAX_SHARDS,
)
from .manifest import Manifest
from .rollout import decode_message

_NAME_BYTES = 32
"""Of an envelope id, and of a key."""
ALL_SHARDS = (1 << MAX_SHARDS) - 1
"""Every shard that a swarm may have."""
_ARRAY, _ONE_BYTE = 0x80, 24
"""The head of an array, and the least count that is not in its first byte."""


@dataclass(frozen=True, slots=True)
class InventoryItem:
    """An envelope and which of its bodies: those that a peer holds, or those that it is asked for."""

    envelope_id: bytes
    bodies: int
    """Bit k for the body of group k."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which envelopes of an epoch do you hold, beginning behind this id?"""

    epoch: int
    after: bytes = b""
    """32 bytes, or none for the beginning."""
    shards: int = ALL_SHARDS
    """Bit s for what shard s carries."""


@dataclass(frozen=True, slots=True)
class GetRequest:
    """Send me these."""

    want: tuple[InventoryItem, ...]
    """By id, ascending."""


@dataclass(frozen=True, slots=True)
class PeersRequest:
    """Whom else do you know in this swarm?"""

    most: int
    """1 to MAX_PX_PEERS."""
    shards: int = ALL_SHARDS
    """Bit s for those who follow the topic of shard s."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A peer, and where it is to be found, by what another says."""

    key: bytes
    address: str
    """A multiaddress without the peer id."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A rollout message that was asked for. Nothing in it is believed yet."""

    envelope_id: bytes
    message: bytes


Request = ListRequest | GetRequest | PeersRequest


def encode_request(request: Request) -> bytes:
    """The bytes of a request."""
    if isinstance(request, ListRequest):
        return encode({"after": request.after, "epoch": request.epoch, "shards": request.shards})
    if isinstance(request, PeersRequest):
        return encode({"peers": request.most, "shards": request.shards})
    return encode({"want": _pairs(request.want)})


def decode_request(data: bytes) -> Request:
    """What a peer asks. Raises RemoteError (pull)."""
    value = decode(data, limit=MAX_REQUEST_BYTES, layer=Layer.PULL)
    if not isinstance(value, dict):  # PULL-1
        raise RemoteError(Layer.PULL, "a request is a map")
    if value.keys() == {"after", "epoch", "shards"}:
        after, epoch = value["after"], value["epoch"]
        if not isinstance(after, bytes) or len(after) not in (0, _NAME_BYTES):  # PULL-2
            raise RemoteError(Layer.PULL, "after is an envelope id or empty")
        if not _is_uint(epoch):
            raise RemoteError(Layer.PULL, "an epoch is an unsigned integer")
        return ListRequest(epoch, after, _read_shards(value["shards"]))
    if value.keys() == {"want"}:
        want = _read_held(value["want"], MAX_DELIVERED)
        if not want:  # PULL-3
            raise RemoteError(Layer.PULL, "nothing is asked for")
        return GetRequest(want)
    if value.keys() == {"peers", "shards"}:
        most = value["peers"]
        if not _is_uint(most) or not 1 <= most <= MAX_PX_PEERS:  # PULL-7
            raise RemoteError(Layer.PULL, f"peers is a number from 1 to {MAX_PX_PEERS}")
        return PeersRequest(most, _read_shards(value["shards"]))
    raise RemoteError(Layer.PULL, "a request lists an epoch, wants ids, or asks for peers")


def encode_listing(held: Sequence[InventoryItem]) -> bytes:
    """The answer to a ListRequest; `held` by id, ascending."""
    return encode(_pairs(held))


def decode_listing(data: bytes, request: ListRequest) -> tuple[InventoryItem, ...]:
    """What a peer says it holds. Raises RemoteError (pull)."""
    held = _read_held(decode(data, limit=MAX_LISTING_BYTES, layer=Layer.PULL), MAX_LISTED)
    if held and held[0].envelope_id <= request.after:  # PULL-4
        raise RemoteError(Layer.PULL, "an id that is not behind the one asked for")
    return held


def encode_delivery(messages: Sequence[bytes]) -> bytes:
    """The answer to a GetRequest: rollout messages, in the order in which they were asked for."""
    return encode(list(messages))


def decode_delivery(data: bytes, request: GetRequest, manifest: Manifest) -> tuple[Delivered, ...]:
    """The messages that a peer delivers, each of them asked for.

    Raises RemoteError: pull, or what a message by itself is refused by (size, frame, envelope).
    """
    delivered = []
    asked = iter(request.want)
    for message in _read_messages(data):
        envelope, bodies = decode_message(message, manifest)
        envelope_id = parse_envelope(envelope, network_id=manifest.network_id).envelope_id
        wanted = next((each for each in asked if each.envelope_id == envelope_id), None)
        if wanted is None:  # PULL-6
            raise RemoteError(Layer.PULL, "an envelope that was not asked for, or not in this order")
        if any(body is not None and not wanted.bodies >> k & 1 for k, body in enumerate(bodies)):
            raise RemoteError(Layer.PULL, "a body that was not asked for")
        delivered.append(Delivered(envelope_id, message))
    return tuple(delivered)


def encode_peers(introduced: Sequence[PeerAddress]) -> bytes:
    """The answer to a PeersRequest; by key, ascending."""
    return encode([[each.key, each.address] for each in introduced])


def decode_peers(data: bytes, request: PeersRequest) -> tuple[PeerAddress, ...]:
    """Whom a peer says it knows. Raises RemoteError (pull)."""
    value = decode(data, limit=MAX_PX_BYTES, layer=Layer.PULL)
    return tuple(starmap(_introduction, _read_pairs(value, request.most)))


def _introduction(key: bytes, address: Value) -> PeerAddress:
    if not isinstance(address, str) or not 1 <= len(address.encode()) <= MAX_ADDRESS_BYTES:  # PULL-8
        raise RemoteError(Layer.PULL, f"an address is text of 1 to {MAX_ADDRESS_BYTES} bytes")
    return PeerAddress(key, address)


def _read_messages(data: bytes) -> tuple[bytes, ...]:
    """PULL-5. Not by the general decoder: a message is far longer than what that one is for."""
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
    """How many items the array has, and where they begin; one of more than 255 is none here."""
    initial = data[0] if data else 0
    if _ARRAY <= initial < _ARRAY + _ONE_BYTE:
        return initial - _ARRAY, 1
    if initial == _ARRAY + _ONE_BYTE and len(data) > 1 and data[1] >= _ONE_BYTE:
        return data[1], 2
    raise RemoteError(Layer.PULL, "a delivery is an array")


def _read_shards(value: Value) -> int:
    if not _is_uint(value) or not 1 <= value <= ALL_SHARDS:  # PULL-9
        raise RemoteError(Layer.PULL, "shards has a bit for each of the shards")
    return value


def _pairs(held: Sequence[InventoryItem]) -> list[Value]:
    return [[each.envelope_id, each.bodies] for each in held]


def _read_held(value: Value, most: int) -> tuple[InventoryItem, ...]:
    return tuple(starmap(_held, _read_pairs(value, most)))


def _held(envelope_id: bytes, bodies: Value) -> InventoryItem:
    if not _is_uint(bodies) or bodies >> MAX_GROUPS:  # PULL-3
        raise RemoteError(Layer.PULL, f"bodies are an unsigned integer of {MAX_GROUPS} bits")
    return InventoryItem(envelope_id, bodies)


def _read_pairs(value: Value, most: int) -> list[tuple[bytes, Value]]:
    """Pairs of a name of 32 bytes and something else, the names ascending: PULL-3, PULL-4, PULL-8."""
    if not isinstance(value, list) or len(value) > most:
        raise RemoteError(Layer.PULL, f"an array of at most {most} pairs was expected")
    pairs = list(map(_read_pair, value))
    if any(one >= other for (one, _), (other, _) in pairwise(pairs)):
        raise RemoteError(Layer.PULL, "ids or keys do not ascend")
    return pairs


def _read_pair(value: Value) -> tuple[bytes, Value]:
    if not isinstance(value, list) or len(value) != 2:
        raise RemoteError(Layer.PULL, "a pair was expected")
    name, more = value
    if not isinstance(name, bytes) or len(name) != _NAME_BYTES:
        raise RemoteError(Layer.PULL, "an id or a key has 32 bytes")
    return name, more


def _is_uint(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
