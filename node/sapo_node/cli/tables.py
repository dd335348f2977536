"""The terminal view: one screen that shows whether the node learns, from which peers, and what it refused."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, get_args

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from sapo_node.groups.record import TaskAnswers
from sapo_node.observability.condition import condition_of, countdown, counted
from sapo_node.observability.explain import moment
from sapo_node.observability.history import ACCEPTED, EVIDENCE, TAKEN, VERIFIED, Curve
from sapo_node.observability.overview import Kind, Overview, PeerView, kind_of, unit_of
from sapo_node.observability.stored import EvaluationFacts, Level, Notice, Round, SessionFacts, Shards
from sapo_node.observability.tasks import TaskView
from sapo_node.training.round import Phase
from sapo_node.trust.constants import HEALTHY_AFTER

_BLOCKS = " ▁▂▃▄▅▆▇█"
T = TypeVar("T")

_COLUMNS: Mapping[str, Callable[[Round], str]] = {
    "round": lambda each: str(each["step"]),
    "reward": lambda each: f"{each['reward']:.3f}",
    "informative": lambda each: f"{each['informative']}/{each['local']}",
    "external": lambda each: str(each["external"]),
    "seconds": lambda each: f"{sum(each['seconds'].values()):.1f}",
    "weight": lambda each: figure(each.get("external_weight"), ".2f"),
    "entropy": lambda each: figure(each.get("entropy"), ".2f"),
    "length": lambda each: figure(each.get("mean_length"), ".0f"),
    "cut": lambda each: figure(each.get("truncated"), ".0%"),
    "gradient": lambda each: figure(each.get("grad_norm"), ".2f"),
}
"""Columns of the table of rounds. A narrow terminal shows only the first."""
_ROOMY = 40
"""Lines of a terminal from which the reward curve has four rows in place of three."""
_WIDE = 140
"""Columns of a terminal from which `peers` shows whole peer ids."""
_ROUNDS, _PEERS = 6, 8
"""Rows of the tables of rounds and of peers, at most."""
_STATE_STYLE = {"healthy": "green", "untrusted": "cyan", "probation": "yellow", "banned": "red"}
_LEVEL_STYLE: dict[Level, str] = {"attention": "bold yellow", "info": "bold green"}


def short(peer: str) -> str:
    """Return the last eight characters of a peer id. All peer ids begin alike; their ends differ."""
    return f"…{peer[-8:]}"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the screen."""

    content: RenderableType
    least: int = 0
    """Lines that it keeps for as long as other parts have lines to give."""
    at_once: bool = False
    """It gives all lines beyond `least` or none: half a chart shows nothing."""


