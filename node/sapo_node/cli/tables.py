"""The terminal view: one screen that shows whether the node learns, from which peers, and what it refused."""

import time
from collections.abc import Mapping
from typing import get_args

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sapo_node.cli.progress import chart, evaluation_lines, round_table
from sapo_node.groups.types import TaskAnswers
from sapo_node.observability.explain import moment
from sapo_node.observability.history import ACCEPTED, EVIDENCE, TAKEN, VERIFIED
from sapo_node.observability.overview import Kind, Overview, PeerView, kind_of
from sapo_node.observability.stored import SessionFacts, Shards
from sapo_node.trust import decisions

_ROOMY = 40
"""Lines of a terminal from which the view shows more rounds, peers and notices."""
_WIDE = 140
"""Columns of a terminal from which `peers` shows whole peer ids."""
_STATE_STYLE = {"healthy": "green", "untrusted": "cyan", "probation": "yellow", "banned": "red"}


def short(peer: str) -> str:
    """Return the last eight characters of a peer id. All peer ids begin alike; their ends differ."""
    return f"…{peer[-8:]}"


def render(view: Overview, *, doing: Text | None = None, height: int = _ROOMY) -> RenderableType:
    """Return a screen for a terminal of `height` lines. `doing` is the line about the node's current activity."""
    is_roomy = height >= _ROOMY
    rounds, peers, notices = (6, 8, 5) if is_roomy else (1, 2, 1)
    parts = [_head(view)]
    if view.answers:
        parts.append(answer_table(view.answers))
    if view.curve:
        parts += [
            chart(view.curve, rows=4 if is_roomy else 3),
            *evaluation_lines(view),
            round_table(view.rounds[-rounds:]),
        ]
    if doing:
        parts.append(doing)
    parts += waits_lines(view, time.time())
    return Group(
        *parts, _peers(view, peers, with_share=is_roomy), _exchange(view), _counts(view), _notices(view, notices)
    )


def waits_lines(view: Overview, now: float) -> list[Text]:
    """Return a line with a countdown for each thing that the node waits for at the Unix time `now`."""
    waits = view.session.get("waits", ())
    return [Text(f"waits {countdown(each['until'] - now)} for {each['what']}", "yellow") for each in waits]


