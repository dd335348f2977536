"""Gathers the facts of a node from its database for people and scripts: the same for a running node and a stopped
one.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, cast

from sapo_node.groups.record import LOCAL, State, TaskAnswers, Unusable
from sapo_node.ingest.validator import Ignored
from sapo_node.observability.history import Curve, History
from sapo_node.observability.stored import EvaluationFacts, Round, SessionFacts
from sapo_node.observability.tasks import TaskView, tasks_of
from sapo_node.storage.database import Database
from sapo_node.training.health import HealthAlarm, health_alarms
from sapo_node.training.take_back import TakenBack, taken_back
from sapo_node.trust.decisions import decisions
from sapo_node.trust.ledger import account_of, cause_of, states
from sapo_protocol import Layer

CURVE_POINTS = 60
LAST_ROUNDS = 20
SHOWN_PEERS = 200
NEWEST_GROUPS = 200
"""Groups of peers from which `Recent` is counted."""
_TEACHERS = 3
"""Peers named of those from which the node learnt."""


Kind = Literal["refused", "left out", "not needed"]
KINDS: Mapping[Kind, str] = MappingProxyType(
    {
        "refused": "A peer broke a rule, or is banned. A rule that was broken lowers the trust in that peer.",
        "left out": "No rule was broken. The node did not take the message, or did not train on the group.",
        "not needed": "The group teaches this node nothing: it has zero advantage, or is held out for evaluations.",
    }
)
"""The fates of a message or group that was not trained on, as page, terminal, help and documents say them."""
_NOT_NEEDED = {Unusable.CLAIMED_ZERO_ADVANTAGE, Unusable.ZERO_ADVANTAGE, Unusable.HELD_OUT}
_OFFENCES = {
    *Layer,
    *(Ignored.SENDER_BANNED, Ignored.ISSUER_BANNED, Ignored.EQUIVOCATION),
    *(Unusable.MALFORMED_BODY, Unusable.FALSE_CLAIM),
}
_OF_MESSAGES = {*Layer, *Ignored}


def kind_of(why: str) -> Kind:
    """Return the kind of a reason."""
    return "not needed" if why in _NOT_NEEDED else "refused" if why in _OFFENCES else "left out"


def unit_of(why: str) -> str:
    """Return the unit that a reason counts: messages before they are accepted, or groups of accepted rollouts."""
    return "message" if why in _OF_MESSAGES else "group"


@dataclass(frozen=True, slots=True)
class PeerView:
    """One peer."""

    peer: str
    tier: str
    """`friend`, `proven` or `stranger`."""
    state: str
    trust: float
    earned: int
    """Verified groups that have counted toward the state `healthy`, of HEALTHY_AFTER. A peer that loses the state
    begins anew."""
    waiting: int
    """Verified groups on offer."""
    trained_groups: int
    """Groups that are in the weights, since the state was made."""
    trained_tokens: int
    decided_by: str
    """`command`, `config` or `evidence`."""
    why: str
    """In a few words, what the decision rests on; the operator's own words may be missing."""
    since: float | None
    """Unix time of the last change of state; None for a peer whose state has never changed."""
    until: float | None
    """Unix time at which a ban ends; None for a state without a time limit."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange with peers, as far as the node can measure it.

    The shares are of the positive advantage that the loss has counted so far: the weight of each group times the sum of
    the positive advantages of its completions. They do not say what the node would have learnt alone.
    """

    from_others: float | None
    """Share that came from peers; None before anything was trained on."""
    teachers: list[tuple[str, float]]
    """The three peers with the largest shares, and their shares."""
    fetchers: int
    """Peers that fetched rollouts of this node by request, at most MAX_FETCHERS. Gossip tells of no reader."""
    fetched: int
    """Rollouts of this node that these peers fetched."""


