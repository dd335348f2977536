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
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sapo_node.app.advice import EASY_SWARM
from sapo_node.app.config import Config
from sapo_node.cli.tables import reason_lines, short
from sapo_node.cli.terminal import Terminal, say_json
from sapo_node.observability.history import TAKEN
from sapo_node.trust.constants import PeerState
from sapo_protocol import LocalError, load_manifest, render_manifest

Json: TypeAlias = dict[str, Any]
BANNED = PeerState.BANNED.value
_WORST_FIRST = (BANNED, PeerState.PROBATION.value, PeerState.UNTRUSTED.value, PeerState.HEALTHY.value)

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
"""Columns of the table: the text that a node trained on, the text that it left out, and the malicious keys."""
_MALICIOUS_SECONDS = 2.0
"""Seconds between two messages of the band."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The model of the honest nodes, and the length of the demo."""

    model: str
    swarm: str
    rounds: int
    """Rounds of each honest node, in the complete swarm."""
    prompts: int
    """Held-out prompts per task of each evaluation."""

    @classmethod
    def of(cls, model: str | None, swarm: str | None, rounds: int | None, prompts: int | None) -> "Plan":
        """Return a plan. The model sets what is None: a round of a large one takes many times longer."""
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


@dataclass(slots=True)
class Member:
    """One honest node of the demo, and its newest reports."""

    name: str
    folder: Path
    process: trio.Process
    started: trio.Event = field(default_factory=trio.Event)
    session: Json = field(default_factory=dict)
    last: Json = field(default_factory=dict)
    """The event of the newest round."""
    knows: Json = field(default_factory=dict)
    """The newest event that has counts and peers."""
    rounds: list[tuple[float, int]] = field(default_factory=list)
    """For each round the Unix time of its end, and the number of external groups that it trained on."""
    alone: int = 0
    """Rounds that the node played before the swarm was complete."""

    @property
    def played(self) -> int:
        """Rounds that the node played in the complete swarm."""
        return max(0, int(self.last.get("step", 0)) - self.alone)

    @property
    def external(self) -> int:
        """External groups that the node trained on."""
        return sum(external for _, external in self.rounds)

    @property
    def tokens(self) -> int:
        """Tokens that the node trained on, its own and those of all peers."""
        external: int = sum(peer["trained_tokens"] for peer in self.knows.get("peers", ()))
        own: int = self.knows.get("own_tokens", 0)
        return own + external


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
            command = [
                *self._command(folder, "start"),
                "--listen",
                "/ip4/127.0.0.1/tcp/0",
                "--network",
                "manual",
                "--json",
            ]
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

    def _command(self, folder: Path, *name: str) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "sapo_node", *name),
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
        """Measure held-out pass@1 with `sapo-node model eval`."""
        what = member.name if member else "the untrained model"
        self._console.print(f"evaluating {what} on held-out prompts …", style="dim")
        if member:
            command = self._command(member.folder, "model", "eval")
        else:
            command = [sys.executable, "-P", "-m", "sapo_node", "model", "eval", "--base", *self._settings()]
        command += ["--prompts", str(self._plan.prompts), "--json"]
        done = await trio.run_process(command, capture_stdout=True, check=False)
        if done.returncode:
            raise LocalError(f"{what} could not be evaluated; the line above says why")
        result: Json = json.loads(done.stdout)
        return result


@dataclass(frozen=True, slots=True)
class FirstExternal:
    """The first external group of a node, counted from its contact with another honest node."""

    round: int
    seconds: float


def first_external(member: Member, members: Sequence[Member]) -> FirstExternal | None:
    """Return when a member first trained on an external group; None if it has not yet.

    Its contact with another honest node is the start of the later of the two.
    """
    starts = sorted(each.session["at"] for each in members if each.session)
    if not member.session or len(starts) == 1:
        return None
    contact = max(starts[1], member.session["at"])
    after = [(at, external) for at, external in member.rounds if at > contact]
    return next(
        (FirstExternal(number, at - contact) for number, (at, external) in enumerate(after, 1) if external), None
    )


def exchange_line(firsts: Sequence[FirstExternal | None]) -> str:
    """Return a line about when the nodes, strangers to each other, began to learn from each other."""
    began = [first for first in firsts if first]
    if not began:
        return "the honest nodes are strangers to each other; none has trained on external groups yet"
    rounds, seconds = max(each.round for each in began), max(each.seconds for each in began)
    return (
        f"{len(began)} of {len(firsts)} honest nodes, strangers to each other, learn from each other: "
        f"each trained on an external group within {rounds} rounds and {seconds:.0f} s of contact"
    )


