"""Measures how many of the bodies that nodes draw come in time, while some peers answer no request for bodies.

    python -m research.fetching --peers 100 --stalling 0.25 --seed 1
    python -m research.fetching --peers 40 --stalling 0 --watching 0.25

All peers are real nodes without a learner, on a network in memory and virtual time. In a round of ROUND_SECONDS each
publishes an envelope of GROUPS groups, and draws turns. A stalling peer forwards gossip, and keeps each request
for bodies open until the asker gives up. It draws nothing. Its own bodies are not counted, since no other peer has
them. A watching peer does as the others do, and notes who requests which bodies of it. Watching peers share their
notes.

Prints JSON: the share of the groups whose bodies came within FETCH_SECONDS, the number of these groups, the seconds
that a turn waited, and for each node the requests for bodies in a minute and the bytes of their answers in a second.
With watching peers also the share of the other peers' turns of which they know: of the turns that drew what watching
peers signed, and of all others.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import quantiles
from typing import Any

import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.kit import Group, Key, Kit
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.memo import memoised
from sapo_node.app.config import Config
from sapo_node.app.exchange import pull
from sapo_node.app.node import PARTS, Parts, build_node
from sapo_node.app.state import SCHEMA
from sapo_node.groups.book import Turn
from sapo_node.groups.wire import WIRE
from sapo_node.ingest.fetch import FETCH_SECONDS
from sapo_node.net.in_memory import MemoryHub
from sapo_node.net.interface import Channel, PeerInfo
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.trust.constants import Tier
from sapo_protocol import (
    GetRequest,
    LocalError,
    Manifest,
    decode_request,
    encode_message,
    epoch_at,
    load_manifest,
    open_message,
    peer_id,
    topic_of,
)

ROUND_SECONDS, ROUNDS = 30.0, 5
GROUPS = 4
"""Groups of an envelope."""
DEGREE = 6
"""Links that a joining peer makes, so that peers have twice as many on average."""
STALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """The rollouts that each node of a swarm publishes and draws."""

    turns: int = 2
    """Envelopes whose groups a node draws in a round."""
    text_bytes: int = 1_000
    """Bytes of a completion: a message with its bodies has some 32 kB."""
    rounds: int = ROUNDS


@dataclass(slots=True)
class Figures:
    """The turns of honest nodes, and the requests for bodies of all."""

    turns: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds, groups whose bodies were missing, and those that came."""
    requests: int = 0
    answered: int = 0
    """Bytes of answers for bodies."""
    watching: frozenset[str] = frozenset()
    noted: set[tuple[str, bytes]] = field(default_factory=set)
    """The peers and envelope ids of the requests that watching peers got."""
    drawn: set[tuple[str, bytes, str]] = field(default_factory=set)
    """The peers, envelope ids and issuers of turns whose bodies were missing."""


