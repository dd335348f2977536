"""Many honest peers at little cost: they sign and share as nodes do, but neither take groups in nor train.

Each has its own key, counters and tasks, and answers as well as one of the full nodes does at that time. The first of
them is on the network, linked with every full node. It forwards what the others and the attackers send, as any honest
peer does: each content once, and nothing whose bytes alone prove it invalid.
"""

import hashlib
import random
from collections.abc import Callable, Sequence

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.kit import Group, Key, Kit
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.learners import Learner
from sapo_adversary.simulator.oracle import Audit
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.gossip.seen import SETTLED_SECONDS, RecentIds, content_id
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.wire import WIRE, Wire
from sapo_node.net.in_memory import MemoryHub
from sapo_node.net.interface import Channel
from sapo_node.net.memory_gossip import LinkQuality
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.keys import Identity
from sapo_protocol import (
    Manifest,
    RemoteError,
    assign,
    decode_evidence,
    epoch_at,
    evidence_topic,
    prove_equivocation,
    rollouts_topics,
    topic_of,
)
from sapo_protocol.limits import MAX_EVIDENCE_BYTES

_LATENCY = 0.05
"""Seconds between the forwarder and each full node: the same for all, so that one sending arrives at one moment."""
_HEARTBEATS = 50
"""Moments of a round; an equal part of the crowd shares at each."""
_OFFSET = 0.017
"""Seconds between these moments and those at which nodes and attackers act: events of one moment have no order."""


def hub_of(simulation: Simulation) -> MemoryHub:
    """The network in memory of a simulation. With a crowd it is a star, whose centre is the forwarder of the crowd."""
    if simulation.crowd:
        return MemoryHub(seed=simulation.seed, quality=LinkQuality(_LATENCY, _LATENCY, simulation.loss), star=True)
    return MemoryHub(seed=simulation.seed, quality=LinkQuality(loss=simulation.loss), degree=simulation.degree or None)


class Crowd:
    """The honest peers of a simulation beside its full nodes."""

    def __init__(
        self,
        simulation: Simulation,
        manifest: Manifest,
        *,
        scorer: SharedScorer,
        hub: MemoryHub,
        clock: TrioClock,
        audit: Audit | None,
        wire: Wire = WIRE,
    ) -> None:
        self._manifest = manifest
        self._wire = wire
        self._scorer = scorer
        self._clock = clock
        self._audit = audit
        self._seconds = simulation.seconds
        self._pace, self._groups = simulation.nodes[0].round_seconds, simulation.nodes[0].local
        identities = [_identity(simulation, number) for number in range(simulation.crowd)]
        self.keys = [Key(identity.public_key, identity.sign) for identity in identities]
        self.forwarder = self.keys[0].peer
        self._rng = random.Random(f"crowd/{simulation.seed}")  # noqa: S311 - simulation
        self._kit = Kit(manifest, self.keys, scorer.solve, self._rng)
        self._evidence = evidence_topic(manifest)
        channels = dict.fromkeys(rollouts_topics(manifest), Channel(self._accept_evidence, manifest.max_message_bytes))
        channels[self._evidence] = Channel(self._hear_evidence, MAX_EVIDENCE_BYTES)
        self._network = hub.join(identities[0], channels, admit=lambda _: True, notify=lambda _: None)
        self._passed = RecentIds()
        self._outbox: dict[bytes, tuple[str, bytes]] = {}
        self._listeners: list[Callable[[bytes], None]] = []

    def listen(self, hear: Callable[[bytes], None]) -> None:
        """Have `hear` called with every message of the full nodes and with every forwarded message."""
        self._listeners.append(hear)

    async def play(self, learners: Sequence[Learner]) -> None:
        """Share until the end; each peer answers with the skill of one of the `learners`."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._network.run)
            await trio.sleep(_OFFSET)
            with trio.move_on_at(self._seconds):
                while True:
                    for heartbeat in range(_HEARTBEATS):
                        for number in range(heartbeat, len(self.keys), _HEARTBEATS):
                            self._share(self.keys[number], learners[number % len(learners)])
                        for _, (topic, data) in sorted(self._outbox.items()):
                            await self._network.publish(topic, data)
                        self._outbox.clear()
                        await trio.sleep(self._pace / _HEARTBEATS)
            nursery.cancel_scope.cancel()

    def pass_on(self, topic: str, data: bytes) -> None:
        """Forward a message to the full nodes, at the next of the moments at which the crowd sends."""
        content = content_id(data)
        now = trio.current_time()
        if not self._passed.has(content, now) and self._is_sound(topic, data):
            self._passed.add(content, now, SETTLED_SECONDS)
            self._send(topic, data, content)

    def _is_sound(self, topic: str, data: bytes) -> bool:
        return self._is_evidence(data) if topic == self._evidence else self._is_rollout(data)

    def _send(self, topic: str, data: bytes, content: bytes) -> None:
        for hear in self._listeners if topic != self._evidence else ():
            hear(data)
        self._outbox[content] = topic, data

    def _share(self, key: Key, learner: Learner) -> None:
        epoch = epoch_at(self._manifest, self._clock.now())
        counter = self._kit.counter(key, epoch)
        if counter is None:
            return
        rates = learner.examine(self._scorer, 1)
        groups = [self._answered(key, epoch, counter, k, rates) for k in range(self._groups)]
        message = self._kit.message(key, epoch, counter, groups)
        self._send(topic_of(self._manifest, key.issuer, epoch), message, content_id(message))

    def _answered(self, key: Key, epoch: int, counter: int, k: int, rates: dict[str, float]) -> Group:
        """The completions of one assigned task: as many correct as the policy has it, with honest claims."""
        task = assign(self._manifest, key.issuer, epoch, counter, k)
        rate = rates[task.spec.dataset]
        rewards = [self._rng.random() < rate for _ in range(self._manifest.completions)]
        solution = self._scorer.solve(task)
        texts = self._kit.answers(solution, rewards)
        if self._audit:
            self._audit.signed(key.peer, epoch, counter, k, texts)
        return self._kit.group(solution, texts, rewards)

    def _is_rollout(self, data: bytes) -> bool:
        try:
            self._wire.open_message(data, self._manifest)
        except RemoteError:
            return False
        return True

    def _is_evidence(self, data: bytes) -> bool:
        try:
            prove_equivocation(decode_evidence(data, self._manifest), self._manifest)
        except RemoteError:
            return False
        return True

    async def _accept_evidence(self, _sender: str, data: bytes) -> Verdict:
        """Hand a rollout of a full node to the listeners."""
        for hear in self._listeners:
            hear(data)
        return Verdict.ACCEPT

    async def _hear_evidence(self, _sender: str, _data: bytes) -> Verdict:
        return Verdict.ACCEPT


def _identity(simulation: Simulation, number: int) -> Identity:
    secret = hashlib.sha256(f"sapo/crowd/{simulation.seed}/{number}".encode()).digest()
    return Identity(Ed25519PrivateKey.from_private_bytes(secret))
