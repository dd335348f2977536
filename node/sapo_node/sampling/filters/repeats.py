"""When the alarm of a phrase may be raised again.

Strangers may say an honest phrase for ever. What was trained on may also show it for long after they have left. Each
alarm halves the strangers' share, and may take steps back. So each alarm of a phrase doubles the rounds until its next
one, from QUIET to REMEMBERED_ROUNDS. After REMEMBERED_ROUNDS without an alarm the phrase is forgotten, and begins with
QUIET again. Phrases that have two words in a row in common are one: else the parts of a long phrase would raise alarms
one after another. A phrase that waits keeps no other one waiting.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise

from sapo_node.groups.ranges import Count
from sapo_node.sampling.filters.habits import Habit

QUIET = 10
"""Rounds between the first alarm of a phrase and the second."""
REMEMBERED_ROUNDS = 320
"""Rounds after its last alarm in which a phrase is remembered."""


def runs(habit: Habit) -> Sequence[Habit]:
    """Every two words of a phrase that follow one another; the phrase itself where it is one word."""
    return list(pairwise(habit)) or [habit]


@dataclass(frozen=True, slots=True)
class Raised:
    """The last alarm of a phrase."""

    habit: Habit
    wait: Count
    """Rounds from that alarm to the next one of the phrase, at least."""
    ago: Count = 0
    """Rounds since that alarm."""


class Repeats:
    """The phrases that an alarm was raised for."""

    def __init__(self, known: Sequence[Raised] = ()) -> None:
        """`known` is what `state` gave before a restart."""
        self._raised = {each.habit: each for each in known}

    @property
    def waiting(self) -> AbstractSet[Habit]:
        """The `runs` of phrases that may not be why an alarm is raised now."""
        return {run for each in self._raised.values() if each.ago < each.wait for run in runs(each.habit)}

    def pass_round(self) -> None:
        """Count a round."""
        later = (replace(each, ago=each.ago + 1) for each in self._raised.values())
        self._raised = {each.habit: each for each in later if each.ago < REMEMBERED_ROUNDS}

    def raised(self, habits: Iterable[Habit]) -> None:
        """An alarm was raised for these phrases."""
        waits: dict[Habit, int] = {}
        for each in self._raised.values():
            for run in runs(each.habit):
                waits[run] = max(each.wait, waits.get(run, 0))
        for habit in habits:
            before = max(waits.get(run, 0) for run in runs(habit))
            self._raised[habit] = Raised(habit, 2 * before if before else QUIET)

    def state(self) -> tuple[Raised, ...]:
        """What is kept through a restart."""
        return tuple(self._raised.values())
