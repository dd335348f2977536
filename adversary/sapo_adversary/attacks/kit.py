"""The means of an attacker: keys, the answer to every task, and flawless messages to spoil. It imports `sapo_protocol`
and nothing of a node.
"""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from sapo_protocol import (
    Assignment,
    Body,
    Completion,
    Finish,
    GetRequest,
    GroupHeader,
    Header,
    Manifest,
    RemoteError,
    Sealed,
    assign,
    decode_body,
    decode_message,
    encode_body,
    encode_header,
    encode_message,
    open_message,
    parse_envelope,
    peer_id,
    seal,
)

Layer = Literal["wire", "identity", "gossip", "reward", "training", "trust", "resource"]
Topic = Literal["rollouts", "evidence"]


def peer_of(address: str) -> str:
    """The peer id at the end of an address."""
    return address.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Key:
    """One Ed25519 key of an attacker."""

    issuer: bytes
    """The public key."""
    sign: Callable[[bytes], bytes]

    @property
    def peer(self) -> str:
        """The peer id."""
        return peer_id(self.issuer)


@dataclass(frozen=True, slots=True)
class Solution:
    """The facts that an attacker can compute about an assigned task."""

    dataset: str
    prompt: str
    answer: str
    digest: bytes
    """The digest of prompt and answer, as in an honest header."""
    work: Callable[[random.Random], str]
    """Writes a correct completion as a policy that has learnt the task does; the wording varies."""
    levels: int
    """L, the level of a correct completion."""
    level: Callable[[str], int]
    """The level that a completion earns."""

    def part(self, text: str) -> int:
        """The level of a completion that is not correct."""
        return min(self.level(text), self.levels - 1) if self.levels > 1 else 0


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a message: its part of the header, and its body."""

    header: GroupHeader
    body: bytes

    def carrying(self, body: bytes) -> "Group":
        """The same group with another body, and the hash of that body."""
        return Group(replace(self.header, body=hashlib.sha256(body).digest()), body)


@dataclass(frozen=True, slots=True)
class Packet:
    """One message to send."""

    data: bytes
    topic: Topic = "rollouts"
    to: tuple[str, ...] | None = None
    """Peer ids; None sends to all connected peers."""


class Kit:
    """The means of one attacker: `keys`, all of which it holds, and `solve`, which returns the answer to any task."""

    def __init__(
        self, manifest: Manifest, keys: Sequence[Key], solve: Callable[[Assignment], Solution], rng: random.Random
    ) -> None:
        self.manifest = manifest
        self.keys = keys
        self.solve = solve
        self.rng = rng
        self._counters: dict[tuple[bytes, int], int] = {}

    def counter(self, key: Key, epoch: int) -> int | None:
        """The next unused counter of a key in an epoch; None where all are used."""
        counter = self._counters.get((key.issuer, epoch), 0)
        if counter >= self.manifest.max_rounds:
            return None
        self._counters[key.issuer, epoch] = counter + 1
        return counter

    def task(self, key: Key, epoch: int, counter: int, k: int) -> Solution:
        """The task that the protocol assigns, with its answer."""
        return self.solve(assign(self.manifest, key.issuer, epoch, counter, k))

    def right(self, task: Solution) -> str:
        """A correct completion; the wording varies."""
        return f"I find {self.rng.randrange(1_000_000)}. <answer>{task.answer}</answer>"

    def wrong(self) -> str:
        """An incorrect completion."""
        return f"I find {self.rng.randrange(1_000_000)}. <answer>unknown</answer>"

    def answers(self, task: Solution, rewards: Iterable[bool]) -> list[str]:
        """One text for each completion, correct if its reward is true."""
        return [self.right(task) if reward else self.wrong() for reward in rewards]

    @property
    def half(self) -> tuple[bool, ...]:
        """Every second completion correct: the greatest sum of advantages within the group."""
        return tuple(number % 2 == 0 for number in range(self.manifest.completions))

    def group(self, task: Solution, texts: Sequence[str], correct: Iterable[bool]) -> Group:
        """A group of these texts that claims which of them are correct. The claim of any other is the level that it
        earns, below L.
        """
        pairs = zip(texts, correct, strict=True)
        claims = [task.levels if is_correct else task.part(text) for text, is_correct in pairs]
        body = encode_body(Body(tuple(Completion((text,), Finish.STOP) for text in texts)))
        return Group(GroupHeader(task.digest, tuple(claims), hashlib.sha256(body).digest()), body)

    def claimed(self, task: Assignment, group: GroupHeader) -> tuple[bool, ...]:
        """Return for each completion of a group that was heard whether it is claimed correct."""
        return tuple(claim == task.spec.levels for claim in group.claims)

    def honest(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        """A flawless group, half correct."""
        task = self.task(key, epoch, counter, k)
        return self.group(task, self.answers(task, self.half), self.half)

    def lie(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        """A group of incorrect completions, half of which are claimed correct."""
        return self.group(self.task(key, epoch, counter, k), [self.wrong() for _ in self.half], self.half)

    def sealed(self, message: bytes) -> Sealed | None:
        """The envelope of a message, not verified; None where the bytes are no message."""
        try:
            envelope, _ = decode_message(message, self.manifest)
            return parse_envelope(envelope, network_id=self.manifest.network_id)
        except RemoteError:
            return None

    def heard(self, message: bytes) -> Iterator[tuple[Assignment, GroupHeader, Body]]:
        """The task, the header and the texts of each group in the message of another peer; nothing where the bytes are
        no message.
        """
        try:
            rollout = open_message(message, self.manifest)
            bodies = [decode_body(body, self.manifest) if body else None for body in rollout.bodies]
        except RemoteError:
            return
        header, issuer = rollout.header, rollout.opened.issuer
        for k, (group, body) in enumerate(zip(header.groups, bodies, strict=True)):
            if body:
                yield assign(self.manifest, issuer, header.epoch, header.counter, k), group, body

    def message(self, key: Key, epoch: int, counter: int, groups: Sequence[Group]) -> bytes:
        """A signed message of these groups."""
        return self.signed(key, self.payload(epoch, counter, groups), groups)

    def payload(self, epoch: int, counter: int, groups: Sequence[Group]) -> bytes:
        """The header of these groups, as it is signed."""
        return encode_header(Header(epoch, counter, tuple(group.header for group in groups)))

    def signed(self, key: Key, payload: bytes, groups: Sequence[Group]) -> bytes:
        """A message of any payload with a valid signature, and the bodies of these groups."""
        envelope = seal(payload, issuer=key.issuer, sign=key.sign, network_id=self.manifest.network_id)
        return encode_message(envelope, tuple(group.body for group in groups))

    def flawless(self, key: Key, epoch: int, counter: int, groups: int) -> list[Group]:
        """Flawless groups of one round, `groups` of them."""
        return [self.honest(key, epoch, counter, k) for k in range(groups)]


class Threat(ABC):
    """One way to harm a swarm. The first paragraph of its docstring is the threat that lists and pages show."""

    id: ClassVar[str]
    layer: ClassVar[Layer]

    @classmethod
    def threat(cls) -> str:
        """The threat, as one line."""
        return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


class Attack(Threat):
    """One way to harm a swarm by what is sent in it, by keys that collude."""

    groups: ClassVar[int] = 4
    """Groups in a message. An honest node sends the same number at 4/4."""
    serves: ClassVar[bool] = True
    """True if the keys give the bodies that they signed to each peer that requests them."""
    answer_seconds: float = 0.0
    """Seconds for which a request for bodies waits."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def hear(self, message: bytes) -> None:
        """Take note of a rollout message of another peer. Called once per message."""

    @abstractmethod
    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The packets that the key sends now. Called for each key in turn, at every step of the attack."""

    def requests(self) -> Iterable[GetRequest]:
        """The requests that a key sends now to each peer that it is linked with, where bodies are fetched."""
        return ()

    def round(self, key: Key, epoch: int, group: Callable[[Key, int, int, int], Group]) -> Iterator[Packet]:
        """Yield the next round of the key, if it has a counter left: `group(key, epoch, counter, k)` for each k."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = [group(key, epoch, counter, k) for k in range(self.groups)]
            yield Packet(self.kit.message(key, epoch, counter, groups))
