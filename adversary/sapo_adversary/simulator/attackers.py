"""Attackers on the network in memory: all keys of one specification collude. Each key is a peer of the network, or
`links` of them are and carry the messages of all.

Where the simulation has a crowd, attackers have no links: the forwarder of the crowd brings their messages to every
node, if the bytes are valid.
"""

import hashlib
import random
from contextlib import suppress
from functools import partial
from itertools import cycle

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.kit import Key, Kit, Packet
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.crowd import Crowd
from sapo_adversary.simulator.simulation import AttackerSpec, Simulation, end_of
from sapo_node.gossip.verdict import Verdict
from sapo_node.ingest.store import MessageStore
from sapo_node.net.in_memory import MemoryHub, MemoryNetwork
from sapo_node.net.interface import AskFailed, Channel, Requests
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.keys import Identity
from sapo_protocol import (
    GetRequest,
    Manifest,
    RemoteError,
    decode_request,
    encode_delivery,
    encode_message,
    encode_request,
    epoch_at,
    evidence_topic,
    open_message,
    pull_protocol,
    rollouts_topics,
    topic_of,
)
from sapo_protocol.limits import MAX_EVIDENCE_BYTES


class Band:
    """The peers of one `AttackerSpec`."""

    def __init__(
        self,
        simulation: Simulation,
        number: int,
        manifest: Manifest,
        *,
        scorer: SharedScorer,
        hub: MemoryHub,
        clock: TrioClock,
        crowd: Crowd | None,
    ) -> None:
        """`number` is the place of the specification among the simulation's attackers."""
        self.spec: AttackerSpec = simulation.attackers[number]
        self._manifest = manifest
        self._hub = hub
        self._clock = clock
        self._end = end_of(self.spec, simulation.seconds)
        self._evidence = evidence_topic(manifest)
        identities = _identities(simulation, number)
        self.keys = [_key(identity) for identity in identities]
        rng = random.Random(f"attack/{simulation.seed}/{number}")  # noqa: S311 - simulation
        kit = Kit(manifest, self.keys, scorer.solve, rng)
        self._attack = ATTACKS[self.spec.attack](kit, **self.spec.options)
        self._crowd = crowd
        self._inline_bytes = manifest.inline_bytes
        self._message_store = MessageStore(manifest)
        self._networks: dict[Key, MemoryNetwork] = {}
        if crowd:
            crowd.listen(self._attack.hear)
        else:
            linked = identities[: self.spec.links or None]
            joined = [self._join(identity, listens=not place) for place, identity in enumerate(linked)]
            self._networks = dict(zip(self.keys, cycle(joined), strict=False))

    def _join(self, identity: Identity, *, listens: bool) -> MemoryNetwork:
        rollouts = Channel(partial(self._take, listens), self._manifest.max_message_bytes)
        channels = dict.fromkeys(rollouts_topics(self._manifest), rollouts)
        channels[self._evidence] = Channel(partial(self._take, False), MAX_EVIDENCE_BYTES)
        requests = Requests(pull_protocol(self._manifest), self._answer)
        return self._hub.join(identity, channels, requests=requests, admit=lambda _: True, notify=lambda _: None)

    async def _take(self, listens: bool, _sender: str, data: bytes) -> Verdict:  # noqa: FBT001
        """Forward what arrives, as honest peers do; one peer listens for all."""
        if listens:
            self._attack.hear(data)
        return Verdict.ACCEPT

    async def _answer(self, _peer: str, data: bytes) -> bytes | None:
        """Give a peer the messages that it requests and that these keys signed, if the attack serves bodies."""
        request = decode_request(data)
        if not isinstance(request, GetRequest):
            return None
        await trio.sleep(self._attack.answer_seconds)
        found = map(self._message_store.message, request.want if self._attack.serves else ())
        return encode_delivery([message for message in found if message is not None])

    async def play(self) -> None:
        """Join, act key by key, and leave."""
        await trio.sleep(self.spec.joins)
        async with trio.open_nursery() as nursery:
            for network in set(self._networks.values()):
                await nursery.start(network.run)
            with trio.move_on_at(self._end):
                while True:
                    for key in self.keys:
                        self._act(key)
                        if self._inline_bytes < self._manifest.max_message_bytes:
                            self._request(self._networks[key], nursery)
                        await trio.sleep(self.spec.acts_every / len(self.keys))
            nursery.cancel_scope.cancel()

    def _request(self, network: MemoryNetwork, nursery: trio.Nursery) -> None:
        """Send the requests of the attack, and wait for no answer."""
        for request in self._attack.requests():
            for peer in network.reachable():
                nursery.start_soon(_ask, network, peer, encode_request(request))

    def _act(self, key: Key) -> None:
        epoch = epoch_at(self._manifest, self._clock.now())
        for packet in self._attack.act(key, epoch):
            topic = self._evidence if packet.topic == "evidence" else topic_of(self._manifest, key.issuer, epoch)
            if self._crowd:
                self._crowd.pass_on(topic, packet.data)
            else:
                network = self._networks[key]
                network.send(topic, self._without_bodies(packet), packet.to or network.reachable())

    def _without_bodies(self, packet: Packet) -> bytes:
        """The bytes to send: as an honest publisher does, a long message leaves out its bodies, which peers request."""
        if packet.topic == "evidence" or len(packet.data) <= self._inline_bytes:
            return packet.data
        try:
            rollout = open_message(packet.data, self._manifest)
        except RemoteError:
            return packet.data
        self._message_store.put(rollout)
        return encode_message(rollout.opened.envelope, (None,) * len(rollout.bodies))


async def _ask(network: MemoryNetwork, peer: str, request: bytes) -> None:
    with suppress(AskFailed):
        await network.ask(peer, request)


def keys_of(simulation: Simulation, number: int) -> list[Key]:
    """The keys of the attackers of one specification, by its place among those of the simulation."""
    return [_key(identity) for identity in _identities(simulation, number)]


def insiders(simulation: Simulation) -> list[str]:
    """The peer ids of attackers that are trusted."""
    bands = [number for number, spec in enumerate(simulation.attackers) if spec.trusted]
    return [key.peer for number in bands for key in keys_of(simulation, number)]


def _identities(simulation: Simulation, number: int) -> list[Identity]:
    places = range(simulation.attackers[number].count)
    seeds = [hashlib.sha256(f"sapo/attacker/{simulation.seed}/{number}/{place}".encode()).digest() for place in places]
    return [Identity(Ed25519PrivateKey.from_private_bytes(seed)) for seed in seeds]


def _key(identity: Identity) -> Key:
    return Key(identity.public_key, identity.sign)
