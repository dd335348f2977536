"""Starts many relays at once, all with one bootstrap peer, and measures how soon each is connected to four peers.

    python -m research.meeting --nodes 24
    python -m research.meeting --nodes 24 --apart       each node in a loopback network of its own

With --apart the packets of a node leave from 127.0.0.1 and the node listens elsewhere, as with two interfaces.
Prints JSON: seconds until the last node listens, from then until the last one has TARGET_PEERS peers, the connections
of each node at the end, and the memory (MB) and CPU (percent of a core) of its two processes while nothing happens.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
import trio

from sapo_node.net.interface import TARGET_PEERS
from sapo_protocol import load_manifest, render_manifest

_START_SECONDS, _MEET_SECONDS = 300.0, 120.0
"""Longest time until all listen, and from then until all have met."""
IDLE_SECONDS = 30.0
"""Seconds for which memory and CPU are measured."""


@dataclass(slots=True)
class Relay:
    """One `sapo-node start --no-train`, and what its lines said."""

    folder: Path
    command: list[str]
    listens: float = 0.0
    """Time at which it listened, in seconds of trio's clock."""
    met: float = 0.0
    """Time at which it first had TARGET_PEERS peers."""
    address: str = ""
    peers: set[str] = field(default_factory=set)
    process: trio.Process | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        self.folder.mkdir()
        with (self.folder / "stderr").open("wb") as log:
            self.process = await trio.lowlevel.open_process(self.command, stdout=subprocess.PIPE, stderr=log)
        stdout = self.process.stdout
        assert stdout is not None
        rest = b""
        try:
            async for chunk in stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        finally:
            self.process.kill()

    def _take(self, event: dict[str, Any]) -> None:
        words = str(event.get("text", "")).split()
        if event["event"] == "started":
            self.listens, self.address = trio.current_time(), event["addresses"][0]
        elif words[:2] == ["connected", "to"]:
            self.peers.add(words[2])
        elif words[:1] == ["lost"]:
            self.peers.discard(words[1].rstrip(":"))
        if len(self.peers) >= TARGET_PEERS and not self.met:
            self.met = trio.current_time()

    def processes(self) -> Iterator[psutil.Process]:
        """Its main process, then its sandbox."""
        assert self.process is not None
        main = psutil.Process(self.process.pid)
        yield main
        yield from main.children()


async def play(folder: Path, nodes: int, *, apart: bool) -> dict[str, Any]:
    """Start a bootstrap peer and then `nodes` - 1 relays at once; return the figures."""
    swarm = folder / "swarm.toml"
    manifest = load_manifest("starter").restarted(
        name="meeting", genesis=int(time.time()), epoch_seconds=600, max_rounds=1_000
    )
    swarm.write_text(render_manifest(manifest))

    def relay(number: int, *bootstrap: str) -> Relay:
        place = folder / str(number)
        host = f"127.{number}.0.1" if apart else "127.0.0.1"
        command = [
            *(sys.executable, "-P", "-m", "sapo_node", "start", "--no-train", "--json", "--network", "manual"),
            *("--dashboard", "off", "--swarm", str(swarm), "--key", str(place / "key"), "--state", str(place)),
            *("--listen", f"/ip4/{host}/tcp/0"),
        ]
        return Relay(place, command + [word for address in bootstrap for word in ("--bootstrap", address)])

    async with trio.open_nursery() as nursery:
        first = relay(1)
        nursery.start_soon(first.run)
        with trio.fail_after(_START_SECONDS):
            while not first.listens:  # noqa: ASYNC110 - its lines have no event
                await trio.sleep(0.1)
        began = trio.current_time()
        relays = [first, *(relay(number, first.address) for number in range(2, nodes + 1))]
        for each in relays[1:]:
            nursery.start_soon(each.run)
        with trio.fail_after(_START_SECONDS):
            while not all(each.listens for each in relays):  # noqa: ASYNC110
                await trio.sleep(0.1)
        listened = max(each.listens for each in relays)
        with trio.move_on_after(_MEET_SECONDS):
            while not all(each.met for each in relays):  # noqa: ASYNC110
                await trio.sleep(0.1)
        met = [each for each in relays if each.met]
        idle = await _idle(relays)
        found = {
            "listened_seconds": round(listened - began, 1),
            "met_seconds": round(max(each.met for each in met) - listened, 1),
            "each_met_seconds": sorted(round(each.met - max(began, each.listens), 1) for each in met),
            "never_met": len(relays) - len(met),
            "connections": sorted(len(each.peers) for each in relays),
            **idle,
        }
        nursery.cancel_scope.cancel()
    return found


async def _idle(relays: list[Relay]) -> dict[str, Any]:
    """Return the mean memory and CPU of a node over IDLE_SECONDS, by process."""
    with suppress(psutil.Error):
        pairs = [list(each.processes()) for each in relays]
        before = [[sum(each.cpu_times()[:2]) for each in pair] for pair in pairs]
        await trio.sleep(IDLE_SECONDS)
        after = [[sum(each.cpu_times()[:2]) for each in pair] for pair in pairs]
        full = [[each.memory_full_info() for each in pair] for pair in pairs]
        return {
            name: {
                "rss_mb": round(mean(pair[at].rss for pair in full) / 1e6, 1),
                "pss_mb": round(mean(pair[at].pss for pair in full) / 1e6, 1),
                "cpu_percent": round(
                    100 * mean(b[at] - a[at] for a, b in zip(before, after, strict=True)) / IDLE_SECONDS, 2
                ),
            }
            for at, name in enumerate(("main", "sandbox"))
        }
    return {}


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sapo-meeting-") as name:
        found = trio.run(lambda: play(Path(name), given.nodes, apart=given.apart))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
