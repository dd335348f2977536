"""The local/external ratio of a round: I local and J external groups, two numbers or J by `Auto`.

The paper keeps I + J = 8 and finds that the best ratio depends on the swarm. I and J do not cost the same: the node
must generate a local group, and only verify and train on an external one. So the operator sets I, and `Auto` sets J by
what a group of each kind is worth to this policy now. That is the sum of the group's positive advantages against the
policy's own pass rate.

- Local groups are worth little while the policy is hardly ever or nearly always correct.
- External correct completions are worth much where the policy fails and little where it succeeds, whatever their
  senders claim.
- If external groups are worth as much as local ones, J is as large as allowed. If they are worth less, J is smaller in
  proportion. J is never more than the swarm supplies.
- A node that is nearly always correct takes hardly any external groups: LITTLE is the least worth of a local group in
  the comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, Protocol

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.pass_rates import PassRates, RunningMean
from sapo_node.sampling.weights import own_advantages

AUTO: Literal["auto"] = "auto"

MAX_EXTERNAL = 16
"""Most groups of others in a round of `Auto`: as many as have been measured to teach more than fewer do."""

PROBE = 8
"""Groups of others that are verified even where none is taken, to know what they would be worth."""
LITTLE = 2.0
"""What an own group is taken to be worth where it is worth less; half of what the most informative ones are."""
STEP = 1.0
"""How far J must be from the target to move there, so that it does not flutter."""
SLACK, ALARM = 0.5, 4.0
"""Of the CUSUM over the own reward, in standard deviations: what is no sign of harm, and the sum that is one."""
ALIKE = 0.3
"""Correlation of the answers to one question: some questions of a task are harder than others."""
RECOVERY = 0.5
"""Groups by which the bound that an alarm halves grows back each round."""


@dataclass(frozen=True, slots=True)
class Split:
    """The groups of one round."""

    local: int
    """I."""
    external: int
    """J, at most."""


class LocalExternalRatio(Protocol):
    """Says how the next round is split, and hears how it went, before the node's measure of itself takes it in."""

    @property
    def probe(self) -> int:
        """Groups of others to have verified even where J is 0, to know what they would be worth."""
        ...

    def split(self) -> Split:
        """The split of the next round."""
        ...

    def observe(self, local: Sequence[LocalGroup], others: Sequence[VerifiedGroup], *, supply: int, drawn: int) -> None:
        """What a round generated, groups by which those of others are measured, and how many the pool held then and
        were drawn from it.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What was learnt from rounds, as plain JSON; empty where nothing is."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what is in `state`. Raises MalformedError where it is of another form."""
        ...


class Fixed:
    """The same split in every round."""

    probe = 0

    def __init__(self, local: int, external: int) -> None:
        self._split = Split(local, external)

    def split(self) -> Split:
        """The split of every round."""
        return self._split

    def observe(self, local: Sequence[LocalGroup], others: Sequence[VerifiedGroup], *, supply: int, drawn: int) -> None:
        """Nothing is learnt from a round."""

    def state_dict(self) -> dict[str, Any]:
        """There is nothing to remember."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing to remember."""


@dataclass(frozen=True, slots=True)
class _State:
    own: RunningMean
    others: RunningMean
    supply: RunningMean
    external: int
    bound: float
    harm: float


class Auto:
    """Finds J beside a given I.

    The first round is all its own: a node that joins measures itself before it takes anything in. If its own reward
    falls below what it was, J is halved and grows back slowly.
    """

    probe = PROBE

    def __init__(self, local: int, pass_rates: PassRates) -> None:
        """`local` is I, `pass_rates` the node's measure of itself."""
        self._local = local
        self._pass_rates = pass_rates
        self._own, self._others, self._supply = RunningMean(), RunningMean(), RunningMean()
        self._external = 0
        self._bound = float(MAX_EXTERNAL)
        self._harm = 0.0

    def split(self) -> Split:
        """The split of the next round."""
        return Split(self._local, self._external)

    def observe(self, local: Sequence[LocalGroup], others: Sequence[VerifiedGroup], *, supply: int, drawn: int) -> None:
        """Take a round into account."""
        self._own.add(self._worth(local), len(local))
        if others:
            self._others.add(self._worth(others), len(others))
        # Where places stayed empty the rest on offer was kept back by a bound, of a peer or of all untrusted peers.
        self._supply.add(drawn if drawn < self._external else min(supply, MAX_EXTERNAL))
        self._watch(local)
        target = self._target()
        if abs(target - self._external) >= STEP:
            self._external = round(target)

    def state_dict(self) -> dict[str, Any]:
        """The means, J, its bound and the sum of the alarm."""
        return to_object(_State(self._own, self._others, self._supply, self._external, self._bound, self._harm))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As in `LocalExternalRatio`."""
        known = from_json(_State, state)
        self._own, self._others, self._supply = known.own, known.others, known.supply
        self._external, self._bound, self._harm = known.external, known.bound, known.harm

    def _worth(self, groups: Sequence[LocalGroup] | Sequence[VerifiedGroup]) -> float:
        """Only correct completions count: the loss does not count external completions with negative advantage."""
        weighed = [own_advantages(each.rewards, self._pass_rates.pass_rate(each.dataset)) for each in groups]
        return sum(advantage for group in weighed for advantage in group if advantage > 0)

    def _target(self) -> float:
        own, others, supply = (mean.value or 0.0 for mean in (self._own, self._others, self._supply))
        wanted = MAX_EXTERNAL * min(1.0, others / max(own, LITTLE))
        return min(wanted, self._bound, supply)

    def _watch(self, local: Sequence[LocalGroup]) -> None:
        """Raise the alarm when the own reward stays below what was to be expected of these very tasks."""
        self._bound = min(MAX_EXTERNAL, self._bound + RECOVERY)
        expected = [(group, rate) for group in local if (rate := self._pass_rates.pass_rate(group.dataset)) is not None]
        if not expected:
            return
        missed = sum(len(group.rewards) * rate - sum(group.rewards) for group, rate in expected)
        spread = sqrt(sum(_variance(len(group.rewards), rate) for group, rate in expected))
        self._harm = max(0.0, self._harm + missed / spread - SLACK)
        if self._harm > ALARM:
            self._harm = 0.0
            self._bound = self._external / 2


def _variance(answers: int, rate: float) -> float:
    """Variance of the number of correct completions of one prompt, for a task with this pass rate."""
    return answers * (1 + (answers - 1) * ALIKE) * max(rate * (1 - rate), 0.01)


def ratio_of(local: int, external: int | Literal["auto"], pass_rates: PassRates) -> LocalExternalRatio:
    """The local/external ratio that a configuration asks for."""
    return Auto(local, pass_rates) if external == AUTO else Fixed(local, external)
