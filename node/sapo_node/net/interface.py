"""What the node asks of a network, and what a network tells the node.

A carrier calls the `Handle` of a topic once per distinct content, identified by its SHA-256, before it forwards
anything; asks `Admit` when a peer connects and again for each message; and reports to `Notify` what a person would want
to see. The carrier itself never charges, scores or bans: `Handle` and `Admit` belong to the node.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import trio

from sapo_protocol.errors import LocalError

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # libp2p brings these stubs, and they hide trio's own types


class Verdict(Enum):
    """What the node decided about one message."""

    ACCEPT = "accept"  # forward it; never ask again about this content
    IGNORE = "ignore"  # do not forward it; ask again if it comes back later
    REJECT = "reject"  # do not forward it; the bytes alone prove it wrong, so never ask again


Handle = Callable[[str, bytes], Awaitable[Verdict]]
"""`handle(peer id of who sent it, message)`; awaits little, for that peer's next message waits for it."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What a node has to do with one topic."""

    handle: Handle
    max_bytes: int
    """Largest message that is taken or sent."""
    everybodys: bool = False
    """Whether all peers of the swarm follow it, always."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What a node has to do with peers that ask it for something."""

    protocol: str
    """The protocol of the streams on which they do."""
    answer: Callable[[str, bytes], bytes | None]
    """`answer(peer id of who asks, request)`; None for one that gets no answer."""


Admit = Callable[[str], bool]
"""`admit(peer id)`: whether this peer may connect to us and be heard."""


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """One connected peer."""

    peer_id: str
    addresses: tuple[str, ...]
    """Where it was dialled or came from; may be empty."""
    outbound: bool
    """Whether we dialled it."""
    connected_at: float
    """Trio's clock, in seconds."""
    follows: frozenset[str] = frozenset()
    """The topics of ours that it follows."""
    brought: int = 0
    """Messages that it was the first to bring and that the node accepted, since it connected."""


@dataclass(frozen=True, slots=True)
class PeerConnected:
    peer_id: str

    def __str__(self) -> str:
        return f"connected to {self.peer_id}"


@dataclass(frozen=True, slots=True)
class PeerGone:
    peer_id: str

    def __str__(self) -> str:
        return f"lost {self.peer_id}"


@dataclass(frozen=True, slots=True)
class OtherSwarm:
    """A peer that follows another swarm: no message can pass between it and us."""

    peer_id: str
    network_id: str
    """Hexadecimal, as the peer announced it."""

    def __str__(self) -> str:
        return f"{self.peer_id} follows another swarm, {self.network_id[:16]}: nothing passes between it and us"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A peer sent what the gossip protocol forbids; its stream was reset or the message dropped."""

    peer_id: str
    count: int
    """How often since this peer connected."""
    cause: str

    def __str__(self) -> str:
        return f"{self.peer_id} sent malformed data ({self.cause}), {self.count} so far"


@dataclass(frozen=True, slots=True)
class ServiceRestarted:
    """The network service failed and starts again; nothing else of the node is touched."""

    cause: str
    delay: float
    """Seconds until it starts again."""

    def __str__(self) -> str:
        return f"the network service failed ({self.cause}) and starts again in {self.delay:.1f} s"


@dataclass(frozen=True, slots=True)
class BootstrapUnreachable:
    address: str
    cause: str

    def __str__(self) -> str:
        return f"cannot reach bootstrap {self.address} ({self.cause}); still trying"


@dataclass(frozen=True, slots=True)
class BootstrapReached:
    """A bootstrap that was unreachable answers."""

    address: str

    def __str__(self) -> str:
        return f"bootstrap {self.address} is reachable again"


NetworkNotice = (
    PeerConnected | PeerGone | OtherSwarm | Malformed | ServiceRestarted | BootstrapUnreachable | BootstrapReached
)

Notify = Callable[[NetworkNotice], None]
"""Must not raise or block."""


class MessageTooLargeError(LocalError):
    """A message to publish is larger than the swarm's limit."""


class NotRunningError(LocalError):
    """The network was asked to publish before it ran, or after it stopped."""


class AskFailed(LocalError):
    """A peer that was asked did not answer."""


class Acquaintances(Protocol):
    """The peers that a node is connected with, and what it asks of them."""

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        """A connected peer's answer to a request. Raises AskFailed."""

    def introduce(self, by: str, peer_id: str, address: str) -> None:
        """Dial a peer at an address that the connected peer `by` named, if the node takes names of `by`."""

    def peers(self) -> tuple[PeerInfo, ...]:
        """The connected peers that follow this swarm, sorted by peer id."""


TARGET_PEERS = 4
"""Connected peers that should follow a topic which the node follows."""


class Network(Acquaintances, Protocol):
    """The node's side of one swarm. It may be run once."""

    @property
    def peer_id(self) -> str: ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """Dialable multiaddresses that end in `/p2p/<peer id>`; empty until `run` has started."""

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports started once listening.

        Raises LocalError where only the operator can help (a busy port, a malformed address).
        """

    async def publish(self, topic: str, data: bytes) -> None:
        """Send `data` to the swarm on one of its topics; without peers it reaches nobody. Our own `handle` does not
        see it.

        Raises:
            MessageTooLargeError: if it exceeds the topic's limit.
            NotRunningError: if the network does not run.
        """

    async def follow(self, topics: Collection[str]) -> None:
        """Of the topics that are not everybody's, hear these from now on, and have company on them; at first it hears
        all. Peers that were dialled for the sake of others may be left.
        """

    async def disconnect(self, peer_id: str) -> None:
        """Close all connections with a peer. It may come back as long as `admit` says yes."""
