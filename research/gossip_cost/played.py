"""Plays a swarm of real nodes in memory and on virtual time, and counts what each of them receives.

    python -m research.gossip_cost.played --peers 100 --text-bytes 1000 --seed 1

Gossip, requests for bodies, pulls and their answers are those of nodes; nobody learns or verifies. Each node publishes
an envelope in each round of ROUND_SECONDS, fetches the bodies of TURNS turns, and requests missing messages as it does
every 15 s. The figures are those of the last round. Bytes are what streams carry: each RPC, request or answer counts
STREAM_BYTES for the frames of yamux and noise beside its own. TCP and IP are not counted.

Prints JSON: for each node, the bytes that it receives in a second as messages, as other gossip, as requests and
answers for bodies and as pulls; the copies of a message; the seconds until half and 99 % of the nodes have a message;
and the share of the fetched bodies that came within FETCH_SECONDS.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import trio
import trio.testing

from research.fetching import ROUND_SECONDS, Figures, Load, Peer, is_for_bodies, summary_of
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.memo import memoised
from sapo_node.app.exchange import pull
from sapo_node.app.node import PARTS, Parts
from sapo_node.gossip.rpc import decode
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.wire import WIRE
from sapo_node.net.dialer import ENOUGH
from sapo_node.net.in_memory import MemoryHub
from sapo_node.net.interface import Channel, Handle
from sapo_protocol import load_manifest

TURNS = 8
"""Turns of a node in a round: with GROUPS groups each, two for each group that it trains on."""
STREAM_BYTES = 33
"""Bytes of yamux (12), noise (18) and the length (3) for each frame on a stream."""
SETTLING_SECONDS = 30.0
"""Seconds until meshes have settled, before anybody publishes."""


@dataclass(slots=True)
class Received:
    """The bytes that all nodes received since the counting began."""

    since: float = float("inf")
    by_kind: Counter[str] = field(default_factory=Counter)
    """Bytes."""
    copies: int = 0
    sent: dict[bytes, float] = field(default_factory=dict)
    """By message: when its author published it."""
    delays: list[float] = field(default_factory=list)
    """Seconds from the publication of a message to its first copy at a node."""

    def add(self, kind: str, count: int) -> None:
        if trio.current_time() >= self.since:
            self.by_kind[kind] += count + STREAM_BYTES


class CountingHub(MemoryHub):
    """Counts what nodes receive."""

    received = Received()

    def carry(self, source: str, target: str, stream: int, frame: bytes) -> None:
        """Send an RPC."""
        messages = [message.ByteSize() for message in decode(frame).publish]
        self.received.add("messages" if messages else "control", len(frame))
        self.received.copies += len(messages) if trio.current_time() >= self.received.since else 0
        super().carry(source, target, stream, frame)

    async def ask(self, source: str, target: str, request: bytes) -> bytes:
        """Carry a request and its answer."""
        kind = "bodies" if is_for_bodies(request) else "pulls"
        self.received.add(kind, len(request))
        answer = await super().ask(source, target, request)
        self.received.add(kind, len(answer))
        return answer


class TimedPeer(Peer):
    """Notes when messages come."""

    received = Received()

    def channels(self) -> Mapping[str, Channel]:
        """The channels of the node, which note the time."""
        return {
            topic: replace(channel, handle=partial(self._take, channel.handle))
            for topic, channel in super().channels().items()
        }

    async def _take(self, handle: Handle, sender: str, data: bytes) -> Verdict:
        begun = self.received.sent.get(data, 0.0)
        if begun >= self.received.since:
            self.received.delays.append(trio.current_time() - begun)
        return await handle(sender, data)

    async def publish(self, topic: str, message: bytes) -> None:
        """Publish a message, and note the time."""
        self.received.sent[message] = trio.current_time()
        await super().publish(topic, message)


async def play(peers: int, load: Load, seed: int, parts: Parts) -> dict[str, Any]:
    """Play a swarm, and return its figures."""
    manifest = replace(load_manifest("starter"), genesis=0, inline_bytes=1_000, max_message_bytes=2**17)
    hub, scorer = CountingHub(seed=seed, degree=ENOUGH), SharedScorer()
    rng = random.Random(seed)  # noqa: S311 - simulation
    swarm = [TimedPeer(random.Random(rng.random()), manifest, hub, scorer, parts) for _ in range(peers)]  # noqa: S311
    received, figures = Received(), Figures()
    hub.received = received
    async with trio.open_nursery() as around:
        for each in swarm:
            each.received, each.load = received, load
            await around.start(each.network.run)
            around.start_soon(pull, each.node, each.network)
        await trio.sleep(SETTLING_SECONDS)
        received.since = trio.current_time() + (load.rounds - 1) * ROUND_SECONDS
        async with trio.open_nursery() as playing:
            for each in swarm:
                playing.start_soon(each.play, figures, frozenset())
            await trio.sleep(load.rounds * ROUND_SECONDS)
            playing.cancel_scope.cancel()
        around.cancel_scope.cancel()
    per_node = {kind: round(count / peers / ROUND_SECONDS) for kind, count in sorted(received.by_kind.items())}
    delays = sorted(received.delays)
    return {
        "peers": peers,
        "text_bytes": load.text_bytes,
        "seed": seed,
        "bytes_per_second": sum(per_node.values()),
        "by_kind": per_node,
        "copies": round(received.copies / len(delays), 2),
        "seconds_to_half": round(delays[len(delays) // 2], 2),
        "seconds_to_99": round(delays[int(0.99 * len(delays))], 2),
        **summary_of(figures.turns),
    }


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--text-bytes", type=int, default=1_000, help="Bytes of each of the 32 completions of a round.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    load = Load(TURNS, given.text_bytes, given.rounds)
    with memoised(WIRE) as wire:
        playing = partial(play, given.peers, load, given.seed, replace(PARTS, wire=wire))
        found = trio.run(playing, clock=trio.testing.MockClock(autojump_threshold=0))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
