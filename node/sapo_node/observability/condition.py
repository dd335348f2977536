"""Says in one line how a node is and what to do: the first line of the page, of the terminal and of `status`.

    condition = condition_of(view, runs=True, now=time.time())
    str(condition)    learning alone: no peer connected for 4 min. Give --bootstrap the address of a running node; ...

`_not_running` and `_running` list every state that the line can name, the most urgent first. The first one that holds
is the condition. A new state is one entry there and one case in the tests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sapo_node.groups.record import Unusable
from sapo_node.observability.explain import moment
from sapo_node.observability.overview import LAST_ROUNDS, Overview
from sapo_node.observability.stored import Level, Role

ALONE_SECONDS = 60.0
"""Seconds without a connection after which a node that learnt from peers lately counts as alone."""
DRIFT_GROUPS = 16
"""Groups of other tasks that are taken as a sign of another version, if they are most of the newest groups."""
ALARM_ROUNDS = 20
"""Rounds for which an alarm stays in the condition."""
STANDING = {
    "disk": ("the disk is nearly full: ", "Make room there: a node that cannot write its state stops."),
    "rounds": (
        "no round succeeds: ",
        "After the last of these failures the node stops. `sapo-node doctor` tests its parts.",
    ),
    "learner": (
        "the learner fails again and again: ",
        "Its log says why; too little memory is the usual cause. The node starts it again.",
    ),
    "server": (
        "the generation server fails, and the node samples by itself: ",
        "Start or repair the server; the node asks it again each round.",
    ),
    "contributor": (
        "the node shares nothing, because it gets no completions: ",
        "Repair what completes the prompts; the node asks it again.",
    ),
    "sandbox": (
        "the node takes no groups of peers, because there is no sandbox to score them: ",
        "`sapo-node doctor` names what is missing; --no-sandbox accepts the risk.",
    ),
    "signal": ("", ""),
}
"""The problems that need a person while a part of the node reports them (`Node.standing`): the words before its
sentence, and what to do. The most urgent first.
"""
LEARNS: frozenset[Role] = frozenset(("trains", "feeds"))
_WORK: dict[Role, str] = {
    "trains": "learning",
    "feeds": "learning",
    "contributes": "sharing completions",
    "relays": "verifying and relaying",
}
_GO_ON = "The same command goes on from here."


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a node."""

    state: str
    """Its name, for scripts."""
    level: Level
    text: str
    advice: str = ""
    """Advice for a person; empty if there is nothing to do."""

    @property
    def sentence(self) -> str:
        """The text, which begins with `attention:` if a person has to act."""
        return f"attention: {self.text}" if self.level == "attention" else self.text

    def __str__(self) -> str:
        return f"{self.sentence}. {self.advice}" if self.advice else self.sentence

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _State(Condition):
    """One state that a node may be in."""

    holds: bool = True


def condition_of(view: Overview, *, runs: bool, now: float, starting: Sequence[str] = ()) -> Condition:
    """Return the condition of a node at the Unix time `now`. `starting` names the parts that are not ready yet."""
    states = _running(view, now, starting) if runs else _not_running(view)
    return next(Condition(each.state, each.level, each.text, each.advice) for each in states if each.holds)


def _not_running(view: Overview) -> Iterator[_State]:
    session = view.session
    stopped, failure = moment(session.get("stopped", 0.0)), session.get("failure", "")
    yield _State("never started", "info", "not started yet", "`sapo-node start` begins here.", holds=not session)
    yield _State(
        "ended by an error",
        "attention",
        f"stopped {stopped} by an error: {failure}",
        f"Repair what the error names. {_GO_ON}",
        holds=bool(failure),
    )
    yield _State("stopped", "info", f"stopped {stopped}", _GO_ON, holds="stopped" in session)
    killed = "not running: it was killed, its machine stopped, or its state comes from a backup"
    yield _State("killed", "attention", killed, _GO_ON)


def _running(view: Overview, now: float, starting: Sequence[str]) -> Iterator[_State]:
    """Every state of a running node, the most urgent first."""
    session = view.session
    role = session.get("role", "trains")
    begins = session.get("genesis", 0)
    parts = f": waits for {', '.join(starting)}" if starting else ""
    stopping = session.get("standing", {}).get("stopping", "")
    yield _State("stopping", "info", f"stopping{stopping}", holds=bool(stopping))
    yield _State("starting", "info", f"starting{parts}", holds=bool(starting) or "connected" not in session)
    yield _State("before genesis", "info", f"waiting for the swarm, which begins {moment(begins)}", holds=begins > now)
    yield from _needing_a_person(view)
    yield from _waiting(view, now)
    yield from _with_peers(view, now) if role in LEARNS else _without_learning(view, now)