def countdown(seconds: float) -> str:
    """Format seconds as minutes and seconds, or hours and minutes; never below zero."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes}:{rest:02}"


def _exchange(view: Overview) -> Text:
    """Return a line that says what the node gained from others, and one that says who fetched what it shared."""
    exchange = view.exchange
    text = Text()
    if exchange.from_others is not None:
        teachers = ", ".join(f"{short(peer)} {share:.0%}" for peer, share in exchange.teachers)
        text.append("gained ", "bold").append(f"{exchange.from_others:.0%} of positive advantage")
        text.append(f": {teachers}\n" if teachers else " from others\n")
    peers = f"{exchange.fetchers} peer{'s' * (exchange.fetchers != 1)}"
    text.append("helped ", "bold").append(f"{peers} fetched {exchange.fetched} rollouts")
    return text.append(" by request; readers by gossip are not counted", "dim")


def address_lines(view: Overview) -> Text:
    """Return the addresses that other nodes can dial, one a line. Print them unwrapped, so that they can be copied."""
    return Text("\n".join(view.session.get("addresses", ())))


def _head(view: Overview) -> RenderableType:
    session = view.session
    connected = len(session.get("connected", ()))
    lines = Text()
    lines.append(f"{session.get('peer_id', '')}\n", style="bold")
    lines.append(f"swarm {session.get('swarm', '')} ({session.get('network_id', '')[:16]})   ")
    lines.append(f"connected {connected}   rollouts waiting {session.get('waiting', 0)}{_part_heard(session)}")
    if page := session.get("page"):
        lines.append(f"\n{page}", style=f"cyan link {page}")
    return Panel(lines, title="sapo-node", title_align="left")


def _part_heard(session: SessionFacts) -> str:
    """Return how many shards the node subscribes to; empty if it subscribes to all."""
    shards = session.get("shards", Shards(followed=(), all=0))
    heard = len(shards["followed"])
    return f"   hears {heard} of {shards['all']} shards" if heard < shards["all"] else ""


def answer_table(answers: list[TaskAnswers]) -> Table:
    """Return a table of what a contributor shared. No node reports what it trained on, so the table cannot show it."""
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


def _peers(view: Overview, shown: int, *, with_share: bool) -> RenderableType:
    if not view.peers:
        return Text("no peers known yet; until it finds some, this node is alone", style="dim")
    table = peer_table(view, view.peers[:shown])
    if view.strangers_share is None or not with_share:
        return table
    return Group(table, Text(f"strangers may fill {view.strangers_share:.0%} of the external groups", style="dim"))


def peer_table(view: Overview, peers: list[PeerView]) -> Table:
    """Return a table of peers with their state, the groups trained on, and their share of all trained tokens."""
    total = view.own_tokens + view.other_tokens
    connected = set(view.session.get("connected", ()))
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("peer", "tier", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("trust", "verified", "waiting", "trained", "tokens"):
        table.add_column(name, justify="right")
    for peer in peers:
        table.add_row(
            short(peer.peer) + (" ●" if peer.peer in connected else ""),
            peer.tier,
            Text(peer.state, style=_STATE_STYLE[peer.state]),
            f"{peer.trust:.2f}",
            str(peer.verified),
            str(peer.waiting),
            str(peer.trained_groups),
            f"{peer.trained_tokens / total:.1%}" if total else "-",
        )
    return table


def decision_table(view: Overview, *, width: int) -> Table:
    """Return a table of all peers with their state, who decided it, why, since when and until when."""
    connected = set(view.session.get("connected", ()))
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("peer", "state", "by"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    for name in ("since", "until"):
        table.add_column(name, no_wrap=True)
    for name in ("trust", "trained"):
        table.add_column(name, justify="right", no_wrap=True)
    for peer in view.peers:
        by = peer.decided_by if peer.decided_by in decisions.SOURCES else f"list {short(peer.decided_by)}"
        table.add_row(
            (peer.peer if width >= _WIDE else short(peer.peer)) + (" ●" if peer.peer in connected else ""),
            Text(peer.state, style=_STATE_STYLE[peer.state]),
            by,
            peer.why,
            moment(peer.since) if peer.since else "-",
            moment(peer.until) if peer.until else "-",
            f"{peer.trust:.2f}",
            str(peer.trained_groups),
        )
    return table


def tier_line(view: Overview) -> Text:
    """Return a line that says what the peers of each tier get."""
    share = "" if view.strangers_share is None else f", and may fill {view.strangers_share:.0%} of the external groups"
    return Text(
        "friends and proven peers have places of their own in queue and verification; "
        f"strangers are drawn by lottery over links{share}",
        style="dim",
    )


def _counts(view: Overview) -> RenderableType:
    text = Text.assemble(
        *(("accepted ", "bold"), f"{view.counts.get(ACCEPTED, 0)} envelopes, "),
        *(("verified ", "bold"), f"{view.counts.get(VERIFIED, 0)} groups"),
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
    if alike := sum(kinds.pop("not needed").values()):
        lines.append(Text.assemble(("not needed ", "bold"), f"{alike} groups (zero advantage)"))
    for kind, of_kind in kinds.items():
        if of_kind or kind == "left out":
            reasons = ", ".join(f"{name} {count}" for name, count in of_kind.items()) or "nothing"
            lines.append(Text.assemble((f"{kind} ", "bold red" if kind == "refused" else "bold"), reasons))
    return lines


def _notices(view: Overview, shown: int) -> RenderableType:
    """The last notices; of a node that has stopped, its last alarms about learning."""
    told = view.session.get("notices") or [str(alarm) for alarm in reversed(view.health_alarms)]
    return Text("\n".join(told[-shown:]), style="dim")