@dataclass(frozen=True, slots=True)
class Recent:
    """Counts over the newest groups of peers."""

    teachers: int
    """Peers of whose groups at least one was trained on in the last LAST_ROUNDS rounds."""
    groups: int
    """Groups of peers that were verified or left out lately, at most NEWEST_GROUPS."""
    left_out: dict[str, int]
    """The number of them that were left out, by reason."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A node at one moment."""

    session: SessionFacts
    """Peer id, swarm, addresses, connected peers, the last notices."""
    curve: Curve | None
    """None before the first round."""
    evaluations: list[EvaluationFacts]
    """Held-out pass@1 after some of the rounds, with its interval, oldest first."""
    rounds: list[Round]
    """The last rounds, oldest first."""
    counts: dict[str, int]
    """Accepted rollouts, verified groups, and what was left out by reason (`unit_of`), since the state was made."""
    peers: list[PeerView]
    """The peers with the most trained groups and those with the most offences."""
    states: dict[str, int]
    """The number of known peers by state."""
    strangers_share: float | None
    """The part of the external groups that strangers may fill; None before the first round."""
    own_tokens: int
    """Tokens trained on that this node generated itself."""
    other_tokens: int
    """Tokens trained on that came from peers."""
    exchange: Exchange
    recent: Recent
    tasks: list[TaskView]
    """The tasks that this node has trained on, by name."""
    answers: list[TaskAnswers]
    """Counts of completions that were shared without training, by task."""
    taken_back: list[TakenBack]
    """Steps that were taken back, newest first."""
    health_alarms: list[HealthAlarm]
    """Signs that the policy decays, newest first."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


_LASTING = ("peer_id", "swarm", "network_id", "genesis", "epoch_seconds", "started", "stopped", "failure")
"""Facts of a session that stay true when the node has stopped."""


def at_rest(view: Overview) -> Overview:
    """The overview of a node that does not run: without what was true of its last moments alone."""
    lasting = {name: fact for name, fact in view.session.items() if name in _LASTING}
    return replace(view, session=cast("SessionFacts", lasting))


def overview(database: Database, *, rounds: int = LAST_ROUNDS, peers: int | None = SHOWN_PEERS) -> Overview:
    """Gather all facts, with the last `rounds` rounds and at most `peers` peers (None for all). Reads only."""
    with database.decoding():
        return _overview(database, rounds, peers)


def _overview(database: Database, rounds: int, peers: int | None) -> Overview:
    history = History(database)
    session = history.session()
    last_rounds = history.rounds(rounds)
    [(tokens,)] = database.rows("SELECT coalesce(sum(tokens), 0) FROM trained")
    (own,) = database.row("SELECT tokens FROM trained WHERE peer = ?", LOCAL) or (0,)
    return Overview(
        session=session,
        curve=history.curve(CURVE_POINTS),
        evaluations=history.evaluations(),
        rounds=last_rounds,
        counts=history.counts(),
        peers=_peers(database, peers, session),
        states=states(database),
        strangers_share=last_rounds[-1].get("strangers_share") if last_rounds else None,
        own_tokens=own,
        other_tokens=tokens - own,
        exchange=_exchange(database, history),
        recent=_recent(database, last_rounds[-1]["step"] if last_rounds else 0),
        tasks=tasks_of(database),
        answers=history.answers(),
        taken_back=taken_back(database),
        health_alarms=health_alarms(database),
    )


def _exchange(database: Database, history: History) -> Exchange:
    """Peers may be as many as keys, which cost nothing: of those trained on, only the first are read."""
    fetchers, fetched = history.fetchers()
    [(total,)] = database.rows("SELECT coalesce(sum(advantage), 0) FROM trained")
    if not total:
        return Exchange(from_others=None, teachers=[], fetchers=fetchers, fetched=fetched)
    (own,) = database.row("SELECT advantage FROM trained WHERE peer = ?", LOCAL) or (0.0,)
    first = database.rows(
        "SELECT peer, advantage FROM trained WHERE peer != ? AND advantage > 0 ORDER BY advantage DESC, peer LIMIT ?",
        *(LOCAL, _TEACHERS),
    )
    teachers = [(peer, round(each / total, 4)) for peer, each in first]
    share = round(max(0.0, 1 - own / total), 4)
    return Exchange(from_others=share, teachers=teachers, fetchers=fetchers, fetched=fetched)


def _recent(database: Database, step: int) -> Recent:
    [(teachers,)] = database.rows(
        "SELECT count(DISTINCT peer) FROM groups WHERE peer != '' AND state = ? AND step > ?",
        *(State.TRAINED, step - LAST_ROUNDS),
    )
    why = dict(
        database.rows(
            "SELECT why, count(*) FROM (SELECT CASE state WHEN ? THEN why ELSE '' END AS why FROM groups "
            "WHERE peer != '' ORDER BY number DESC LIMIT ?) GROUP BY why",
            *(State.LEFT_OUT, NEWEST_GROUPS),
        )
    )
    left_out = {reason: count for reason, count in why.items() if reason}
    return Recent(teachers=teachers, groups=sum(why.values()), left_out=left_out)


def _peers(database: Database, most: int | None, session: SessionFacts) -> list[PeerView]:
    """Peers of whom anything is known, the most trained on first. Where not all are wanted: those that are connected,
    and half of `most` each of those trained on most, of those that offended most, and of those the operator decided on.
    """
    limit = "" if most is None else f"LIMIT {most // 2}"
    found = database.rows(
        f"""
        SELECT * FROM (SELECT peer FROM trained WHERE peer != ? ORDER BY tokens DESC {limit})
        UNION SELECT * FROM (SELECT peer FROM ledger ORDER BY bad DESC {limit})
        """,  # noqa: S608 - the limit is a number of ours
        LOCAL,
    )
    decided = sorted(decisions(database))
    names = {peer for (peer,) in found} | {*decided[: most and most // 2]} | {*session.get("connected", ())}
    begins = _epoch_starts(session)
    return sorted((_peer(database, peer, begins) for peer in names), key=lambda view: (-view.trained_tokens, view.peer))


def _epoch_starts(session: SessionFacts) -> Callable[[int], float] | None:
    """The Unix time at which an epoch begins. None before the first session."""
    if "genesis" not in session:
        return None
    genesis, seconds = session["genesis"], session["epoch_seconds"]
    return lambda epoch: float(genesis + epoch * seconds)


def _peer(database: Database, peer: str, begins: Callable[[int], float] | None) -> PeerView:
    account = account_of(database, peer)
    cause = cause_of(database, account, begins)
    groups, tokens = database.row("SELECT groups, tokens FROM trained WHERE peer = ?", peer) or (0, 0)
    on_offer = f"SELECT count(*) FROM groups WHERE peer = ? AND state = '{State.VERIFIED}'"  # noqa: S608 - ours
    [(waiting,)] = database.rows(on_offer, peer)
    return PeerView(
        peer=peer,
        tier=account.tier.value,
        state=account.state.value,
        trust=round(account.trust, 3),
        earned=account.credited,
        waiting=waiting,
        trained_groups=groups,
        trained_tokens=tokens,
        decided_by=cause.source,
        why=cause.why,
        since=cause.since,
        until=cause.until,
    )
