"""Drives gossip machines that are joined in memory, without a task or a socket: a subclass brings clock and links.

Each driver has one stream to each connected peer. It reads the RPCs of a stream one after another: while the node is
asked about a message, or a peer has to wait, the next ones wait too. RPCs that are sent at one moment to one peer are
merged by the outbox, as on a real stream.
"""

import heapq
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import Protocol

from sapo_node.gossip.actions import Action, Ask, Pause, Wake
from sapo_node.gossip.machine import Machine
from sapo_node.gossip.rpc import Frames
from sapo_node.gossip.verdict import Verdict

Call = Callable[[], None]


class Agenda:
    """Calls in the order (time, origin, sequence): a total order, so that every run breaks ties in the same way."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, str, int, Call]] = []
        self._numbers = count()

    def add(self, when: float, call: Call, origin: str = "") -> None:
        heapq.heappush(self._calls, (when, origin, next(self._numbers), call))

    @property
    def next(self) -> float:
        """The time of the next call; infinite if there is none."""
        return self._calls[0][0] if self._calls else inf

    def pop(self) -> Call:
        """Remove and return the next call."""
        return heapq.heappop(self._calls)[-1]


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """The quality of every link: a delay in seconds, uniform in [shortest, longest], and a loss probability."""

    shortest: float = 0.01
    longest: float = 0.05
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.shortest <= self.longest:
            raise ValueError("a link delays by more than zero seconds, and `shortest` is at most `longest`")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError("loss is a probability")


class Link:
    """One direction between two peers. What is sent on it arrives in order."""

    def __init__(self, quality: LinkQuality, rng: random.Random) -> None:
        self._quality = quality
        self._rng = rng
        self._last = 0.0

    def delay(self) -> float:
        """The seconds that one transmission takes."""
        return self._rng.uniform(self._quality.shortest, self._quality.longest)

    def loses(self) -> bool:
        """Return whether the link loses this message."""
        return self._rng.random() < self._quality.loss

    def arrival(self, now: float) -> float:
        """The time at which a frame arrives that is sent now."""
        self._last = max(now + self.delay(), self._last)
        return self._last


class Peer(Protocol):
    """A peer in memory: a driver, or a test that plays a peer."""

    @property
    def name(self) -> str: ...

    def link(self, peer: str, *, outbound: bool) -> None:
        """A peer is connected; `outbound` if this one dialled it."""

    def open(self, peer: "Peer") -> object:
        """Open our stream to a connected peer."""

    def accept(self, peer: str, stream: int) -> bool:
        """A peer opens a stream. Returns False if it has too many."""

    def lose(self, peer: str) -> None:
        """The connection with a peer ended."""


def connect(dialler: Peer, dialled: Peer) -> None:
    """Connect two peers, and open their streams to each other."""
    dialler.link(dialled.name, outbound=True)
    dialled.link(dialler.name, outbound=False)
    dialler.open(dialled)
    dialled.open(dialler)


def hang_up(one: Peer, other: Peer) -> None:
    """End the connection of two peers."""
    one.lose(other.name)
    other.lose(one.name)


@dataclass(slots=True)
class _Reading:
    """The frames that arrived on one stream of a peer."""

    peer: str
    stream: int
    unread: deque[bytes] = field(default_factory=deque)
    actions: Iterator[Action] = iter(())
    """Those that are left of the frame that is being read."""
    waits: bool = False


class MemoryGossip(ABC):
    """The driver of one machine."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self._streams: dict[str, int] = {}
        """Our open stream to each peer."""
        self._numbers = count()
        self._readings: dict[tuple[str, int], _Reading] = {}

    @abstractmethod
    def now(self) -> float:
        """The time in seconds."""

    @abstractmethod
    def after(self, seconds: float, call: Call) -> None:
        """Call after these seconds."""

    @abstractmethod
    def carry(self, peer: str, stream: int, frame: bytes) -> None:
        """Have `arrive` of a peer called with a frame, after the delay of the link, behind all frames before it."""

    @abstractmethod
    def judge(self, ask: Ask, decide: Callable[[Verdict], None]) -> None:
        """Have `decide` called, not from here, with the verdict of the node on a message."""

    @abstractmethod
    def report(self, action: Action) -> None:
        """Act on what the machine says of a peer: Disconnect, Record, Joined, Foreign or Offended."""

    # Connections and streams.

    def link(self, peer: str, *, outbound: bool) -> None:
        """See `Peer`."""
        self.machine.connected(peer, outbound=outbound)

    def open(self, peer: Peer) -> None:
        """See `Peer`."""
        self._streams[peer.name] = stream = next(self._numbers)
        if peer.accept(self.name, stream):
            self.perform(self.machine.writable(peer.name, self.now()))

    def accept(self, peer: str, stream: int) -> bool:
        """See `Peer`."""
        self._readings[peer, stream] = _Reading(peer, stream)
        return self.machine.stream_opened(peer, stream)

    def lose(self, peer: str) -> None:
        """See `Peer`."""
        self.machine.gone(peer)
        self._streams.pop(peer, None)
        self._readings = {place: reading for place, reading in self._readings.items() if place[0] != peer}

    # RPCs.

    def arrive(self, peer: str, stream: int, frame: bytes) -> None:
        if reading := self._readings.get((peer, stream)):
            reading.unread.append(frame)
            self._read(reading)

    def _read(self, reading: _Reading) -> None:
        """Process what has arrived, until nothing is left or something has to be waited for."""
        while not reading.waits:
            match next(reading.actions, None):
                case None if reading.unread:
                    frame = reading.unread.popleft()
                    reading.actions = self.machine.received(reading.peer, reading.stream, frame, self.now())
                case None:
                    return
                case Pause(seconds):
                    reading.waits = True
                    self.after(seconds, partial(self._go_on, reading))
                case Ask() as ask:
                    reading.waits = True
                    self.judge(ask, partial(self._decide, reading, ask.key))
                case action:
                    self.perform([action])

    def _go_on(self, reading: _Reading) -> None:
        reading.waits = False
        self._read(reading)

    def _decide(self, reading: _Reading, key: bytes, verdict: Verdict) -> None:
        self.perform(self.machine.settle(key, verdict, self.now()))
        self._go_on(reading)

    def perform(self, actions: Iterable[Action]) -> None:
        """Perform actions of the machine, of which none is an Ask or a Pause."""
        for action in actions:
            match action:
                case Wake(peer):
                    self.after(0.0, partial(self.write, peer))
                case _:
                    self.report(action)

    def write(self, peer: str) -> None:
        """Write what waits for a peer."""
        while peer in self._streams and (framed := self.machine.next_frame(peer)):
            for frame in Frames().feed(framed):
                self.carry(peer, self._streams[peer], frame)
