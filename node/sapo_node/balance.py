"""How many groups of a round are this node's own (I) and how many others' (J): two numbers, or found as it goes.

The paper leaves the ratio to its operator and finds that the best depends on the swarm. `Auto` asks what a group of
each kind is worth to this policy now: the sum of |advantage| over the completions that it would be trained on. Its own
groups are worth little while it is hardly ever or nearly always right. Others' right answers are worth much where it
fails and little where it succeeds, whatever their senders claim. The places of a round are shared in that proportion,
as far as the swarm can fill them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal, Protocol

from sapo_node.competence import Competence, RunningMean
from sapo_node.contribution import LocalGroup
from sapo_node.selection import own_advantages
from sapo_node.verify import VerifiedGroup

AUTO: Literal["auto"] = "auto"

GROUPS = 8
"""I + J under `Auto`: a round of the paper."""
MAX_EXTERNAL = 6
"""Most groups of others in a round of `Auto`. With fewer than two own groups a node hardly measures itself, and a swarm
of such nodes has little to share: the paper's 2/6 swings."""

STEP = 0.6
"""How far the target must be from J to move it by one: a little more than half, so that it does not flutter."""
SLACK, ALARM = 0.5, 4.0
"""Of the CUSUM over the own reward, in standard deviations: what is no sign of harm, and the sum that is one."""
ALIKE = 0.3
"""Correlation of the answers to one question: some questions of a task are harder than others."""
RECOVERY = 0.2
"""Groups by which the bound that an alarm halves grows back each round."""


@dataclass(frozen=True, slots=True)
class Split:
    """The groups of one round."""

    local: int
    """I."""
    external: int
    """J, at most."""


class Balance(Protocol):
    """Says how the next round is split, and hears how it went, before the node's measure of itself takes it in."""

    @property
    def probe(self) -> int:
        """Groups of others to have verified even where J is 0, to know what they would be worth."""
        ...

    def split(self) -> Split:
        """The split of the next round."""
        ...

    def observe(self, local: Sequence[LocalGroup], offered: Sequence[VerifiedGroup], drawn: int) -> None:
        """What a round generated, what the pool held then, and how many groups were drawn from it."""
        ...


class Fixed:
    """The same split in every round."""

    probe = 0

    def __init__(self, local: int, external: int) -> None:
        self._split = Split(local, external)

    def split(self) -> Split:
        """The split of every round."""
        return self._split

    def observe(self, local: Sequence[LocalGroup], offered: Sequence[VerifiedGroup], drawn: int) -> None:
        """Nothing is learnt from a round."""


class Auto:
    """Shares the places of a round by what own and others' groups are worth to the policy, one step a round.

    The first round is all its own: a node that joins measures itself before it takes anything in. If its own reward
    falls below what it was, J is halved and grows back slowly.
    """

    probe = 1

    def __init__(self, competence: Competence) -> None:
        """`competence` is the node's measure of itself."""
        self._competence = competence
        self._own, self._others, self._supply = RunningMean(), RunningMean(), RunningMean()
        self._external = 0
        self._bound = float(MAX_EXTERNAL)
        self._harm = 0.0

    def split(self) -> Split:
        """The split of the next round."""
        return Split(GROUPS - self._external, self._external)

    def observe(self, local: Sequence[LocalGroup], offered: Sequence[VerifiedGroup], drawn: int) -> None:
        """Take a round into account."""
        self._own.add(sum(sum(map(abs, group.advantages)) for group in local) / len(local))
        if offered:
            self._others.add(sum(map(self._worth, offered)) / len(offered))
        # Where places stayed empty the rest on offer was kept back by a bound, of a peer or of all newcomers.
        self._supply.add(drawn if drawn < self._external else min(len(offered), MAX_EXTERNAL))
        self._watch(local)
        target = self._target()
        if abs(target - self._external) > STEP:
            self._external += 1 if target > self._external else -1

    def _worth(self, group: VerifiedGroup) -> float:
        """Of another's group, only right answers count: what this policy would not have written is not unlearnt."""
        weighed = own_advantages(group.rewards, self._competence.pass_rate(group.dataset))
        return sum(advantage for advantage in weighed if advantage > 0)

    def _target(self) -> float:
        own, others, supply = (mean.value or 0.0 for mean in (self._own, self._others, self._supply))
        share = others / (own + others) if others else 0.0
        return min(GROUPS * share, self._bound, supply)

    def _watch(self, local: Sequence[LocalGroup]) -> None:
        """Raise the alarm when the own reward stays below what was to be expected of these very tasks."""
        self._bound = min(MAX_EXTERNAL, self._bound + RECOVERY)
        expected = [(group, rate) for group in local if (rate := self._competence.pass_rate(group.dataset)) is not None]
        if not expected:
            return
        missed = sum(len(group.rewards) * rate - sum(group.rewards) for group, rate in expected)
        spread = sqrt(sum(_variance(len(group.rewards), rate) for group, rate in expected))
        self._harm = max(0.0, self._harm + missed / spread - SLACK)
        if self._harm > ALARM:
            self._harm = 0.0
            self._bound = self._external / 2


def _variance(answers: int, rate: float) -> float:
    """Of the number of right answers to one question of a task that is solved at this rate."""
    return answers * (1 + (answers - 1) * ALIKE) * max(rate * (1 - rate), 0.01)


def balance_of(local: int, external: int | Literal["auto"], competence: Competence) -> Balance:
    """The balance that a configuration asks for."""
    return Auto(competence) if external == AUTO else Fixed(local, external)
