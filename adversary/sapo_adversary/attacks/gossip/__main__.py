"""The attackers' process. It reads its task from standard input, prints `ready`, and starts at the next line.

It ends after the given seconds, or when its standard input ends.
"""

import json
import os
import random
import sys
from collections.abc import Mapping
from typing import Any

import trio

from sapo_adversary.attacks.catalogue import GOSSIP
from sapo_adversary.attacks.gossip import peer as _peer  # noqa: F401 - before the clock runs: libp2p takes seconds
from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_protocol import decode_manifest


async def attack(told: Mapping[str, Any]) -> None:
    """Attack until the input ends, at most for the given seconds, and print the report."""
    kit = GossipKit(
        topic=told["topic"],
        asking=told["asking"],
        honest=told["honest"],
        neighbours=told["neighbours"],
        seeds=[bytes.fromhex(seed) for seed in told["seeds"]],
        places=[(host, port) for host, port in told["places"]],
        manifest=decode_manifest(bytes.fromhex(told["manifest"])),
        epoch=told["epoch"],
        rng=random.Random(told["seed"]),  # noqa: S311 - simulation
    )
    played = GOSSIP[told["attack"]](kit, **told["options"])
    say({"event": "ready"})
    await heard()
    with trio.move_on_after(told["seconds"]):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(played.play)
            await heard()
            nursery.cancel_scope.cancel()
    say({"event": "over", "report": played.report()})


async def heard() -> str:
    """The next line of the input; empty at its end."""
    return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)  # type: ignore[call-arg]


def say(event: Mapping[str, Any]) -> None:
    """Print one event as a line."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.nice(5)  # on a busy machine the honest nodes come first
    trio.run(attack, json.loads(sys.stdin.readline()))
