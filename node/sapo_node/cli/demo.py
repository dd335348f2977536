"""`sapo-node demo`: runs three honest nodes and a band of malicious keys on loopback, and prints the results.

The honest nodes name nobody in `trusted`: all peers are strangers to them. The band is one process with one libp2p host
and MALICIOUS_KEYS signing keys.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sapo_node.app.advice import EASY_SWARM
from sapo_node.app.config import Config
from sapo_node.cli.demo_summary import (
    BANNED,
    Json,
    Member,
    exchange_line,
    first_external,
    print_summary,
    refused_by,
    states_of,
    summarise,
    trained_on,
)
from sapo_node.cli.terminal import Terminal, say_json
from sapo_protocol import LocalError, load_manifest, render_manifest

HONEST, MALICIOUS_KEYS = 3, 64
EPOCH_SECONDS, MAX_ROUNDS = 20, 240
"""Seconds of an epoch, and its most rounds. Epochs are short so that peers can become healthy within minutes."""
MODEL_EPOCH_SECONDS = 180
"""Seconds of an epoch with another model than that of the package. Peers take rollouts of this epoch and the last, and
a round takes half a minute on two cores."""
SEED = "seed"
_START_SECONDS = 300.0
"""Seconds within which nodes that start at the same time must have loaded their models."""
_FIGURES = ("external\ngroups", "external\ntokens", "left\nout", "malicious\nkeys banned", "malicious\ntokens")
"""Columns of the table: what a node trained on, what it did not, and what the malicious keys came to."""
_MALICIOUS_SECONDS = 2.0
"""Seconds between two messages of the band."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the honest nodes train, and for how long."""

    model: str
    swarm: str
    rounds: int
    """Of each honest node, in the complete swarm."""
    prompts: int
    """Held-out prompts per task of each evaluation."""

    @classmethod
    def of(cls, model: str | None, swarm: str | None, rounds: int | None, prompts: int | None) -> "Plan":
        """Return a plan. What is None depends on the model: a round of a large one takes many times longer."""
        if (model or SEED) == SEED:
            return cls(SEED, swarm or Config().swarm, rounds or 120, prompts or 32)
        return cls(model or SEED, swarm or EASY_SWARM, rounds or 10, prompts or 16)

    @property
    def epoch_seconds(self) -> int:
        """Seconds of an epoch of the swarm."""
        return EPOCH_SECONDS if self.model == SEED else MODEL_EPOCH_SECONDS

    @property
    def config(self) -> str:
        """Settings of the honest nodes as TOML. A large model is evaluated only at the end, and the nodes share the
        cores.
        """
        if self.model == SEED:
            return ""
        return f"eval_every = 0\nthreads = {max(1, (os.cpu_count() or 1) // HONEST)}\n"


