"""The terminal view: one screen that shows whether the node learns, from whom, and what it refused."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sapo_node.contribution import TaskAnswers
from sapo_node.history import ACCEPTED, EVIDENCE, TAKEN, VERIFIED
from sapo_node.overview import Overview, PeerView

_BLOCKS = "▁▂▃▄▅▆▇█"
_SHOWN_ROUNDS = 6
_SHOWN_PEERS = 8
_STANDING_STYLE = {"healthy": "green", "newcomer": "cyan", "probation": "yellow", "banned": "red"}


def short(peer: str) -> str:
    """A peer id as people tell it apart: the constant beginning says nothing, the end does."""
    return f"…{peer[-8:]}"


def render(view: Overview) -> RenderableType:
    """A whole screen."""
    own: list[RenderableType] = [answer_table(view.answers)] if view.answers else []
    if view.rounds or not own:
        own += [_curve(view), _rounds(view)]
    return Group(_head(view), *own, _peers(view), _counts(view), _notices(view))


def _head(view: Overview) -> RenderableType:
    session = view.session
    connected = len(session.get("connected", ()))
    lines = Text()
    lines.append(f"{session.get('peer_id', '')}\n", style="bold")
    lines.append(f"swarm {session.get('swarm', '')} ({session.get('network_id', '')[:16]})   ")
    lines.append(f"connected {connected}   rollouts waiting {session.get('waiting', 0)}\n")
    lines.append("\n".join(session.get("addresses", ())), style="dim")
    return Panel(lines, title="sapo-node", title_align="left")


def _curve(view: Overview) -> RenderableType:
    means = view.curve.means
    if not means:
        return Text("first round under way: generating …", style="dim")
    top = max(*means, 0.01)
    bars = "".join(_BLOCKS[min(len(_BLOCKS) - 1, int(mean / top * len(_BLOCKS)))] for mean in means)
    return Text.assemble(
        ("reward ", "bold"),
        (bars, "green"),
        f"  now {means[-1]:.3f}, best {top:.3f}",
        (f"  (a bar is {view.curve.rounds} rounds)", "dim"),
    )


def _rounds(view: Overview) -> RenderableType:
    table = Table(
        "round", "epoch", "reward", "own groups\nthat teach", "external\ntrained", "shared", "seconds", expand=True
    )
    for each in view.rounds[-_SHOWN_ROUNDS:]:
        seconds = each["seconds"]
        table.add_row(
            str(each["step"]),
            str(each["epoch"]),
            f"{each['reward']:.3f}",
            f"{each['informative']} of {each['local']}",
            str(each["external"]),
            "yes" if each["published"] else "listening",
            ", ".join(f"{phase} {value:.1f}" for phase, value in seconds.items()),
        )
    return table


def answer_table(answers: list[TaskAnswers]) -> Table:
    """What a node shared without training; groups that are all right or all wrong teach nobody."""
    table = Table("task", "groups shared", "that teach", "answers", "right", expand=True)
    for task in answers:
        table.add_row(
            task.dataset,
            str(task.groups),
            str(task.informative),
            str(task.completions),
            f"{task.right} ({task.right / task.completions:.0%})",
        )
    return table


def _peers(view: Overview) -> RenderableType:
    if not view.peers:
        return Text("no peers heard of yet: this node learns alone until it finds some", style="dim")
    return peer_table(view.peers[:_SHOWN_PEERS], set(view.session.get("connected", ())), view.own_tokens)


def peer_table(peers: list[PeerView], connected: set[str], own_tokens: int, *, shorten: bool = True) -> Table:
    """Peers with their standing, and their share of all tokens trained on."""
    total = own_tokens + sum(peer.trained_tokens for peer in peers)
    table = Table("peer", "standing", "trust", "verified", "waiting", "trained groups", "share of tokens", expand=True)
    for peer in peers:
        table.add_row(
            (short(peer.peer) if shorten else peer.peer) + (" ●" if peer.peer in connected else ""),
            Text(peer.standing, style=_STANDING_STYLE[peer.standing]),
            f"{peer.trust:.2f}",
            str(peer.verified),
            str(peer.waiting),
            str(peer.trained_groups),
            f"{peer.trained_tokens / total:.1%}" if total else "-",
        )
    return table


def _counts(view: Overview) -> RenderableType:
    text = Text.assemble(
        *(("accepted ", "bold"), f"{view.counts.get(ACCEPTED, 0)} envelopes, "),
        *(("verified ", "bold"), f"{view.counts.get(VERIFIED, 0)} groups"),
    )
    if convicted := view.counts.get(EVIDENCE, 0):
        text.append(f", evidence against {convicted} peers")
    refused = {name: count for name, count in view.counts.items() if name not in TAKEN and count}
    text.append("\nleft out ", style="bold")
    text.append(", ".join(f"{name} {count}" for name, count in sorted(refused.items())) or "nothing")
    return text


def _notices(view: Overview) -> RenderableType:
    return Text("\n".join(view.session.get("notices", ())), style="dim")