def states_of(members: Sequence[Member], peers: Collection[str]) -> Counter[str]:
    """Return how many of the peers are in which state: the worst that one of the members gave to a peer."""
    views = [{peer["peer"]: peer["state"] for peer in member.knows.get("peers", ())} for member in members]
    untrusted = PeerState.UNTRUSTED.value  # also a peer that a node does not know yet
    return Counter(min((view.get(peer, untrusted) for view in views), key=_WORST_FIRST.index) for peer in peers)


def trained_on(member: Member, peers: Collection[str]) -> int:
    """Return how many tokens of the peers a node trained on."""
    return sum(peer["trained_tokens"] for peer in member.knows.get("peers", ()) if peer["peer"] in peers)


def refused_by(member: Member) -> dict[str, int]:
    """Return how many messages and groups a node refused or left out, by reason."""
    counts = member.knows.get("counts", {})
    return {name: count for name, count in counts.items() if name not in TAKEN}


def summarise(members: Sequence[Member], band: Collection[str], before: Json, after: Mapping[str, Json]) -> Json:
    """Return the summary. `band` holds the malicious keys. `before` and `after` hold the JSON of `model eval`,
    `after` by the name of the node.
    """
    refused: Counter[str] = Counter()
    for member in members:
        refused.update(refused_by(member))
    states = states_of(members, band)
    return {
        "honest": [_of_member(member, members, before, after[member.name]) for member in members],
        "malicious": {
            "keys": len(band),
            "states": dict(states),
            "trained_tokens": sum(trained_on(member, band) for member in members),
        },
        "accepted": sum(member.knows["counts"].get("accepted", 0) for member in members),
        "refused": dict(sorted(refused.items())),
    }


def _of_member(member: Member, members: Sequence[Member], before: Json, after: Json) -> Json:
    honest = {each.session["peer_id"] for each in members}
    first = first_external(member, members)
    return {
        "peer": member.session["peer_id"],
        **_heldout("before", before),
        **_heldout("after", after),
        "external_groups_trained": member.external,
        "external_share": trained_on(member, honest) / max(1, member.tokens),
        "first_external": first and {"round": first.round, "seconds": round(first.seconds, 1)},
        "trust": {peer["peer"]: peer["trust"] for peer in member.knows["peers"] if peer["peer"] in honest},
    }


def print_summary(summary: Json, console: Console) -> None:
    """Print a summary as a table and lines."""
    console.print("held-out pass@1 with 95 % intervals", style="italic")
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("honest\nnode", "\nheld-out before", "\nafter"):
        table.add_column(name)
    for name in ("external\ngroups", "external\ntokens"):
        table.add_column(name, justify="right")
    for node in summary["honest"]:
        table.add_row(
            short(node["peer"]),
            *(_measured(node, when) for when in ("before", "after")),
            str(node["external_groups_trained"]),
            f"{node['external_share']:.0%}",
        )
    console.print(table)
    firsts = [node["first_external"] and FirstExternal(**node["first_external"]) for node in summary["honest"]]
    shares = [node["external_share"] for node in summary["honest"]]
    console.print(f"{exchange_line(firsts)}; {min(shares):.0%} to {max(shares):.0%} of the tokens trained on")
    malicious = summary["malicious"]
    states = ", ".join(f"{count} {state}" for state, count in malicious["states"].items())
    tokens = malicious["trained_tokens"]
    console.print(f"{malicious['keys']} malicious keys: {states}; {tokens} of their tokens trained on")
    console.print(f"accepted {summary['accepted']} envelopes")
    for line in reason_lines(summary["refused"]):
        console.print(line)


def _heldout(when: str, measured: Json) -> Json:
    """Return the result of `eval` under the names that the summary has."""
    return {f"heldout_{when}": measured["pass_at_1"], f"heldout_{when}_interval": [measured["low"], measured["high"]]}


def _measured(node: Json, when: str) -> str:
    """Format the held-out pass@1 of a node, with its interval."""
    low, high = node[f"heldout_{when}_interval"]
    return f"{node[f'heldout_{when}']:.3f} ({low:.3f} to {high:.3f})"


def run_demo(plan: Plan, *, json_output: bool) -> None:
    """Run the demo. With `json_output` the last line on stdout is the summary as JSON."""
    console = Terminal(stderr=json_output)
    with tempfile.TemporaryDirectory(prefix="sapo-demo-") as folder:
        demo = Demo(Path(folder), plan, console=console)
        summary = trio.run(demo.run)
    print_summary(summary, console)
    if json_output:
        say_json(summary)
