"""The facts that the page shows: from the database, and from the memory of the running node."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from sapo_node.groups import book
from sapo_node.groups.record import State
from sapo_node.observability.condition import Condition, condition_of
from sapo_node.observability.explain import as_dict
from sapo_node.observability.history import MAX_POINTS, TAKEN, History
from sapo_node.observability.overview import KINDS, Overview, at_rest, kind_of, overview, unit_of
from sapo_node.observability.reasons import reason_for
from sapo_node.storage.database import Database
from sapo_node.training.round import Phase

SHOWN_GROUPS = 60
MOST_GROUPS = 500
"""Most groups in one answer: more would keep the node busy for too long."""
SHOWN_REFUSALS = 30
FOLLOWED = 12
"""Peers in the chart of trust: those trained on most."""
_FRESH_SECONDS = 1.0
"""Minimum seconds between two refreshes, however many clients ask."""


class Facts:
    """Gathers the facts, and keeps the trust in peers after each round of this session."""

    def __init__(self, database: Database, parts: Iterable[str] = (), *, rests: str = "between rounds") -> None:
        """The node has started when all `parts` are ready. `rests` says what it does between the phases of a round."""
        self._database = database
        self._starting = dict.fromkeys(parts, False)
        self._rests = rests
        self._health: dict[str, Callable[[], str]] = {}
        self._trust: list[dict[str, Any]] = []
        self._phase: Phase | None = None
        self._since = time.time()
        self._state: tuple[float, dict[str, Any]] = (0.0, {})

    def ready(self, part: str, health: Callable[[], str] | None = None) -> None:
        """A part of the node is ready. `health` returns its state in a few words."""
        self._starting[part] = True
        if health:
            self._health[part] = health
        if all(self._starting.values()):
            self._since = time.time()

    def phase(self, phase: Phase | None) -> None:
        """A round enters a phase, or ends (None)."""
        self._phase, self._since = phase, time.time()

    def played(self, step: int, view: Overview) -> None:
        """A round is over. If MAX_POINTS rounds are kept, every second one is dropped."""
        if len(self._trust) == MAX_POINTS:
            self._trust = self._trust[::2]
        self._trust.append({"step": step, "peers": {each.peer: each.trust for each in view.peers[:FOLLOWED]}})

    def state(self) -> dict[str, Any]:
        """All facts without single groups."""
        made, state = self._state
        if time.monotonic() - made < _FRESH_SECONDS:
            return state
        has_started = all(self._starting.values())
        view = overview(self._database) if has_started else at_rest(overview(self._database))
        refused = {name: count for name, count in view.counts.items() if name not in TAKEN and count}
        state = {
            **view.as_dict(),
            "condition": self._condition(view).as_dict(),
            "refused": [_explained({"why": why, "count": count}) for why, count in Counter(refused).most_common()],
            "points": [asdict(point) for point in History(self._database).points()],
            "taken_back": [{"at": each.at, "step": each.replayed, "text": str(each)} for each in view.taken_back],
            "health_alarms": [{"at": each.at, "step": each.step, "text": str(each)} for each in view.health_alarms],
            "trust": self._trust,
            "starting": {} if has_started else dict(self._starting),
            "phase": self._phase,
            "phase_since": self._since,
            "health": {part: health() for part, health in self._health.items()},
            "rests": self._rests,
            "kinds": dict(KINDS),
            "banned_by_evidence": [row[0] for row in self._database.rows("SELECT peer FROM evidence ORDER BY peer")],
            "now": time.time(),
        }
        self._state = (time.monotonic(), state)
        return state

    def _condition(self, view: Overview) -> Condition:
        waits = [part for part, is_ready in self._starting.items() if not is_ready]
        return condition_of(view, runs=True, now=time.time(), starting=waits)

    def curve(self, first: int, last: int) -> dict[str, Any]:
        """The learning curve from one round to another, in at most MAX_POINTS points."""
        return {"points": [asdict(point) for point in History(self._database).points_between(first, last)]}

    def groups(self, state: State | None, last: int = SHOWN_GROUPS) -> dict[str, Any]:
        """The newest groups, of one state or of all, the number of groups by state, and the newest refusals."""
        groups = book.newest(self._database, min(last, MOST_GROUPS), state)
        return {
            "counts": book.counts(self._database),
            "groups": [_explained(as_dict(each)) for each in groups],
            "refusals": [_explained(asdict(each)) for each in book.refusals(self._database, SHOWN_REFUSALS)],
        }


def _explained(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with the kind and meaning of its reason, and advice about it."""
    reason = reason_for(entry["why"])
    kind = kind_of(entry["why"])
    return {
        **entry,
        "kind": kind,
        "unit": unit_of(entry["why"]),
        "means": reason.means if reason else "",
        "change": reason.advice if reason else "",
    }