def _needing_a_person(view: Overview) -> Iterator[_State]:
    standing = view.session.get("standing", {})
    for part, (text, advice) in STANDING.items():
        if told := standing.get(part):
            yield _State(part, "attention", f"{text}{told}", advice)
    recent = view.recent
    drifted = recent.left_out.get(Unusable.OTHER_TASK, 0)
    yield _State(
        "version drift",
        "attention",
        f"{drifted} of the newest {recent.groups} groups of peers answer other tasks than this version builds",
        "Run the versions of sapo-node and reasoning-gym that the peers run.",
        holds=drifted >= DRIFT_GROUPS and 2 * drifted > recent.groups,
    )


def _waiting(view: Overview, now: float) -> Iterator[_State]:
    """States that pass without a person, and alarms on which the node has acted."""
    session = view.session
    work = _WORK[session.get("role", "trains")]
    for each in session.get("waits", ()):
        if why := each.get("why"):
            text = f"{work}; publishes nothing for {countdown(each['until'] - now)}, because {why}"
            yield _State("publishing paused", "info", text, "The node waits by itself.")
    yield _State(
        "trainer awaited",
        "info",
        "waiting for the trainer, which asks for no work",
        "Start the trainer: docs/start/your-trainer.md.",
        holds="trainer" in session.get("standing", {}),
    )
    step = view.rounds[-1]["step"] if view.rounds else 0
    for taken in view.taken_back[:1]:
        text = f"{work}; after an alarm, {taken}"
        yield _State("steps taken back", "info", text, holds=taken.replayed > step - ALARM_ROUNDS)
    for alarm in view.health_alarms[:1]:
        text = f"{work}; an alarm in {alarm}"
        yield _State("policy decays", "info", text, holds=alarm.step > step - ALARM_ROUNDS)


def _with_peers(view: Overview, now: float) -> Iterator[_State]:
    """The states of a node that learns."""
    session, rounds, teachers = view.session, len(view.rounds), view.recent.teachers
    takes_none = bool(session.get("takes_none"))
    yield _State("alone by choice", "info", "learning alone: --external 0 takes no groups of peers", holds=takes_none)
    yield _no_peer("learning alone", view, now, holds=not teachers or _alone_for(view, now) >= ALONE_SECONDS)
    learning = f"learning from {counted(teachers, 'peer')}"
    yield _State("learning from peers", "info", learning, holds=teachers > 0)
    peers = counted(len(session.get("connected", ())), "peer")
    first = f"learning, with {peers} connected; no group of a peer was trained on yet"
    yield _State("first rounds", "info", first, holds=rounds < LAST_ROUNDS)
    yield _State(
        "nothing taken",
        "info",
        f"learning alone: {peers} connected, and no group of a peer was trained on in the last {rounds} rounds",
        "The page and `sapo-node status` say what was left out, and why.",
    )


def _without_learning(view: Overview, now: float) -> Iterator[_State]:
    work = _WORK[view.session.get("role", "trains")]
    yield _no_peer(work, view, now)
    peers = counted(len(view.session.get("connected", ())), "peer")
    yield _State("works with peers", "info", f"{work}, with {peers} connected")


def _no_peer(work: str, view: Overview, now: float, *, holds: bool = True) -> _State:
    return _State(
        "no peer",
        "info",
        f"{work}: no peer connected for {duration(_alone_for(view, now))}",
        "Give --bootstrap the address of a running node; `sapo-node doctor` tests the network.",
        holds=holds and not view.session.get("connected"),
    )


def _alone_for(view: Overview, now: float) -> float:
    """Seconds without a connection."""
    return max(0.0, now - view.session.get("alone_since", now))


def countdown(seconds: float) -> str:
    """Format seconds as minutes and seconds, or hours and minutes; never below zero."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes}:{rest:02}"


def duration(seconds: float) -> str:
    """Format seconds roughly, in the largest unit of which there is at least one."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def counted(count: int, what: str) -> str:
    """Format a count with its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
