"""The history of a node for people and scripts: its rounds, its learning curve, its counts, and the session that runs.

The learning curve is the mean reward of the node's own, unfiltered completions over all its rounds: a list of points in
the order of the rounds. At first each point is one round. When there are MAX_POINTS, `added` joins neighbours in pairs.
So a curve has at most MAX_POINTS points, they cover all rounds, and every point but the last stands for the same number
of rounds.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from functools import reduce
from typing import Any, TypeVar

from sapo_node.groups.codec import Amount, Count, Share, from_json
from sapo_node.groups.record import ContributionReport, TaskAnswers
from sapo_node.observability.stored import EvaluationFacts, Round, SessionFacts, metrics
from sapo_node.storage.database import Database
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.round import RoundReport

MAX_POINTS = 240
"""Even, so that pairs leave no point over."""
WINDOW = 10
"""Rounds in a mean that is compared with another mean. The mean of one round is mostly chance."""


@dataclass(frozen=True, slots=True)
class Point:
    """Some consecutive rounds: their means, the extremes of the reward, and sums of what filters masked."""

    first: Count
    """Step of the first of these rounds."""
    last: Count
    rounds: Count
    reward: Share
    seconds: Mapping[str, Amount]
    """By phase."""
    low: Share
    """The lowest mean reward of one of these rounds."""
    high: Share
    filtered: Mapping[str, Count] = field(default_factory=dict)
    """Correct external completions that filters masked in these rounds, by filter."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean rewards, from the first round to the last."""

    means: list[float]
    rounds: int
    """Rounds that each of `means` covers. The last may cover fewer."""
    first: float
    """Mean reward of the first points that cover WINDOW rounds, or of all points if they cover fewer."""
    best: float
    """The highest mean reward of all windows of WINDOW rounds."""
    now: float
    """Mean reward of the last window."""


