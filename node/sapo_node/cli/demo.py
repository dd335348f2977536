"""`sapo-node demo`: runs three honest nodes and a malicious one as processes on loopback, and prints the results."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sapo_node.cli.demo_summary import Json, Member, print_summary, refused_by, seen_by, summarise
from sapo_protocol import LocalError, load_manifest, render_manifest

HONEST = 3
EPOCH_SECONDS, MAX_ROUNDS = 20, 240
"""Seconds of an epoch, and its most rounds. Epochs are short so that peers can become healthy within minutes."""
_START_SECONDS = 120.0
_POLLUTER_INTERVAL = 2.0


class Demo:
    """Runs the swarm and collects the JSON lines of its nodes."""

    def __init__(self, folder: Path, *, rounds: int, prompts: int, console: Console) -> None:
        self._folder = folder
        self._rounds = rounds
        self._prompts = prompts
        self._console = console
        self._swarm = folder / "demo.toml"
        self._log = (folder / "log").open("a+")
        starter = load_manifest("starter")
        demo = starter.restarted(
            name="demo", genesis=int(time.time()), epoch_seconds=EPOCH_SECONDS, max_rounds=MAX_ROUNDS
        )
        self._swarm.write_text(render_manifest(demo))
        self.members: list[Member] = []
        self.polluter = ""

    async def run(self) -> Json:
        """Run the whole demo and return its summary."""
        before = await self._evaluate(None)
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
        after = {member.name: await self._evaluate(member) for member in self.members}
        return summarise(self.members, self.polluter, before, after)

    async def _start(self, nursery: trio.Nursery) -> None:
        """Start all nodes. The first node is the bootstrap peer of the others."""
        (first,) = await self._start_members(nursery, [1], [])
        bootstrap = ["--bootstrap", first.session["addresses"][0]]
        # Started by its name: this package must not import the adversary package.
        command = [sys.executable, "-m", "sapo_adversary.live", "--swarm", str(self._swarm)]
        command += ["--key", str(self._folder / "polluter.key"), "--interval", str(_POLLUTER_INTERVAL), *bootstrap]
        polluter = await self._start_process(nursery, command)
        assert polluter.stdout is not None
        started = await polluter.stdout.receive_some()
        if not started:
            raise LocalError(f"the malicious node of the demo ended early: {self._said()}")
        self.polluter = json.loads(started)["peer_id"]
        await self._start_members(nursery, range(2, HONEST + 1), bootstrap)

    async def _start_members(self, nursery: trio.Nursery, numbers: Iterable[int], bootstrap: list[str]) -> list[Member]:
        members = []
        for number in numbers:
            folder = self._folder / f"node{number}"
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
            *(sys.executable, "-m", "sapo_node", name),
            *("--swarm", str(self._swarm), "--key", str(folder / "node.key"), "--state", str(folder)),
        ]

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
            member.external += event["external"]
        if "counts" in event:
            member.knows = event

    async def _show(self, live: Live) -> None:
        while True:
            live.update(self._table())
            await trio.sleep(0.5)

    def _table(self) -> Table:
        pages = "  ".join(member.session["page"] for member in self.members if member.session)
        table = Table(
            *("node", "round", "reward", "external trained", "accepted", "left out", "malicious node"),
            caption=f"the nodes' pages, while the demo runs: {pages}",
            caption_justify="left",
        )
        for member in self.members:
            polluter = seen_by(member, self.polluter)
            table.add_row(
                member.name,
                # A node that has played its rounds continues until the slowest node has played its own.
                f"{min(member.played, self._rounds)} of {self._rounds}",
                f"{member.last.get('reward', 0):.3f}",
                str(member.external),
                str(member.knows.get("counts", {}).get("accepted", 0)),
                str(sum(refused_by(member).values())),
                Text(f"{polluter['state']}, {polluter['trained_tokens']} tokens trained", style=_style(polluter)),
            )
        return table

    async def _evaluate(self, member: Member | None) -> Json:
        """Measure held-out pass@1 with the command `sapo-node eval`."""
        what = member.name if member else "the seed policy"
        self._console.print(f"evaluating {what} on held-out prompts …", style="dim")
        if member:
            command = self._command("eval", member.folder)
        else:
            command = [sys.executable, "-m", "sapo_node", "eval", "--swarm", str(self._swarm)]
        command += ["--prompts", str(self._prompts), "--json"]
        done = await trio.run_process(command, capture_stdout=True, check=False)
        if done.returncode:
            raise LocalError(f"{what} could not be evaluated; the line above says why")
        result: Json = json.loads(done.stdout)
        return result


def _style(polluter: Json) -> str:
    return "red" if polluter["state"] == "banned" else "yellow"


def run_demo(*, rounds: int, prompts: int, json_output: bool) -> None:
    """Run the demo. With `json_output` the last line on stdout is the summary as JSON."""
    console = Console(stderr=json_output)
    with tempfile.TemporaryDirectory(prefix="sapo-demo-") as folder:
        demo = Demo(Path(folder), rounds=rounds, prompts=prompts, console=console)
        summary = trio.run(demo.run)
    print_summary(summary, console)
    if json_output:
        click.echo(json.dumps(summary))
