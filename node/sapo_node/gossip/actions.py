"""The actions that the gossip machine asks of its driver."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the node for its verdict on a new message, and give it to `Machine.settle` under the same key."""

    peer: str
    topic: bytes
    data: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Read nothing more from this stream for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wake:
    """Something waits for the peer: pull it with `Machine.next_frame`."""

    peer: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close all connections with a peer."""

    peer: str
    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """A peer sent a signed peer record, which the machine does not read."""

    peer: str
    record: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """A peer follows its first topic of this swarm."""

    peer: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A peer follows a topic of another swarm."""

    peer: str
    network_id: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Offended:
    """A peer broke the gossip protocol."""

    peer: str
    cause: str


Action = Ask | Pause | Wake | Disconnect | Record | Joined | Foreign | Offended
