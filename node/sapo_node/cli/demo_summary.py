"""Collects what the nodes of `sapo-node demo` reported, and summarises it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import trio
from rich.console import Console
from rich.table import Table

from sapo_node.cli.tables import reason_lines, short
from sapo_node.observability.history import TAKEN
from sapo_node.trust.constants import PeerState

Json: TypeAlias = dict[str, Any]
BANNED = PeerState.BANNED.value
_WORST_FIRST = (BANNED, PeerState.PROBATION.value, PeerState.UNTRUSTED.value, PeerState.HEALTHY.value)


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
    rounds: list[tuple[float, int]] = field(default_factory=list)
    """Of each round, the Unix time of its end and the external groups that it trained on."""
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


@dataclass(frozen=True, slots=True)
class FirstExternal:
    """When a node first trained on an external group, counted from its contact with another honest node."""

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
    untrusted = PeerState.UNTRUSTED.value  # also a peer that a node has not heard of yet
    return Counter(min((view.get(peer, untrusted) for view in views), key=_WORST_FIRST.index) for peer in peers)


def trained_on(member: Member, peers: Collection[str]) -> int:
    """Return how many tokens of the peers a node trained on."""
    return sum(peer["trained_tokens"] for peer in member.knows.get("peers", ()) if peer["peer"] in peers)


def refused_by(member: Member) -> dict[str, int]:
    """Return how many messages and groups a node refused or left out, by reason."""
    counts = member.knows.get("counts", {})
    return {name: count for name, count in counts.items() if name not in TAKEN}


def summarise(members: Sequence[Member], band: Collection[str], before: Json, after: Mapping[str, Json]) -> Json:
    """Return the summary. `band` holds the malicious keys. `before` and `after` hold the JSON of `sapo-node eval`;
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
