"""Show the nodes of this machine, what one did, and why: `nodes`, `status`, `why`."""

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import click
from rich.table import Table
from rich.text import Text

from sapo_node.app.config import Config
from sapo_node.app.state import StateFolder, is_running, pid_of, reading, state_folders
from sapo_node.cli.commands.options import NODE, SectionedCommand, as_json, database_of, option, settings, view_of
from sapo_node.cli.tables import Screen, figure, short
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.observability import explain
from sapo_node.observability.condition import condition_of, counted
from sapo_node.observability.history import History
from sapo_node.observability.overview import KINDS, overview
from sapo_node.observability.stored import METRICS
from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt

_POLL_SECONDS = 0.5
_SHOWN_CHARACTERS = 40
"""Characters of a swarm's name and of an address in the table of nodes, at most."""

_WORDS = "\b\nwhat was not trained on:\n" + "\n".join(f"  {kind:<16}{means}" for kind, means in KINDS.items())
_KEYS = f"{_WORDS}\n\n\b\nmetrics of a round:\n" + "\n".join(
    f"  {name:<16}{each.meaning}" for name, each in METRICS.items()
)


@click.command(cls=SectionedCommand, epilog=_KEYS)
@settings(*NODE)
@option("--rounds", is_flag=True, help="Print the metrics of each round instead, one JSON object per line.")
@option("--follow", is_flag=True, help="As --rounds, then print each new round until Ctrl-C.")
@as_json
def status(config: Config, *, rounds: bool, follow: bool, json_output: bool) -> None:
    """Show how a node on this machine is and what it has done. The node may be running or stopped.

    `sapo-node nodes` shows all nodes of this machine.

    \b
    sapo-node status --follow | jq .reward
    pandas.read_json("rounds.jsonl", lines=True)     after sapo-node status --rounds > rounds.jsonl
    """  # noqa: D301 - click reads the backspace
    if rounds or follow:
        with database_of(config) as database:
            _print_rounds(History(database), follow=follow)
        return
    view, runs = view_of(config)
    if json_output:
        condition = condition_of(view, runs=runs, now=time.time())
        say_json({"condition": condition.as_dict(), **view.as_dict(), "running": runs})
    else:
        terminal, started = Terminal(), view.session.get("started")
        since = Text(f"running since {explain.moment(started)}", "dim") if runs and started else None
        terminal.print(Screen(view, runs=runs, doing=since))
        for address in view.session.get("addresses", ()):
            terminal.print(address, style="dim", highlight=False, soft_wrap=True)  # to be copied


def _print_rounds(history: History, *, follow: bool) -> None:
    step = 0
    with suppress(KeyboardInterrupt):
        while True:
            for each in history.rounds_after(step):
                say_json(each)
                step = each["step"]
            if not follow:
                return
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One state on this machine, and the node that runs on it."""

    state: str
    """The state folder of the key in the swarm."""
    peer_id: str
    swarm: str
    running: bool
    pid: int | None
    round: int
    """Step of the policy; 0 if the node does not train."""
    reward: float | None
    """Mean of the last 20 rounds."""
    peers: int
    """Connected peers."""
    page: str
    """Without its token; `sapo-node status` has none either."""
    error: str
    """The error of reading the state; empty if there is none."""


def facts_of(folder: StateFolder) -> NodeFacts:
    """Return the facts of one state folder."""
    runs = is_running(folder)
    empty = NodeFacts(
        state=str(folder.path),
        peer_id=folder.path.name,
        swarm=folder.path.parent.name.rpartition("-")[0],
        running=runs,
        pid=pid_of(folder) if runs else None,
        round=0,
        reward=None,
        peers=0,
        page="",
        error="",
    )
    try:
        with reading(folder) as database:
            view = overview(database, peers=0)
    except LocalError as error:
        return replace(empty, error=str(error))
    rounds = view.rounds
    return replace(
        empty,
        round=rounds[-1]["step"] if rounds else 0,
        reward=sum(each["reward"] for each in rounds) / len(rounds) if rounds else None,
        peers=len(view.session.get("connected", ())) if runs else 0,
        page=view.session.get("page", "") if runs else "",
    )


@click.command(cls=SectionedCommand)
@settings("state")
@as_json
def nodes(config: Config, *, json_output: bool) -> None:
    """Show the nodes of this machine. Each key and swarm with a state is one line.

    `reward` is the mean of the last 20 rounds, and `peers` the number of connected peers. To look closer at a node,
    give its key and swarm: `sapo-node status --key KEY --swarm SWARM`.

    \b
    sapo-node nodes
    sapo-node nodes --json | jq .page
    """  # noqa: D301 - click reads the backspace
    found = sorted(map(facts_of, state_folders(config.states)), key=lambda each: not each.running)
    if json_output:
        for each in found:
            say_json(asdict(each))
        return
    terminal = Terminal()
    if found:
        terminal.print(_table(found))
    terminal.print(Text(f"{counted(len(found), 'state')} in {config.states}", "dim"), soft_wrap=True)
    for each in found:
        if each.error:
            terminal.print(Text(f"{each.state}: {each.error}", "red"), soft_wrap=True)


def _table(found: list[NodeFacts]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("node", "swarm"):
        table.add_column(name, no_wrap=True)
    for name in ("pid", "round", "reward", "peers"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("page", overflow="fold")
    for each in found:
        ends = "cannot be read" if each.error else each.page or ("no page" if each.running else "stopped")
        table.add_row(
            short(each.peer_id),
            excerpt(each.swarm, _SHOWN_CHARACTERS),
            str(each.pid or "-"),
            str(each.round),
            figure(each.reward, ".3f"),
            str(each.peers) if each.running else "-",
            excerpt(ends, _SHOWN_CHARACTERS),
        )
    return table


@click.command(cls=SectionedCommand, epilog=_WORDS)
@click.argument("envelope_id")
@settings(*NODE)
@as_json
def why(config: Config, *, envelope_id: str, json_output: bool) -> None:
    """Explain what the node did with each group of a rollout. It says why, and what would change that.

    ENVELOPE_ID is in hexadecimal, as the dashboard shows it. Its first 6 characters are enough. A node remembers its
    last 2,000 groups and 5,000 refusals.
    """
    with database_of(config) as database:
        told = explain.envelope(database, envelope_id)
    say_json(told.as_dict()) if json_output else say(told.text)