def added(points: Sequence[Point], new: Point) -> list[Point]:
    """The curve with one more round."""
    if points and points[-1].rounds < points[0].rounds:
        return [*points[:-1], _joined(points[-1], new)]
    if len(points) < MAX_POINTS:
        return [*points, new]
    return [*(_joined(*pair) for pair in zip(points[::2], points[1::2], strict=True)), new]


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MAX_POINTS points over the same rounds: neighbours are joined, and none is left out."""
    size = -(-len(points) // MAX_POINTS) or 1
    return [reduce(_joined, points[start : start + size]) for start in range(0, len(points), size)]


def _joined(a: Point, b: Point) -> Point:
    rounds = a.rounds + b.rounds

    def mean(of_a: float, of_b: float) -> float:
        return (of_a * a.rounds + of_b * b.rounds) / rounds

    phases = [*a.seconds, *(phase for phase in b.seconds if phase not in a.seconds)]
    seconds = {phase: mean(a.seconds.get(phase, 0.0), b.seconds.get(phase, 0.0)) for phase in phases}
    filtered = dict(Counter(a.filtered) + Counter(b.filtered))
    return Point(
        first=a.first,
        last=b.last,
        rounds=rounds,
        reward=mean(a.reward, b.reward),
        seconds=seconds,
        low=min(a.low, b.low),
        high=max(a.high, b.high),
        filtered=filtered,
    )


def learning_curve(points: Sequence[Point], columns: int) -> Curve | None:
    """The curve in at most `columns` means. None if there is no round."""
    if not points:
        return None
    size = -(-len(points) // columns)
    ends = [_window(points[::-1]), _window(points)]
    windows = [_window(points[start:]) for start in range(len(points)) if _rounds(points[start:]) >= WINDOW]
    return Curve(
        [round(_mean(points[start : start + size]), 4) for start in range(0, len(points), size)],
        size * points[0].rounds,
        first=round(ends[1], 4),
        best=round(max(*ends, *windows), 4),
        now=round(ends[0], 4),
    )


def _window(points: Sequence[Point]) -> float:
    """The mean reward of the first points that cover WINDOW rounds."""
    taken = next((count for count in range(1, len(points)) if _rounds(points[:count]) >= WINDOW), len(points))
    return _mean(points[:taken])


def _rounds(points: Sequence[Point]) -> int:
    return sum(point.rounds for point in points)


def _mean(points: Sequence[Point]) -> float:
    return sum(point.reward * point.rounds for point in points) / _rounds(points)


SCHEMA = """
CREATE TABLE IF NOT EXISTS rounds (step INTEGER PRIMARY KEY, reward REAL NOT NULL, report TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS curve (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, rounds INTEGER NOT NULL, reward REAL NOT NULL,
    seconds TEXT NOT NULL, low REAL, high REAL, filtered TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE TABLE IF NOT EXISTS exams (step INTEGER PRIMARY KEY, result TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answers (
    dataset TEXT PRIMARY KEY, groups INTEGER NOT NULL, informative INTEGER NOT NULL, completions INTEGER NOT NULL,
    right INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS fetched (peer TEXT PRIMARY KEY, rollouts INTEGER NOT NULL, last REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS session (id INTEGER PRIMARY KEY CHECK (id = 1), facts TEXT NOT NULL) STRICT;
"""

T = TypeVar("T")

MAX_ROUNDS = 10_000
"""Kept with all their metrics; the curve is of all rounds."""
MAX_RANGE = 2_400
"""Rounds of a range of the curve that are read one by one: more would keep the node's process busy for too long."""
MAX_EVALUATIONS = 240
MAX_FETCHERS = 1_000
"""Peers kept of those that fetched rollouts of this node: keys cost nothing, so their number must have a bound."""

ACCEPTED, PULLED, VERIFIED, EVIDENCE = TAKEN = ("accepted", "pulled", "verified groups", "evidence accepted")
"""Names of the counts of what was taken in; every other count is of something that was left out, by its reason."""


class History:
    """The node's public record of itself."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, report: RoundReport) -> None:
        """Add a round. The oldest rounds go; the curve keeps their means."""
        with self._database.transaction():
            self._extend_curve(report)
            self._database.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)",
                *(report.step, report.reward, json.dumps(metrics(report))),
            )
            self._database.execute("DELETE FROM rounds WHERE step <= ?", report.step - MAX_ROUNDS)

    def _extend_curve(self, report: RoundReport) -> None:
        points = self.points()
        if points and report.step <= points[-1].last:
            return  # a round that is repeated counts once
        longer = added(points, _point_of(metrics(report)))
        # A round changes the last point alone, unless points were joined in pairs or none of them was stored before.
        stored = self._database.rows("SELECT first FROM curve")
        changed = longer[-1:] if len(stored) == len(points) <= len(longer) else longer
        self._database.execute("DELETE FROM curve WHERE first >= ?", changed[0].first)
        for point in changed:
            self._database.execute(
                "INSERT INTO curve VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(point.first, point.last, point.rounds, point.reward, json.dumps(point.seconds)),
                *(point.low, point.high, json.dumps(point.filtered)),
            )

    def contribute(self, report: ContributionReport) -> None:
        """Add what a node that does not train shared in one round."""
        for task in report.tasks:
            self._database.execute(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?) ON CONFLICT (dataset) DO UPDATE SET "
                "groups = groups + excluded.groups, informative = informative + excluded.informative, "
                "completions = completions + excluded.completions, right = right + excluded.right",
                *astuple(task),
            )

    def examine(self, step: int, result: HeldOut, *, at: float) -> None:
        """Add an evaluation on held-out prompts, after a step and at a Unix time. When there are more than
        MAX_EVALUATIONS, every second one goes; the first and the last stay.
        """
        self._database.execute(
            "INSERT OR REPLACE INTO exams VALUES (?, ?)",
            step,
            json.dumps({"step": step, "at": round(at, 3), **result.as_dict()}),
        )
        self._database.execute(
            "DELETE FROM exams WHERE (SELECT count(*) FROM exams) > ? AND step != ? AND step IN (SELECT step FROM "
            "(SELECT step, row_number() OVER (ORDER BY step) AS number FROM exams) WHERE number % 2 = 0)",
            *(MAX_EVALUATIONS, step),
        )

    def evaluations(self) -> list[EvaluationFacts]:
        """The stored evaluations on held-out prompts, oldest first."""
        return self._stored(EvaluationFacts, "SELECT result FROM exams ORDER BY step")

    def count(self, counts: Mapping[str, int]) -> None:
        """Add to the counts kept over restarts: accepted envelopes, refusals by reason."""
        with self._database.transaction():
            for name, count in counts.items():
                self._database.execute(
                    "INSERT INTO counts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
                    name,
                    count,
                )

    def fetched(self, rollouts: Mapping[str, int], *, at: float) -> None:
        """Add rollouts of this node that peers fetched. The peers that fetched longest ago go."""
        with self._database.transaction():
            for peer, count in rollouts.items():
                self._database.execute(
                    "INSERT INTO fetched VALUES (?, ?, ?) ON CONFLICT (peer) DO UPDATE SET "
                    "rollouts = rollouts + excluded.rollouts, last = excluded.last",
                    *(peer, count, at),
                )
            if rollouts:
                self._database.execute(
                    "DELETE FROM fetched WHERE peer NOT IN (SELECT peer FROM fetched ORDER BY last DESC LIMIT ?)",
                    MAX_FETCHERS,
                )

    def fetchers(self) -> tuple[int, int]:
        """Return the number of peers that fetched rollouts of this node, at most MAX_FETCHERS, and of the rollouts."""
        [(peers, rollouts)] = self._database.rows("SELECT count(*), coalesce(sum(rollouts), 0) FROM fetched")
        return peers, rollouts

    def describe_session(self, facts: SessionFacts) -> None:
        """Store what only the running process knows: addresses, connected peers."""
        self._database.execute("INSERT OR REPLACE INTO session VALUES (1, ?)", json.dumps(facts))

    def rounds(self, last: int) -> list[Round]:
        """The metrics of the last rounds, oldest first."""
        return self._stored(Round, "SELECT report FROM rounds ORDER BY step DESC LIMIT ?", last)[::-1]

    def rounds_after(self, step: int) -> list[Round]:
        """The metrics of the rounds kept that came after a step, in order."""
        return self._stored(Round, "SELECT report FROM rounds WHERE step > ? ORDER BY step", step)

    def points(self) -> list[Point]:
        """The learning curve over all rounds."""
        rows = self._database.rows("SELECT * FROM curve ORDER BY first")
        with self._database.decoding():
            return [_stored_point(row) for row in rows]

    def points_between(self, first: int, last: int) -> list[Point]:
        """The part of the curve from one round to another, with a point for each round if MAX_POINTS suffice.

        Of a range of more than MAX_RANGE rounds, and of rounds older than the newest MAX_ROUNDS, it has the points of
        the whole curve alone, also those that lie only in part in the range. Beside single rounds there is no point
        that has some of them.
        """
        kept = self._stored(
            Round,
            "SELECT report FROM rounds WHERE step BETWEEN ? AND ? AND ? < ? ORDER BY step",
            *(first, last, last - first, MAX_RANGE),
        )
        joined = [each for each in self.points() if first <= each.last and each.first <= last]
        if kept:
            joined = [each for each in joined if each.last < kept[0]["step"]]
        return thinned([*joined, *map(_point_of, kept)])

    def curve(self, columns: int) -> Curve | None:
        """Return the learning curve over all rounds, in at most `columns` columns."""
        return learning_curve(self.points(), columns)

    def counts(self) -> dict[str, int]:
        """Counts since the state was made."""
        return dict(self._database.rows("SELECT name, count FROM counts ORDER BY name"))

    def answers(self) -> list[TaskAnswers]:
        """Return the counts of completions that were shared without training, by task."""
        return [TaskAnswers(*row) for row in self._database.rows("SELECT * FROM answers ORDER BY dataset")]

    def session(self) -> SessionFacts:
        """The facts of the running, or last, session."""
        return next(iter(self._stored(SessionFacts, "SELECT facts FROM session")), SessionFacts())

    def _stored(self, kind: type[T], query: str, *values: Any) -> list[T]:
        """The rows of a query for one column of JSON objects of a kind. Raises StateError if a row is none."""
        documents = self._database.documents(query, *values)
        with self._database.decoding():
            return [from_json(kind, each) for each in documents]


def _point_of(report: Mapping[str, Any]) -> Point:
    """One round, from its metrics. Raises MalformedError."""
    step, reward = report["step"], report["reward"]
    return _point(step, step, 1, reward, report["seconds"], reward, reward, report["filtered"])


def _stored_point(row: tuple[Any, ...]) -> Point:
    """A row of the curve. Raises MalformedError."""
    first, last, rounds, reward, seconds, low, high, filtered = row
    return _point(first, last, rounds, reward, json.loads(seconds), low, high, json.loads(filtered))


def _point(*values: Any) -> Point:
    """The point with these fields. A text in place of a reward would be repeated for each of its rounds."""
    return from_json(Point, {each.name: value for each, value in zip(fields(Point), values, strict=True)})
