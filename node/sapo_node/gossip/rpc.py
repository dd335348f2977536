"""The RPC of GossipSub 1.1: its bytes, the length before it, and the limits of one RPC.

The messages are those of libp2p's specifications (pubsub/README.md, "The RPC"; gossipsub v1.0 and v1.1, control
messages), under names of this project. Topics are bytes, as all else that peers send: nothing decodes them.

A reader drops every field that is not in `_SCHEMA`: no signature covers such a field, and it would be forwarded. The
addresses in a PRUNE (peer exchange) are such a field.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from sapo_protocol import Layer, RemoteError

PROTOCOL = "/meshsub/1.1.0"
FRAME_BYTES = 1024 * 1024  # of one RPC; a peer may rely on `max_message_bytes` + 2,000

# Limits of one RPC. Honest RPCs stay far below: a heartbeat offers only the messages of the last three seconds. An RPC
# above a limit is wrong by itself, however seldom the peer sends one. `control` limits the rate.
PUBLISHES = 64
SUBSCRIPTIONS = 64
RECORD_BYTES = 8192
CONTROLS = 64  # of each kind
OFFERED_IDS = 512
WANTED_IDS = 64  # each can make this node send a whole message

_SCHEMA: dict[str, tuple[tuple[int, str, str], ...]] = {
    "Subscription": ((1, "subscribe", "bool"), (2, "topic", "bytes")),
    "Message": (
        (1, "author", "bytes"),
        (2, "data", "bytes"),
        (3, "seqno", "bytes"),
        (4, "topics", "bytes*"),
        (5, "signature", "bytes"),
        (6, "key", "bytes"),
    ),
    "IHave": ((1, "topic", "bytes"), (2, "ids", "bytes*")),
    "IWant": ((1, "ids", "bytes*"),),
    "Graft": ((1, "topic", "bytes"),),
    "Prune": ((1, "topic", "bytes"), (3, "backoff", "uint64")),
    "Control": (
        (1, "ihave", "IHave*"),
        (2, "iwant", "IWant*"),
        (3, "graft", "Graft*"),
        (4, "prune", "Prune*"),
        (5, "idontwant", "bytes*"),  # GossipSub 1.2, which this node does not speak: counted, and not read
    ),
    "Rpc": (
        (1, "subscriptions", "Subscription*"),
        (2, "publish", "Message*"),
        (3, "control", "Control"),
        (4, "record", "bytes"),
    ),
}
"""Each message: (number, name, type) of its fields. An asterisk stands behind the type of a repeated field."""


def _classes() -> Iterator[Any]:
    """The class of each message in `_SCHEMA`."""
    file = descriptor_pb2.FileDescriptorProto(name="sapo/gossip.proto", package="sapo", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            plain = kind.rstrip("*")
            added = message.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL,
            )
            if plain in _SCHEMA:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".sapo.{plain}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return (message_factory.GetMessageClass(pool.FindMessageTypeByName(f"sapo.{name}")) for name in _SCHEMA)


Subscription: Any
Message: Any
IHave: Any
IWant: Any
Graft: Any
Prune: Any
Control: Any
Rpc: Any
Subscription, Message, IHave, IWant, Graft, Prune, Control, Rpc = _classes()


def decode(frame: bytes) -> Any:
    """The RPC in a frame, without its length. Raises RemoteError for bytes that are no RPC."""
    rpc = Rpc()
    try:
        rpc.ParseFromString(frame)
    except DecodeError as error:
        raise RemoteError(Layer.FRAME, "unreadable RPC") from error
    rpc.DiscardUnknownFields()
    return rpc


def published(message: Any) -> bytes:
    """A message as a field of an RPC. An RPC is its fields, one after another, so RPCs to several peers share it."""
    raw: bytes = message.SerializeToString()
    return b"\x12" + _varint(len(raw)) + raw


def framed(fields: Iterable[bytes]) -> bytes:
    """An RPC of these encoded fields, with its length before it."""
    raw = b"".join(fields)
    return _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    """An unsigned integer in LEB128, as protobuf writes it."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


class Frames:
    """Cuts the bytes of one stream into frames, in whatever pieces they come."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def has_begun(self) -> bool:
        """Return whether a frame has begun and not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that end in these bytes, without their lengths. Raises RemoteError if one exceeds FRAME_BYTES."""
        self._rest += data
        frames, start = [], 0
        while (found := _read_varint(self._rest, start)) is not None:
            length, begin = found
            if length > FRAME_BYTES:
                raise RemoteError(Layer.SIZE, "RPC too large")
            if begin + length > len(self._rest):
                break
            frames.append(bytes(self._rest[begin : begin + length]))
            start = begin + length
        del self._rest[:start]
        return frames


_LENGTH_BYTES = 4
"""The longest varint that a reader takes: it reaches beyond FRAME_BYTES."""


def _read_varint(data: bytearray, start: int) -> tuple[int, int] | None:
    """The varint at `start` and the position behind it; None if it has not ended. Raises RemoteError if it is long."""
    value = 0
    for index, byte in enumerate(data[start : start + _LENGTH_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    if len(data) - start >= _LENGTH_BYTES:
        raise RemoteError(Layer.SIZE, "RPC too large")
    return None


_LIMITS = {
    "messages": PUBLISHES,
    "subscriptions": SUBSCRIPTIONS,
    "bytes of peer record": RECORD_BYTES,
    "IHAVE": CONTROLS,
    "offered ids": OFFERED_IDS,
    "IWANT": CONTROLS,
    "wanted ids": WANTED_IDS,
    "GRAFT": CONTROLS,
    "PRUNE": CONTROLS,
    "IDONTWANT": CONTROLS,
}


def excess_of(rpc: Any) -> str:
    """The first count of an RPC that is above its limit, as text; empty if no count is."""
    counts = {
        "messages": len(rpc.publish),
        "subscriptions": len(rpc.subscriptions),
        "bytes of peer record": len(rpc.record),
    }
    if rpc.HasField("control"):
        counts |= counts_of(rpc.control)
    return next((f"{count} {what} in one RPC" for what, count in counts.items() if count > _LIMITS[what]), "")


def counts_of(control: Any) -> dict[str, int]:
    """The number of control messages of each kind, and of the ids in them."""
    return {
        "IHAVE": len(control.ihave),
        "offered ids": sum(len(ihave.ids) for ihave in control.ihave),
        "IWANT": len(control.iwant),
        "wanted ids": sum(len(iwant.ids) for iwant in control.iwant),
        "GRAFT": len(control.graft),
        "PRUNE": len(control.prune),
        "IDONTWANT": len(control.idontwant),
    }