class Demo:
    """Runs the swarm and collects the JSON lines of its nodes."""

    def __init__(self, folder: Path, plan: Plan, *, console: Terminal) -> None:
        self._folder = folder
        self._plan = plan
        self._rounds = plan.rounds
        self._console = console
        self._swarm = folder / "demo.toml"
        self._config = folder / "config.toml"
        self._log = (folder / "log").open("a+")
        demo = load_manifest(plan.swarm).restarted(
            name="demo", genesis=int(time.time()), epoch_seconds=plan.epoch_seconds, max_rounds=MAX_ROUNDS
        )
        self._swarm.write_text(render_manifest(demo))
        self._config.write_text(plan.config)
        self.members: list[Member] = []
        self.band: list[str] = []
        """Peer ids of the malicious keys."""

    async def run(self) -> Json:
        """Run the whole demo and return its summary."""
        async with trio.open_nursery() as nursery:
            with Live(console=self._console, refresh_per_second=2, transient=False) as live:
                nursery.start_soon(self._show, live)
                await self._start(nursery)
                await self._play()
                for member in self.members:
                    member.process.terminate()
                for member in self.members:
                    await member.process.wait()
                live.update(self._table())
            nursery.cancel_scope.cancel()
        # The untrained model is evaluated last, so that the nodes of the demo begin to learn at once.
        after = {member.name: await self._evaluate(member) for member in self.members}
        return summarise(self.members, self.band, await self._evaluate(None), after)

    async def _start(self, nursery: trio.Nursery) -> None:
        """Start all nodes. The first node is the bootstrap peer of the others."""
        (first,) = await self._start_members(nursery, [1], [])
        bootstrap = ["--bootstrap", first.session["addresses"][0]]
        # Started by its name: this package must not import the adversary package.
        command = [sys.executable, "-P", "-m", "sapo_adversary.live", "--swarm", str(self._swarm)]
        command += ["--key", str(self._folder / "malicious.key"), "--keys", str(MALICIOUS_KEYS)]
        command += ["--interval", str(_MALICIOUS_SECONDS), *bootstrap]
        band = await self._start_process(nursery, command)
        assert band.stdout is not None
        started = b""
        while not started.endswith(b"\n"):
            part = await band.stdout.receive_some()
            if not part:
                raise LocalError(f"the malicious keys of the demo ended early: {self._said()}")
            started += part
        self.band = json.loads(started)["peers"]
        await self._start_members(nursery, range(2, HONEST + 1), bootstrap)

    async def _start_members(self, nursery: trio.Nursery, numbers: Iterable[int], bootstrap: list[str]) -> list[Member]:
        members = []
        for number in numbers:
            folder = self._folder / f"node{number}"
            folder.mkdir()
            command = [*self._command("start", folder), "--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns", "--json"]
            member = Member(f"node {number}", folder, await self._start_process(nursery, [*command, *bootstrap]))
            members.append(member)
            nursery.start_soon(self._listen, member)
        self.members += members
        with trio.move_on_after(_START_SECONDS):
            for member in members:
                await member.started.wait()
        self._require_alive()
        if not all(member.started.is_set() for member in members):
            raise LocalError(f"the demo's nodes did not start within {_START_SECONDS:.0f} s; this machine is too busy")
        return members

    async def _play(self) -> None:
        """Wait until each node has played its rounds in the complete swarm. All nodes run until the last is done."""
        for member in self.members:
            member.alone = member.last.get("step", 0)
        while any(member.played < self._rounds for member in self.members):
            self._require_alive()
            await trio.sleep(0.2)

    def _require_alive(self) -> None:
        ended = [member.name for member in self.members if member.process.poll() is not None]
        if ended:
            raise LocalError(f"{', '.join(ended)} of the demo ended early: {self._said()}")

    def _said(self) -> str:
        """Return the last line that a process of the demo logged."""
        self._log.seek(0)
        return (self._log.read().strip().splitlines() or ["it logged nothing"])[-1]

    async def _start_process(self, nursery: trio.Nursery, command: list[str]) -> trio.Process:
        """Start a child that ends with the demo. Its log goes to a file, so that it cannot cover the table."""
        process: trio.Process = await nursery.start(
            partial(trio.run_process, command, stdout=subprocess.PIPE, stderr=self._log, check=False)
        )
        return process

    def _command(self, name: str, folder: Path) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "sapo_node", name),
            *self._settings(),
            *("--key", str(folder / "node.key"), "--state", str(folder)),
        ]

    def _settings(self) -> list[str]:
        return ["--config", str(self._config), "--swarm", str(self._swarm), "--model", self._plan.model]

    async def _listen(self, member: Member) -> None:
        """Read the JSON lines of one node."""
        assert member.process.stdout is not None
        rest = b""
        async for chunk in member.process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(member, json.loads(line))

    def _take(self, member: Member, event: Json) -> None:
        if event["event"] == "started":
            member.session = event
            member.started.set()
        if event["event"] == "round":
            member.last = event
            member.rounds.append((event["at"], event["external"]))
        if "counts" in event:
            member.knows = event

    async def _show(self, live: Live) -> None:
        while True:
            live.update(self._table())
            await trio.sleep(0.5)

    def _table(self) -> Group:
        started = [member for member in self.members if member.session]
        honest = [member.session["peer_id"] for member in started]
        pages = "  ".join(member.session["page"] for member in started)
        exchange = exchange_line([first_external(member, self.members) for member in self.members])
        table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("node")
        for name in ("round", "reward", *_FIGURES):
            table.add_column(name, justify="right")
        for member in self.members:
            poison = trained_on(member, self.band)
            table.add_row(
                member.name,
                # A node that has played its rounds continues until the slowest node has played its own.
                f"{min(member.played, self._rounds)} of {self._rounds}",
                f"{member.last.get('reward', 0):.3f}",
                str(member.external),
                f"{trained_on(member, honest) / max(1, member.tokens):.0%}",
                str(sum(refused_by(member).values())),
                f"{states_of([member], self.band)[BANNED]} of {len(self.band)}",
                Text(str(poison), style="red" if poison else "green"),
            )
        return Group(table, exchange, Text(f"the nodes' pages, while the demo runs: {pages}", style="dim"))

    async def _evaluate(self, member: Member | None) -> Json:
        """Measure held-out pass@1 with the command `sapo-node eval`."""
        what = member.name if member else "the untrained model"
        self._console.print(f"evaluating {what} on held-out prompts …", style="dim")
        if member:
            command = self._command("eval", member.folder)
        else:
            command = [sys.executable, "-P", "-m", "sapo_node", "eval", "--base", *self._settings()]
        command += ["--prompts", str(self._plan.prompts), "--json"]
        done = await trio.run_process(command, capture_stdout=True, check=False)
        if done.returncode:
            raise LocalError(f"{what} could not be evaluated; the line above says why")
        result: Json = json.loads(done.stdout)
        return result


def run_demo(plan: Plan, *, json_output: bool) -> None:
    """Run the demo. With `json_output` the last line on stdout is the summary as JSON."""
    console = Terminal(stderr=json_output)
    with tempfile.TemporaryDirectory(prefix="sapo-demo-") as folder:
        demo = Demo(Path(folder), plan, console=console)
        summary = trio.run(demo.run)
    print_summary(summary, console)
    if json_output:
        say_json(summary)
