"""Reads new rounds and evaluations from the database of a node, in order."""

from typing import Any

from sapo_node.groups import book
from sapo_node.groups.record import Entry
from sapo_node.observability.curves.names import of_evaluation, of_round
from sapo_node.observability.curves.targets import Point
from sapo_node.observability.group_facts import facts_of
from sapo_node.observability.history import History
from sapo_node.observability.stored import Round
from sapo_node.storage.database import Database

COMPLETIONS_EVERY = 10
"""Rounds from one table of completions to the next. The first round has one, too."""


class Follower:
    """Returns each round and each evaluation once."""

    def __init__(self, database: Database, *, round_: int, evaluation: int) -> None:
        """Begin after this round and this evaluation, which are steps."""
        self._history = History(database)
        self._database = database
        self._round = round_
        self._evaluation = evaluation

    def new(self) -> list[Point]:
        """Return the points since the last call. The evaluation after a round follows the round."""
        rounds = [self._of_round(each) for each in self._history.rounds_after(self._round)]
        results = [each for each in self._history.evaluations() if each["step"] > self._evaluation]
        evaluations = [Point(each["step"], each["at"], of_evaluation(each)) for each in results]
        self._round = max([self._round, *(point.step for point in rounds)])
        self._evaluation = max([self._evaluation, *(point.step for point in evaluations)])
        # A stable sort: of one step, the round comes first.
        return sorted([*rounds, *evaluations], key=lambda point: point.step)

    def _of_round(self, metrics: Round) -> Point:
        step = metrics["step"]
        groups = book.local_round(self._database, metrics["epoch"], metrics["counter"])
        rewards = [float(reward) for group in groups for reward in group.rewards]
        shown = step == 1 or step % COMPLETIONS_EVERY == 0
        rows = [row for group in groups for row in _rows(step, group)] if shown else []
        return Point(step, metrics["at"], of_round(metrics, rewards), tuple(rows))


def _rows(step: int, group: Entry) -> list[tuple[Any, ...]]:
    facts = facts_of(group)
    return [
        (step, group.prompt, each["text"], float(each["reward"]), each.get("advantage", 0.0))
        for each in facts.get("completions", ())
    ]
