"""The interface between a node and its network.

A network calls the `Handle` of a topic once for each distinct content (by SHA-256), before it forwards the content. It
calls `Admit` when a peer connects, and for each message. It reports to `Notify` what the operator may want to see. The
network never charges or bans a peer: only the node does, in `Handle` and `Admit`.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from sapo_node.gossip.verdict import Verdict
from sapo_protocol.errors import LocalError

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # libp2p brings these stubs, and they hide trio's own types

log = logging.getLogger(__name__)

Handle = Callable[[str, bytes], Awaitable[Verdict]]
"""`handle(peer id of the sender, message)`. It must be quick, because that peer's next message waits for it."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The size limit and the handler of one topic."""

    handle: Handle
    max_bytes: int
    """Largest message that the node accepts or sends."""
    everybodys: bool = False
    """True if all peers of the swarm always follow it."""

    def require_fits(self, data: bytes) -> None:
        """Raise MessageTooLargeError for a message above `max_bytes`."""
        if len(data) > self.max_bytes:
            raise MessageTooLargeError(
                f"a message of {len(data)} bytes exceeds the limit of {self.max_bytes}: share less"
            )

    async def ask(self, sender: str, data: bytes) -> Verdict:
        """The verdict of the node on a message of a peer; IGNORE if the handler fails."""
        try:
            return await self.handle(sender, data)
        except Exception:  # An error of the node must not end the peer's connection or the service.
            log.exception("the message handler failed; the message is ignored")
            return Verdict.IGNORE


@dataclass(frozen=True, slots=True)
class Requests:
    """The handler and the limits for the requests of peers."""

    protocol: str
    """The libp2p protocol id of the streams for requests."""
    answer: Callable[[str, bytes], Awaitable[bytes | None]]
    """`answer(peer id of the requester, request)` returns the answer, or None to give none."""


CIRCUIT = "/p2p-circuit"
"""In peer exchange, the address of a peer that reserved at the peer that names it (spec PULL-8)."""

Admit = Callable[[str], bool]
"""`admit(peer id)`: whether the peer may connect to this node and send it messages."""


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """One connected peer."""

    peer_id: str
    addresses: tuple[str, ...]
    """The IP addresses and ports at which it answered a dial of this node; may be empty."""
    outbound: bool
    """True if this node dialled it."""
    connected_at: float
    """In seconds of trio's clock."""
    follows: frozenset[str] = frozenset()
    """The topics of this node that it follows."""
    brought: int = 0
    """Messages since it connected that it delivered first and that the node accepted."""
    reserved: bool = False
    """True if it asked this node to relay to it (circuit relay)."""


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A peer that answered a dial, as it is kept for a restart."""

    address: str
    """The full address at which it answered, which ends in `/p2p/<peer id>`."""
    source: str = ""
    """The network of the peer that named it, or its own network if it dialled this node first."""
    inbound: bool = False
    """True if it dialled this node first, and no peer named it."""


@dataclass(frozen=True, slots=True)
class PeerConnected:
    peer_id: str
    block: str = ""
    """The address block of the peer, whoever dialled. Empty if it is a bootstrap peer, or has no address of the
    Internet."""

    def __str__(self) -> str:
        return f"connected to {self.peer_id}"


@dataclass(frozen=True, slots=True)
class PeerGone:
    peer_id: str
    why: str = ""
    """The reason for which this node closed the connection. Empty if the peer or the network closed it."""

    def __str__(self) -> str:
        return f"lost {self.peer_id}" + (f": this node closed the connection, because {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class OtherSwarm:
    """A peer follows another swarm, so no message can pass between it and this node."""

    peer_id: str
    network_id: str
    """Hexadecimal, as the peer announced it."""

    def __str__(self) -> str:
        return f"{self.peer_id} follows another swarm, {self.network_id[:16]}: it exchanges no messages with this node"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A peer sent what the gossip protocol forbids. The node reset its stream or dropped the message."""

    peer_id: str
    count: int
    """Number of such messages of this peer so far."""
    cause: str

    def __str__(self) -> str:
        return f"{self.peer_id} sent malformed data ({self.cause}), {self.count} so far"


@dataclass(frozen=True, slots=True)
class ServiceRestarted:
    """The network service failed and starts again. The rest of the node goes on."""

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
    """A bootstrap peer that was unreachable answers again."""

    address: str

    def __str__(self) -> str:
        return f"bootstrap {self.address} is reachable again"


@dataclass(frozen=True, slots=True)
class PortMapped:
    """A router forwards its port to this node, or no longer does so."""

    address: str
    """The outer address, as a multiaddress. Empty if the router no longer forwards a port."""
    by: str = ""
    """The protocol of the router."""

    def __str__(self) -> str:
        if not self.address:
            return "the router no longer forwards a port to this node"
        return f"the router forwards {self.address} to this node (by {self.by})"


@dataclass(frozen=True, slots=True)
class Reachability:
    """How a peer sees this node, by its word."""

    seen: str
    """The address that our connection with it comes from."""
    local_port: int
    """The port of this machine that this connection leaves from."""
    asked: tuple[str, ...]
    """The addresses at which the peer was asked to dial this node."""
    dialled: bool
    """True if one of them answered."""


NetworkNotice = (
    PeerConnected
    | PeerGone
    | OtherSwarm
    | Malformed
    | ServiceRestarted
    | BootstrapUnreachable
    | BootstrapReached
    | PortMapped
)

Notify = Callable[[NetworkNotice], None]
"""Must not raise or block."""


class MessageTooLargeError(LocalError):
    """A message to publish is larger than the swarm's limit."""


class NotRunningError(LocalError):
    """The network was asked to publish before it ran, or after it stopped."""


class AskFailed(LocalError):
    """A peer did not answer a request."""


class ConnectedPeers(Protocol):
    """The connected peers of a node, and requests to them."""

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        """Send a request to a connected peer and return its answer. Raises AskFailed, and RemoteError for an answer
        that is longer than any may be.
        """

    def try_address(self, by: str, peer_id: str, address: str) -> None:
        """Dial a peer at an address that the connected peer `by` named, unless `by` is ignored as a source.

        At CIRCUIT, meet the peer through `by` first.
        """

    def peers(self) -> tuple[PeerInfo, ...]:
        """The connected peers that follow this swarm, sorted by peer id."""


TARGET_PEERS = 4
"""Connected peers that a node wants on each topic that it follows."""


class Network(ConnectedPeers, Protocol):
    """The node's side of one swarm. It may be run once."""

    @property
    def peer_id(self) -> str: ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """Dialable multiaddresses that end in `/p2p/<peer id>`; empty until `run` has started."""

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Reports started when it listens.

        Raises LocalError if only the operator can help (a busy port, a malformed address).
        """

    async def publish(self, topic: str, data: bytes) -> None:
        """Send `data` to the connected peers on one topic. The node's own `handle` is not called.

        Raises:
            MessageTooLargeError: if it exceeds the topic's limit.
            NotRunningError: if the network does not run.
        """

    def answered(self) -> tuple[KnownPeer, ...]:
        """The peers that answered a dial of this node; at most 256."""

    async def follow(self, topics: Collection[str]) -> None:
        """From now on follow only these topics, besides those that all peers follow, and look for peers on them.

        Before the first call the node follows all topics. It may disconnect peers that it dialled for other topics.
        """

    async def disconnect(self, peer_id: str, why: str) -> None:
        """Close all connections with a peer. It may connect again while `admit` allows it. `why` is logged."""
