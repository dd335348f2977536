"""Collects what the nodes of `sapo-node demo` reported, and summarises it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import trio
from rich.console import Console
from rich.table import Table

from sapo_node.cli.tables import short
from sapo_node.observability.history import TAKEN

Json: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Member:
    """One honest node of the demo, and what it last reported."""

    name: str
    folder: Path
    process: trio.Process
    started: trio.Event = field(default_factory=trio.Event)
    session: Json = field(default_factory=dict)
    last: Json = field(default_factory=dict)
    """The event of the newest round."""
    knows: Json = field(default_factory=dict)
    """The newest event that has counts and peers."""
    external: int = 0
    alone: int = 0
    """Rounds that the node played before the swarm was complete."""

    @property
    def played(self) -> int:
        """Rounds that the node played in the complete swarm."""
        return max(0, int(self.last.get("step", 0)) - self.alone)


def seen_by(member: Member, peer_id: str) -> Json:
    """Return what a node reported of a peer."""
    unknown = {"state": "unknown", "trust": 0.5, "trained_tokens": 0}
    return next((peer for peer in member.knows.get("peers", ()) if peer["peer"] == peer_id), unknown)


def refused_by(member: Member) -> dict[str, int]:
    """Return how many messages and groups a node refused or left out, by reason."""
    counts = member.knows.get("counts", {})
    return {name: count for name, count in counts.items() if name not in TAKEN}


def summarise(members: Sequence[Member], polluter: str, before: Json, after: Mapping[str, Json]) -> Json:
    """Return the summary. `before` and `after` hold the JSON of `sapo-node eval`; `after` by the name of the node."""
    refused: dict[str, int] = {}
    for member in members:
        for name, count in refused_by(member).items():
            refused[name] = refused.get(name, 0) + count
    views = [seen_by(member, polluter) for member in members]
    tokens = sum(view["trained_tokens"] for view in views)
    total = sum(
        member.knows["own_tokens"] + sum(peer["trained_tokens"] for peer in member.knows["peers"]) for member in members
    )
    states = sorted({view["state"] for view in views}, key=_SEVERITY.index)
    return {
        "honest": [
            {
                "peer": member.session["peer_id"],
                **_heldout("before", before),
                **_heldout("after", after[member.name]),
                "external_groups_trained": member.external,
                "trust": {peer["peer"]: peer["trust"] for peer in member.knows["peers"]},
            }
            for member in members
        ],
        "polluters": [{"peer": polluter, "trained_share": tokens / total if total else 0.0, "state": states[0]}],
        "accepted": sum(member.knows["counts"].get("accepted", 0) for member in members),
        "refused": dict(sorted(refused.items())),
    }


def print_summary(summary: Json, console: Console) -> None:
    """Print a summary as tables."""
    table = Table(
        *("honest node", "held-out before", "after", "external groups trained", "trust in the others"),
        title="held-out pass@1 with 95 % intervals",
        title_justify="left",
    )
    for node in summary["honest"]:
        trust = ", ".join(f"{short(peer)} {value:.2f}" for peer, value in sorted(node["trust"].items()))
        table.add_row(
            short(node["peer"]),
            *(_measured(node, when) for when in ("before", "after")),
            str(node["external_groups_trained"]),
            trust,
        )
    console.print(table)
    for polluter in summary["polluters"]:
        console.print(
            f"malicious node {short(polluter['peer'])}: {polluter['state']}, "
            f"{polluter['trained_share']:.1%} of all tokens trained on"
        )
    left_out = ", ".join(f"{name} {count}" for name, count in summary["refused"].items())
    console.print(f"accepted envelopes: {summary['accepted']}; left out: {left_out}")


def _heldout(when: str, measured: Json) -> Json:
    """Return the result of `eval` under the names that the summary has."""
    return {f"heldout_{when}": measured["pass_at_1"], f"heldout_{when}_interval": [measured["low"], measured["high"]]}


def _measured(node: Json, when: str) -> str:
    """Format the held-out pass@1 of a node, with its interval."""
    low, high = node[f"heldout_{when}_interval"]
    return f"{node[f'heldout_{when}']:.3f} ({low:.3f} to {high:.3f})"


_SEVERITY = ["banned", "probation", "unknown", "untrusted", "healthy"]
"""Peer states, worst first. The summary names the worst that an honest node gave to the malicious one."""
