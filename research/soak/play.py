"""Runs a soak: nodes, faults, attackers and samples side by side."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import trio

from research.router_lab import Host, Lab, Nat
from research.soak.member import LOOPBACK, Member
from sapo_protocol import LocalError, load_manifest, render_manifest

STAY = 2
"""Nodes without faults: growth is measured on them."""
FAULT_SECONDS = 60.0
"""Mean seconds between faults."""
AWAY_SECONDS, FROZEN_SECONDS = 30.0, 15.0
RECOVERY_SECONDS = 300.0
"""Seconds within which a node must play a round again."""
SAMPLE_SECONDS = 10.0
ATTACKS = ("false-claim", "malformed", "forgery", "copycat")
ATTACK_SECONDS = 240.0
"""Seconds after which an attacker is replaced by another with a fresh key."""
ATTACK_INTERVAL = 4.0
EPOCH_SECONDS, MAX_ROUNDS = 120, 1_000
LAB_ROUNDS = 2
"""Most rounds of a node in an epoch in the laboratory, so that one machine can run many nodes."""
ROUTERS = (None, Nat.PORT_RESTRICTED, None, Nat.SYMMETRIC, Nat.PORT_RESTRICTED, Nat.FULL_CONE)
"""The router of each node in the laboratory, in turn. None: it has an address of the Internet."""
_START_SECONDS = 300.0

ENDING = ("killed", "stopped")
"""Faults that end the node's process."""
FAULTS = (*ENDING, "learner killed", "sandbox killed", "frozen")


@dataclass(slots=True)
class Record:
    """The events of a soak."""

    faults: list[dict[str, Any]] = field(default_factory=list)
    """Of each fault the time, the node, its kind, and the seconds until the node played a round again."""
    deaths: list[dict[str, Any]] = field(default_factory=list)
    """Ends of processes without a fault."""
    attackers: int = 0


