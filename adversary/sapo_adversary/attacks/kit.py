"""What attackers have at hand: keys, the answer to everything, and flawless messages to spoil. Bytes and
`sapo_protocol` only; nothing here knows how a node is built.
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
    """What can be worked out about an assigned task."""

    dataset: str
    question: str
    answer: str
    digest: bytes
    """Of question and answer, as an honest header carries it."""
    work: Callable[[random.Random], str]
    """Writes a right answer as a policy that has learnt the task does, a little differently each time."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a message says of one group: the header's part and the body."""

    header: GroupHeader
    body: bytes

    def claiming(self, claims: Iterable[bool]) -> "Group":
        """The same with other claims."""
        return replace(self, header=replace(self.header, claims=tuple(claims)))

    def carrying(self, body: bytes) -> "Group":
        """The same with another body, and its hash."""
        return Group(replace(self.header, body=hashlib.sha256(body).digest()), body)


@dataclass(frozen=True, slots=True)
class Packet:
    """Something to send."""

    data: bytes
    topic: Topic = "rollouts"
    to: tuple[str, ...] | None = None
    """Peer ids; None sends to everybody that is connected."""


class Kit:
    """One attacker's means: `keys` that it may use as it likes, and `solve`, which knows every answer."""

    def __init__(
        self, manifest: Manifest, keys: Sequence[Key], solve: Callable[[Assignment], Solution], rng: random.Random
    ) -> None:
        self.manifest = manifest
        self.keys = keys
        self.solve = solve
        self.rng = rng
        self._counters: dict[tuple[bytes, int], int] = {}

    def counter(self, key: Key, epoch: int) -> int | None:
        """The next unused counter of a key in an epoch; None when there is none left."""
        counter = self._counters.get((key.issuer, epoch), 0)
        if counter >= self.manifest.max_rounds:
            return None
        self._counters[key.issuer, epoch] = counter + 1
        return counter

    def task(self, key: Key, epoch: int, counter: int, k: int) -> Solution:
        """The task that the protocol assigns, with its answer."""
        return self.solve(assign(self.manifest, key.issuer, epoch, counter, k))

    def right(self, task: Solution) -> str:
        """A right answer, worded a little differently each time."""
        return f"I find {self.rng.randrange(1_000_000)}. <answer>{task.answer}</answer>"

    def wrong(self) -> str:
        """An answer to nothing."""
        return f"I find {self.rng.randrange(1_000_000)}. <answer>unknown</answer>"

    def answers(self, task: Solution, rewards: Iterable[bool]) -> list[str]:
        """One text for each completion, right where its reward is."""
        return [self.right(task) if reward else self.wrong() for reward in rewards]

    @property
    def half(self) -> tuple[bool, ...]:
        """Every other completion right: the most advantage that a group can have."""
        return tuple(number % 2 == 0 for number in range(self.manifest.completions))

    def group(self, task: Solution, texts: Sequence[str], claims: Iterable[bool]) -> Group:
        """A group of these texts with these claims."""
        body = encode_body(Body(tuple(Completion(text, Finish.STOP) for text in texts)))
        return Group(GroupHeader(task.digest, tuple(claims), hashlib.sha256(body).digest()), body)

    def honest(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        """A flawless group, half right, as only one who knows the answer can always have it."""
        task = self.task(key, epoch, counter, k)
        return self.group(task, self.answers(task, self.half), self.half)

    def lie(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        """Wrong answers only, of which half are claimed right."""
        return self.group(self.task(key, epoch, counter, k), [self.wrong() for _ in self.half], self.half)

    def sealed(self, message: bytes) -> Sealed | None:
        """The envelope of a message, not yet verified; None where it is no message."""
        try:
            envelope, _ = decode_message(message, self.manifest)
            return parse_envelope(envelope, network_id=self.manifest.network_id)
        except RemoteError:
            return None

    def heard(self, message: bytes) -> Iterator[tuple[Assignment, GroupHeader, Body]]:
        """Task, header and texts of each group of somebody's message; none where it is no message."""
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
        """A message of any payload with a true signature, and the bodies of these groups."""
        envelope = seal(payload, issuer=key.issuer, sign=key.sign, network_id=self.manifest.network_id)
        return encode_message(envelope, tuple(group.body for group in groups))

    def flawless(self, key: Key, epoch: int, counter: int, groups: int) -> list[Group]:
        """So many flawless groups of one round."""
        return [self.honest(key, epoch, counter, k) for k in range(groups)]


class Threat(ABC):
    """One way to harm a swarm. Its first line of documentation names it."""

    id: ClassVar[str]
    layer: ClassVar[Layer]

    @classmethod
    def threat(cls) -> str:
        """What it threatens, in a sentence."""
        return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


class Attack(Threat):
    """One way to harm a swarm by what is sent in it, by keys that collude."""

    groups: ClassVar[int] = 4
    """In a message: what an honest node sends at 4/4."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def hear(self, message: bytes) -> None:
        """Somebody's rollout message, once each."""

    @abstractmethod
    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """What one of its keys sends now. Called for each key in turn, at every beat of the attack."""