class Peer:
    """One node of the swarm."""

    def __init__(
        self,
        rng: random.Random,
        manifest: Manifest,
        hub: MemoryHub,
        scorer: SharedScorer,
        parts: Parts,
    ) -> None:
        identity = Identity(Ed25519PrivateKey.from_private_bytes(rng.randbytes(32)))
        clock = TrioClock(10 * manifest.epoch_seconds)
        database = Database(None, SCHEMA)
        self.manifest, self.rng, self.load, self.stalls = manifest, rng, Load(), False
        self.key = Key(identity.public_key, identity.sign)
        self.kit = Kit(manifest, [self.key], scorer.solve, rng)
        self.node = build_node(
            Config(),
            SwarmContext(manifest, clock, identity, rng),
            database=database,
            counters=Counters(database, manifest, now=clock.now(), key_is_new=True, rng=rng),
            scorer=scorer,
            policy=None,
            on_fatal=_fail,
            parts=parts,
        )
        self._requests = self.node.requests(self._peers)
        self.network = hub.join(
            identity,
            self.channels(),
            requests=replace(self._requests, answer=self._answer_or_stall),
            admit=self.node.admits,
            notify=self.node.notice,
        )

    def channels(self) -> Mapping[str, Channel]:
        """The channels of the node."""
        return self.node.channels

    def _peers(self) -> Sequence[PeerInfo]:
        return self.network.peers()

    async def _answer_or_stall(self, peer: str, data: bytes) -> bytes | None:
        if self.stalls and is_for_bodies(data):
            await trio.sleep(STALL_SECONDS)
            return None
        return await self._requests.answer(peer, data)

    async def play(self, figures: Figures, stalling: frozenset[str]) -> None:
        """Publish an envelope and draw turns in each round."""
        await trio.sleep(self.rng.uniform(0, ROUND_SECONDS))
        for _ in range(self.load.rounds):
            await self._publish()
            if not self.stalls:
                for _ in range(self.load.turns):
                    self._draw(figures, stalling)
            await trio.sleep(ROUND_SECONDS)

    async def _publish(self) -> None:
        epoch = epoch_at(self.manifest, self.node.swarm.clock.now())
        counter = self.kit.counter(self.key, epoch)
        if counter is None:
            raise LocalError("the epoch has no counter left: play fewer rounds")
        message = self.kit.message(self.key, epoch, counter, [self._group(epoch, counter, k) for k in range(GROUPS)])
        rollout = open_message(message, self.manifest)
        self.node.message_store.put(rollout)
        bare = encode_message(rollout.opened.envelope, (None,) * GROUPS)
        await self.publish(topic_of(self.manifest, self.key.issuer, epoch), bare)

    async def publish(self, topic: str, message: bytes) -> None:
        """Publish a message."""
        await self.network.publish(topic, message)

    def _group(self, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(self.key, epoch, counter, k)
        count = self.load.text_bytes // 2
        texts = [self.rng.randbytes(count).hex() + text for text in self.kit.answers(task, self.kit.half)]
        return self.kit.group(task, texts, self.kit.half)

    def _draw(self, figures: Figures, stalling: frozenset[str]) -> None:
        turn = self.node.book.draw(Tier.STRANGER)
        if turn is None:
            return
        begun, missing, issuer = trio.current_time(), turn.missing, peer_id(turn.rollout.opened.issuer)
        if missing:
            figures.drawn.add((self.node.peer_id, turn.rollout.opened.envelope_id, issuer))

        def done(fetched: Turn) -> None:
            came = (missing & ~fetched.missing).bit_count()
            self.node.book.lottery.credit(issuer, came)
            if issuer not in stalling:
                figures.turns.append((trio.current_time() - begun, missing.bit_count(), came))

        self.node.fetcher.begin(turn, done)


def _fail(error: LocalError) -> None:
    raise error


def is_for_bodies(data: bytes) -> bool:
    """Return whether a request wants bodies."""
    return bool(bodies_wanted(data))


def bodies_wanted(data: bytes) -> list[bytes]:
    """Return the ids of the envelopes whose bodies a request wants."""
    request = decode_request(data)
    return [each.envelope_id for each in request.want if each.bodies] if isinstance(request, GetRequest) else []


class CountingHub(MemoryHub):
    """Counts requests for bodies and the bytes of their answers."""

    figures = Figures()

    async def ask(self, source: str, target: str, request: bytes) -> bytes:
        """Carry a request and its answer."""
        wanted = bodies_wanted(request)
        if not wanted:
            return await super().ask(source, target, request)
        self.figures.requests += 1
        if target in self.figures.watching:
            self.figures.noted.update((source, each) for each in wanted)
        answer = await super().ask(source, target, request)
        self.figures.answered += len(answer)
        return answer


async def play(peers: int, stalling: float, watching: float, seed: int, parts: Parts) -> dict[str, Any]:
    """Play a swarm, and return its figures."""
    manifest = replace(load_manifest("starter"), genesis=0, inline_bytes=1_000, max_message_bytes=2**17)
    hub, scorer = CountingHub(seed=seed, degree=DEGREE), SharedScorer()
    hub.figures = figures = Figures()
    rng = random.Random(seed)  # noqa: S311 - simulation
    swarm = [Peer(random.Random(rng.random()), manifest, hub, scorer, parts) for _ in range(peers)]  # noqa: S311
    for each in rng.sample(swarm, round(stalling * peers)):
        each.stalls = True
    stalled = frozenset(each.node.peer_id for each in swarm if each.stalls)
    figures.watching = frozenset(each.node.peer_id for each in rng.sample(swarm, round(watching * peers)))
    async with trio.open_nursery() as around:
        for each in swarm:
            await around.start(each.network.run)
            around.start_soon(pull, each.node, each.network)
        begun = trio.current_time()
        async with trio.open_nursery() as playing:
            for each in swarm:
                playing.start_soon(each.play, figures, stalled)
        seconds = trio.current_time() - begun
        around.cancel_scope.cancel()
    return {
        "peers": peers,
        "stalling": stalling,
        "seed": seed,
        **summary_of(figures.turns),
        "requests_a_minute": round(60 * figures.requests / peers / seconds, 1),
        "answers_kb_a_second": round(figures.answered / 1_000 / peers / seconds, 2),
        **(watched(figures) if watching else {}),
    }


def watched(figures: Figures) -> dict[str, Any]:
    """The share of the turns of other peers that watching peers know of, by who signed what was drawn."""
    known: Counter[bool] = Counter()
    turns: Counter[bool] = Counter()
    for peer, envelope_id, issuer in figures.drawn:
        if peer not in figures.watching:
            turns[issuer in figures.watching] += 1
            known[issuer in figures.watching] += (peer, envelope_id) in figures.noted
    return {
        "watching_peers": len(figures.watching),
        "known_of_their_own": round(known[True] / turns[True], 4),
        "known_of_others": round(known[False] / turns[False], 4),
    }


def summary_of(turns: Sequence[tuple[float, int, int]]) -> dict[str, Any]:
    """The share of groups whose bodies came in time, their number, and the seconds that turns waited."""
    counts: Counter[str] = Counter()
    for took, missing, came in turns:
        counts["groups"] += missing
        counts["came"] += came if took <= FETCH_SECONDS else 0
    by_percent = quantiles((took for took, _, _ in turns), n=100)
    return {
        "came": round(counts["came"] / counts["groups"], 4),
        "groups": counts["groups"],
        "seconds": {"median": round(by_percent[49], 2), "p95": round(by_percent[94], 2)},
    }


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--stalling", type=float, default=0.25, help="Share of the peers that stall.")
    parser.add_argument("--watching", type=float, default=0.0, help="Share of the peers that watch.")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with memoised(WIRE) as wire:
        playing = partial(play, given.peers, given.stalling, given.watching, given.seed, replace(PARTS, wire=wire))
        found = trio.run(playing, clock=trio.testing.MockClock(autojump_threshold=0))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