class Soak:
    """One swarm in a folder, for `seconds` seconds."""

    def __init__(self, folder: Path, *, nodes: int, seconds: float, seed: int, lab: Lab | None = None) -> None:
        """With `lab` the nodes run behind its routers, as ROUTERS says, and else on loopback."""
        self._folder = folder
        self._seconds = seconds
        self._rng = random.Random(seed)  # noqa: S311 - a simulation
        self._swarm = folder / "soak.toml"
        rounds = LAB_ROUNDS if lab else MAX_ROUNDS
        self._attack_interval = max(ATTACK_INTERVAL, EPOCH_SECONDS / rounds)  # no more rounds than a node may play
        starter = load_manifest("starter").restarted(
            name="soak",
            genesis=int(time.time()),
            epoch_seconds=EPOCH_SECONDS,
            max_rounds=rounds,
        )
        self._swarm.write_text(render_manifest(starter))
        self.members = [
            Member(f"node {number}", folder / f"node{number}", self._swarm, stays=number <= STAY, host=host)
            for number, host in zip(range(1, nodes + 1), _hosts(lab), strict=False)
        ]
        self.record = Record()
        self.began = 0.0
        self._expected: set[str] = set()
        """Members whose process a fault ended."""

    async def run(self, progress: Callable[[float], None]) -> None:
        """Run the soak; `progress` is called with the seconds that have passed. Raises LocalError where the nodes do
        not start.
        """
        async with trio.open_nursery() as nursery:
            known: tuple[str, ...] = ()
            for member in self.members:
                member.bootstrap = known
                nursery.start_soon(self._keep, member)
                if member.stays:
                    await self._until(member, started=True)
                    known = known or (member.address,)
            for member in self.members:
                await self._until(member, started=False)
            self.began = time.time()
            nursery.start_soon(self._trouble)
            nursery.start_soon(self._attack)
            nursery.start_soon(self._sample)
            while (over := time.time() - self.began) < self._seconds:
                progress(over)
                await trio.sleep(1)
            nursery.cancel_scope.cancel()

    async def _until(self, member: Member, *, started: bool) -> None:
        """Wait until a node has started, or has played a round."""
        with trio.move_on_after(_START_SECONDS) as patience:
            while not (member.address if started else member.step):
                await member.news.wait()
        if patience.cancelled_caught:
            raise LocalError(f"{member.name} did not start: {member.log} has what it said")

    async def _keep(self, member: Member) -> None:
        """Start a node again whenever it ends."""
        try:
            while True:
                await member.live()
                if member.name not in self._expected:
                    told = member.log.read_text(errors="replace")[-500:]
                    self.record.deaths.append({"at": time.time(), "node": member.name, "said": told})
                elif member.stopped:
                    await trio.sleep(AWAY_SECONDS)
                self._expected.discard(member.name)
        finally:
            if member.process is not None:
                member.process.kill()

    async def _trouble(self) -> None:
        """Cause one fault after another, each in a node that is not left alone."""
        guests = [member for member in self.members if not member.stays]
        ill: set[str] = set()

        async def suffer(member: Member, fault: str) -> None:
            ill.add(member.name)
            at, since, life, recovered = time.time(), trio.current_time(), member.starts, None
            await self._cause(member, fault)
            step = member.step
            with trio.move_on_after(RECOVERY_SECONDS):
                # A node that was told to stop still finishes its round, in its old life.
                while member.played_in <= life if fault in ENDING else member.step == step:
                    await member.news.wait()
                recovered = round(trio.current_time() - since, 1)
            # Whom the end of the soak found on its way back is not judged.
            self.record.faults.append({"at": at, "node": member.name, "fault": fault, "recovered": recovered})
            ill.remove(member.name)

        async with trio.open_nursery() as nursery:
            while guests:
                await trio.sleep(self._rng.expovariate(1 / FAULT_SECONDS))
                member, fault = self._rng.choice(guests), self._rng.choice(FAULTS)
                if member.running and member.name not in ill:
                    nursery.start_soon(suffer, member, fault)

    async def _cause(self, member: Member, fault: str) -> None:
        assert member.process is not None
        if fault in ENDING:
            self._expected.add(member.name)
            member.process.send_signal(signal.SIGKILL if fault == "killed" else signal.SIGINT)
        elif fault == "frozen":
            member.process.send_signal(signal.SIGSTOP)
            await trio.sleep(FROZEN_SECONDS)
            member.process.send_signal(signal.SIGCONT)
        else:
            for role, process in member.processes():
                with suppress(psutil.Error):
                    if fault == f"{role} killed":
                        process.kill()

    async def _attack(self) -> None:
        """Run two attackers at a time, each for a while and under a fresh key."""
        async with trio.open_nursery() as nursery:
            for turn in range(2):
                nursery.start_soon(self._attackers, turn)

    async def _attackers(self, turn: int) -> None:
        target = self.members[0]
        address = f"/ip4/{LOOPBACK}/tcp/{target.port}/p2p/{target.peer}"  # attacks go to loopback only
        while True:
            kind = ATTACKS[(self.record.attackers + turn) % len(ATTACKS)]
            self.record.attackers += 1
            command = target.here(
                *(sys.executable, "-P", "-m", "sapo_adversary.live", "--attack", kind, "--swarm", str(self._swarm)),
                *("--key", str(self._folder / f"attacker{self.record.attackers}.key")),
                *("--bootstrap", address, "--interval", str(self._attack_interval)),
            )
            with (self._folder / "attackers").open("ab") as log, trio.move_on_after(ATTACK_SECONDS):
                await trio.run_process(command, stdout=subprocess.DEVNULL, stderr=log, check=False, deliver_cancel=_end)

    async def _sample(self) -> None:
        with (self._folder / "samples.jsonl").open("a") as file:
            while True:
                for member in self.members:
                    for sample in await trio.to_thread.run_sync(member.sample):
                        file.write(json.dumps(sample) + "\n")
                    await trio.to_thread.run_sync(member.look)
                file.flush()
                await trio.sleep(SAMPLE_SECONDS)


def _hosts(lab: Lab | None) -> Iterator[Host | None]:
    for nat in cycle(ROUTERS):
        yield lab.host(lab.router(nat) if nat else None) if lab else None


async def _end(attacker: trio.Process) -> None:
    """Kill a process. It has nothing to lose, and on a busy machine a polite end takes too long."""
    attacker.kill()


def play(soak: Soak, progress: Callable[[float], None]) -> None:
    """Run a soak to its end."""
    trio.run(partial(soak.run, progress))