class Screen:
    """A node in a terminal: its condition first, then the notices that need a person, then the rest.

    In a terminal of `height` lines the tables lose rows first, then parts disappear. `doing` is the line about the
    node's current activity. Without `height` everything is shown.
    """

    def __init__(
        self, view: Overview, *, runs: bool = True, doing: Text | None = None, height: int | None = None
    ) -> None:
        self._view = view
        self._runs = runs
        self._doing = doing
        self._height = height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the parts that have room."""
        parts = [part for part in self._parts(options.max_width) if part]
        lines = [console.render_lines(part.content, options, pad=False) for part in parts]
        keep = list(map(len, lines))
        excess = sum(keep) - (self._height or sum(keep))
        for to_least in (True, False):
            # The parts stand in the order of their importance, but for the figures of the head.
            for number in reversed(range(len(parts))):
                least = parts[number].least if to_least else 0
                room = keep[number] - least
                given = room if parts[number].at_once and excess > 0 else min(excess, room)
                if given > 0:
                    keep[number] -= given
                    excess -= given
        for part_lines, kept in zip(lines, keep, strict=True):
            for line in part_lines[:kept]:
                yield from line
                yield Segment.line()

    def _parts(self, width: int) -> Iterator[_Part | None]:
        """Yield all parts from top to bottom. A lower part loses lines earlier."""
        view, now = self._view, time.time()
        condition = condition_of(view, runs=self._runs, now=now)
        advice = f". {condition.advice}" if condition.advice else ""
        yield _Part(Text.assemble((condition.sentence, _LEVEL_STYLE[condition.level]), advice), least=4)
        notices = view.session.get("notices") or _of_alarms(view)
        yield _Part(_notice_lines(notices), least=3) if notices else None
        yield _Part(self._doing, least=1) if self._doing else None
        waits = waits_lines(view, now)
        yield _Part(Text("\n").join(waits), least=1) if waits else None
        yield _Part(_head(view), least=2)
        yield _Part(answer_table(view.answers), least=6) if view.answers else None
        advice_on_tasks = [each.advice for each in view.tasks if each.advice]
        yield _Part(Text("\n".join(advice_on_tasks), style="yellow"), least=2) if advice_on_tasks else None
        if view.curve:
            is_roomy = self._height is None or self._height >= _ROOMY
            yield _Part(chart(view.curve, rows=4 if is_roomy else 3), least=1, at_once=True)
            if view.evaluations:
                yield _Part(evaluation_line(view.evaluations), least=1)
            yield _Part(round_table(view.rounds[-_ROUNDS:], width=width), least=2)
        yield _Part(task_table(view.tasks)) if view.tasks else None
        yield _Part(_peers(view, width), least=3)
        yield _Part(_counts(view), least=1)
        yield _Part(_exchange(view))


def _of_alarms(view: Overview) -> list[Notice]:
    """Return the alarms about learning, newest first. A node that has stopped keeps them."""
    return [Notice(at=alarm.at, level="info", text=str(alarm)) for alarm in view.health_alarms]


def _notice_lines(notices: Sequence[Notice]) -> Text:
    """Return the notices, each with its time. Those that need a person come first."""
    style: dict[Level, str] = {"attention": "yellow", "info": "dim"}
    return Text("\n").join(Text(f"{moment(each['at'])} {each['text']}", style[each["level"]]) for each in notices)


def waits_lines(view: Overview, now: float) -> list[Text]:
    """Return a line with a countdown for each thing that the node waits for at the Unix time `now`."""
    waits = view.session.get("waits", ())
    return [Text(f"waits {countdown(each['until'] - now)} for {each['what']}", "yellow") for each in waits]


def _exchange(view: Overview) -> Text:
    """Return a line with the gain from other nodes, and one with the rollouts that peers fetched by request."""
    exchange = view.exchange
    text = Text()
    if exchange.from_others is not None:
        teachers = ", ".join(f"{short(peer)} {share:.0%}" for peer, share in exchange.teachers)
        text.append("gained ", "bold").append(f"{exchange.from_others:.0%} of positive advantage")
        text.append(f": {teachers}\n" if teachers else " from peers\n")
    text.append("helped ", "bold").append(f"{counted(exchange.fetchers, 'peer')} fetched ")
    text.append(f"{counted(exchange.fetched, 'rollout')} by request")
    return text.append("; readers by gossip are not counted", "dim")


def _head(view: Overview) -> Text:
    session = view.session
    lines = Text(f"swarm {session.get('swarm', '')} ({session.get('network_id', '')[:16]})   ")
    lines.append(f"connected {len(session.get('connected', ()))}   ")
    lines.append(f"rollouts to verify {session.get('waiting', 0)}{_part_heard(session)}")
    lines.append(f"\n{session.get('peer_id', '')}", "bold")
    if page := session.get("page"):
        lines.append(f"\n{page}", style=f"cyan link {page}")
    return lines


def _part_heard(session: SessionFacts) -> str:
    """Return how many shards the node subscribes to; empty if it subscribes to all."""
    shards = session.get("shards", Shards(followed=(), all=0))
    heard = len(shards["followed"])
    return f"   hears {heard} of {shards['all']} shards" if heard < shards["all"] else ""


def task_table(tasks: Sequence[TaskView]) -> Table:
    """Return a table of what the model learns from its own groups of each task."""
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("task")
    for name in ("pass rate", "informative", "groups since one"):
        table.add_column(name, justify="right")
    for each in tasks:
        style = "yellow" if each.advice else ""
        rates = (f"{each.pass_rate:.0%}", f"{each.informative:.0%}", str(each.quiet_groups))
        table.add_row(each.task, *rates, style=style)
    return table


def answer_table(answers: list[TaskAnswers]) -> Table:
    """Return a table of the groups that a contributor shared. No node reports which groups it trained on."""
    table = Table(
        *("task", "groups shared", "informative", "completions", "correct"),
        expand=True,
        caption="Nodes learn from groups with correct and incorrect completions. "
        "Nodes do not report what they trained on.",
        caption_justify="left",
    )
    for task in answers:
        table.add_row(
            task.dataset,
            str(task.groups),
            str(task.informative),
            str(task.completions),
            f"{task.right} ({task.right / task.completions:.0%})",
        )
    return table


def _peers(view: Overview, width: int) -> RenderableType:
    if not view.peers:
        return Text("no peers known yet", style="dim")
    table = peer_table(view, view.peers[:_PEERS], width=width)
    if view.strangers_share is None:
        return table
    return Group(table, Text(f"strangers may fill {view.strangers_share:.0%} of the external groups", style="dim"))


def peer_table(view: Overview, peers: Sequence[PeerView], *, width: int) -> Table:
    """Return a table of peers with their state, their groups, and their share of all trained tokens. A narrow one has
    fewer columns.
    """
    total = view.own_tokens + view.other_tokens
    connected = set(view.session.get("connected", ()))
    columns: dict[str, Callable[[PeerView], str | Text]] = {
        "peer": lambda peer: short(peer.peer) + (" ●" if peer.peer in connected else ""),
        "state": lambda peer: Text(peer.state, style=_STATE_STYLE[peer.state]),
        "groups trained on": lambda peer: str(peer.trained_groups),
        "ready": lambda peer: str(peer.waiting),
        "of tokens": lambda peer: f"{peer.trained_tokens / total:.1%}" if total else "-",
        "tier": lambda peer: peer.tier,
        "trust": lambda peer: f"{peer.trust:.2f}",
        "to healthy": earned,
    }
    widths = {"peer": 11, "state": 9, "tier": 8}
    return fitted_table(columns, peers, widths=widths, width=width, left=("peer", "state", "tier"))


def earned(peer: PeerView) -> str:
    """Return how many groups have counted toward the state `healthy`, of those that it takes; a dash once it is."""
    return "-" if peer.state == "healthy" else f"{peer.earned} of {HEALTHY_AFTER}"


def decision_table(view: Overview, *, width: int) -> Table:
    """Return a table of all peers with their state, who decided it, why, since when and until when."""
    connected = set(view.session.get("connected", ()))
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("peer", "state", "by"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    for name in ("since", "until"):
        table.add_column(name, no_wrap=True)
    for name in ("trust", "groups\ntrained on"):
        table.add_column(name, justify="right", no_wrap=True)
    for peer in view.peers:
        table.add_row(
            (peer.peer if width >= _WIDE else short(peer.peer)) + (" ●" if peer.peer in connected else ""),
            Text(peer.state, style=_STATE_STYLE[peer.state]),
            peer.decided_by,
            peer.why,
            moment(peer.since) if peer.since else "-",
            moment(peer.until) if peer.until else "-",
            f"{peer.trust:.2f}",
            str(peer.trained_groups),
        )
    return table


def tier_line(view: Overview) -> Text:
    """Return a line about the places of each tier in the queue."""
    share = view.strangers_share
    share_said = "" if share is None else f". Strangers may fill {share:.0%} of the external groups"
    return Text(
        "The node keeps places in its queue for friends and proven peers, and verifies their rollouts first. From "
        f"strangers it draws at random: a connection first, then a peer on it{share_said}.",
        style="dim",
    )


def _counts(view: Overview) -> RenderableType:
    text = Text.assemble(
        *(("accepted ", "bold"), f"{counted(view.counts.get(ACCEPTED, 0), 'rollout')}; "),
        *(("verified ", "bold"), f"{counted(view.counts.get(VERIFIED, 0), 'group')} of them"),
    )
    if banned_by_evidence := view.counts.get(EVIDENCE, 0):
        text.append(f", evidence against {banned_by_evidence} peers")
    counts = {name: count for name, count in view.counts.items() if name not in TAKEN and count}
    return Text("\n").join([text, *reason_lines(counts)])


def reason_lines(counts: Mapping[str, int]) -> list[Text]:
    """Return a line for each kind of reason why messages and groups were not taken, from their counts by reason."""
    kinds = {
        kind: {name: count for name, count in sorted(counts.items()) if kind_of(name) == kind}
        for kind in get_args(Kind)
    }
    lines = []
    for kind, of_kind in kinds.items():
        if of_kind or kind == "left out":
            reasons = ", ".join(f"{name} {counted(count, unit_of(name))}" for name, count in of_kind.items())
            style = "bold red" if kind == "refused" else "bold"
            lines.append(Text.assemble((f"{kind} ", style), reasons or "nothing"))
    return lines


def chart(curve: Curve, *, rows: int = 4) -> Text:
    """Return one line of figures, and below it the reward curve as columns from 0 to its maximum, with axes."""
    text = Text.assemble(
        ("reward ", "bold"),
        f"at first {curve.first:.3f}, best {curve.best:.3f}, ",
        (f"now {curve.now:.3f}", "bold"),
        (f"   a column is {curve.rounds} round{'s' * (curve.rounds > 1)}", "dim"),
    )
    top = max(*curve.means, 0.01)
    for row in reversed(range(rows)):
        label = f"{top:.2f} ┤" if row == rows - 1 else "0.00 ┤" if row == 0 else "     │"
        columns = "".join(_column(mean / top * rows - row) for mean in curve.means)
        text.append(f"\n{label}", "dim")
        text.append(columns, "green")
    return text


def _column(filled: float) -> str:
    """Return the character that fills one row of a column. `filled` is a share; it is clamped to 0 to 1."""
    steps = len(_BLOCKS) - 1
    return _BLOCKS[round(min(max(filled, 0.0), 1.0) * steps)]


def evaluation_line(evaluations: Sequence[EvaluationFacts]) -> Text:
    """Return a line with the last and the first evaluation on held-out prompts."""
    first, last = evaluations[0], evaluations[-1]
    text = Text.assemble(
        ("held-out ", "bold"),
        (f"{last['pass_at_1']:.3f}", "bold"),
        f" ({last['low']:.3f} to {last['high']:.3f}) after round {last['step']}",
    )
    if last is not first:
        text.append(f", {first['pass_at_1']:.3f} after round {first['step']}", "dim")
    return text


def activity(phase: Phase | None, seconds: float) -> Text:
    """Return the phases of the round with the current one marked, and its duration in seconds."""
    if phase is None:
        return Text("between rounds", "dim")
    if phase == "evaluate":  # between two rounds, or before the first
        return Text.assemble(("● evaluate", "bold cyan"), f"   answers held-out prompts   {seconds:.0f} s")
    phases = [each for each in get_args(Phase) if each != "evaluate"]
    at = phases.index(phase)
    return Text.assemble(
        ("this round", "bold"),
        *((f"  ✓ {each}", "green") for each in phases[:at]),
        (f"  ● {phase}", "bold cyan"),
        *((f"  · {each}", "dim") for each in phases[at + 1 :]),
        f"   {seconds:.0f} s",
    )


def round_table(rounds: Sequence[Round], *, width: int) -> Table:
    """Return a table with one row of metrics for each round, the newest first."""
    return fitted_table(_COLUMNS, rounds[::-1], width=width)


def fitted_table(
    columns: Mapping[str, Callable[[T], str | Text]],
    rows: Sequence[T],
    *,
    width: int,
    left: Collection[str] = (),
    widths: Mapping[str, int] = MappingProxyType({}),
) -> Table:
    """Return a table with the first columns that fit into `width`. A column is as wide as its heading unless `widths`
    says more. Columns are aligned right, but for those in `left`.
    """
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    shown: list[Callable[[T], str | Text]] = []
    for name, cell in columns.items():
        width -= max(len(name), widths.get(name, 0)) + 1
        if width < -1 and shown:  # the last column needs no space after it
            break
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
        shown.append(cell)
    for row in rows:
        table.add_row(*(cell(row) for cell in shown))
    return table


def figure(value: float | None, form: str) -> str:
    """Format a number; a dash for None."""
    return "-" if value is None else format(value, form)
