"""The local/external ratio of a round: I local and J external groups, two numbers or J by `Auto`.

The paper keeps I + J = 8 and finds that the best ratio depends on the swarm. I and J do not cost the same: the node
must generate a local group, and only verify and train on an external one. So the operator sets I, and `Auto` sets J by
what a group of each kind is worth to this policy now. That is the sum of the group's positive advantages: of a local
group against the policy's usual reward, and of an external one against its pass rate.

- Local groups are worth little while the policy is hardly ever or nearly always correct.
- External correct completions are worth much if the policy fails at the task and little if it succeeds, whatever their
  senders claim.
- If external groups are worth as much as local ones, J is as large as allowed. If they are worth less, J is smaller in
  proportion. J is never more than the swarm supplies.
- A node that is nearly always correct takes hardly any external groups: LITTLE is the least worth of a local group in
  the comparison.
- J falls in proportion if an external group takes more seconds than a local one: worth counts per second then. A
  cheap external group does not raise J, because texts of peers can do more harm than to take time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.weights import PassRates, RunningMean, external_worth, local_worth

MAX_EXTERNAL = 16
"""Most external groups in a round of `Auto`. In measurements fewer taught less."""

PROBE = 8
"""External groups to verify even if J is 0, to measure their worth."""
LITTLE = 2.0
"""Least worth of a local group in the comparison; half of the worth of the most informative ones."""
STEP = 1.0
"""J moves to the target only if it is at least this far from it, so that it does not flutter."""
RECOVERY = 0.5
"""Groups by which the bound that an alarm halves grows back each round."""


@dataclass(frozen=True, slots=True)
class Split:
    """The groups of one round."""

    local: int
    """I."""
    external: int
    """J, at most."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The seconds that one round took; 0 for what was not measured."""

    local: float = 0.0
    """To generate, score and train the local groups."""
    external: float = 0.0
    """To train on external groups, without the time for what filters rejected. Where nothing was trained on, the
    seconds say nothing."""
    groups: int = 0
    """External groups that these seconds were for: those of which a token was trained on."""


UNKNOWN = Costs()


class FixedRatio:
    """The same I and J in every round, as the operator set them. `Auto` chooses J instead.

    `observe` must run before `PassRates.observe`.
    """

    probe = 0
    """External groups to verify even if J is 0, to measure their worth."""

    def __init__(self, local: int, external: int) -> None:
        self._local, self._external = local, external

    def split(self) -> Split:
        """Return I and J of the next round."""
        return Split(self._local, self._external)

    def observe(
        self,
        local: Sequence[LocalGroup],
        reference: Sequence[VerifiedGroup],
        *,
        supply: int,
        costs: Costs = UNKNOWN,
    ) -> None:
        """Learn from a round: its local groups, the external groups that say what one is worth, the number of groups
        that there were to draw from, and the seconds that the round took.
        """

    def alarm(self) -> None:
        """Take fewer external groups for a while."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON; empty if there is none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state. Raises MalformedError if it has another form."""


@dataclass(frozen=True, slots=True)
class _State:
    own: RunningMean
    others: RunningMean
    supply: Annotated[int, Meta(ge=0, le=MAX_EXTERNAL)]
    external: Annotated[int, Meta(ge=0, le=MAX_EXTERNAL)]
    bound: Annotated[float, Meta(ge=0, le=MAX_EXTERNAL)]
    local_seconds: RunningMean = field(default_factory=RunningMean)
    """Per group."""
    external_seconds: RunningMean = field(default_factory=RunningMean)


class Auto(FixedRatio):
    """Finds J beside a given I.

    The first round has no external groups: a node that joins measures itself before it takes anything in. An alarm
    halves J, which grows back slowly.
    """

    probe = PROBE

    def __init__(self, local: int, pass_rates: PassRates) -> None:
        """`local` is I, `pass_rates` the node's measure of itself."""
        super().__init__(local, external=0)
        self._pass_rates = pass_rates
        self._own, self._others = RunningMean(), RunningMean()
        self._local_seconds, self._external_seconds = RunningMean(), RunningMean()
        """Per group."""
        self._supply = 0
        """Groups that the last round had to draw from, at most MAX_EXTERNAL."""
        self._bound = float(MAX_EXTERNAL)

    def observe(
        self,
        local: Sequence[LocalGroup],
        reference: Sequence[VerifiedGroup],
        *,
        supply: int,
        costs: Costs = UNKNOWN,
    ) -> None:
        """Take in a round, and choose the next J. J never follows from the number of drawn groups: a bound that keeps
        the draw small would then lower J, and J the bound.
        """
        self._own.add(sum(local_worth(each, self._pass_rates) for each in local), len(local))
        if reference:
            worth = sum(external_worth(each, self._pass_rates) for each in reference)
            self._others.add(worth, len(reference))
        if costs.local:
            self._local_seconds.add(costs.local, len(local))
        if costs.external and costs.groups:
            self._external_seconds.add(costs.external, costs.groups)
        self._supply = min(supply, MAX_EXTERNAL)
        self._bound = min(MAX_EXTERNAL, self._bound + RECOVERY)
        target = self._target()
        if abs(target - self._external) >= STEP:
            self._external = round(target)

    def alarm(self) -> None:
        """Halve J. It may grow back by RECOVERY each round."""
        self._bound = self._external / 2
        self._external = round(self._bound)

    def state_dict(self) -> dict[str, Any]:
        """The means, J and its bound."""
        return to_object(
            _State(
                own=self._own,
                others=self._others,
                supply=self._supply,
                external=self._external,
                bound=self._bound,
                local_seconds=self._local_seconds,
                external_seconds=self._external_seconds,
            )
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state. Raises MalformedError if it has another form."""
        known = from_json(_State, state)
        self._own, self._others, self._supply = known.own, known.others, known.supply
        self._external, self._bound = known.external, known.bound
        self._local_seconds, self._external_seconds = known.local_seconds, known.external_seconds

    def _target(self) -> float:
        own, others = (mean.value or 0.0 for mean in (self._own, self._others))
        wanted = MAX_EXTERNAL * min(1.0, others / max(own, LITTLE))
        # A node that would take a part of one goes on with one: what is not trained is not measured again.
        affordable = max(min(1.0, wanted), wanted * self._thrift())
        return min(affordable, self._bound, self._supply)

    def _thrift(self) -> float:
        """Return the seconds of a local group as part of those of an external one, at most 1."""
        local, external = self._local_seconds.value, self._external_seconds.value
        return min(1.0, local / external) if local and external else 1.0


def ratio_of(local: int, external: int | Literal["auto"], pass_rates: PassRates) -> FixedRatio:
    """Return the local/external ratio of a configuration."""
    return Auto(local, pass_rates) if external == "auto" else FixedRatio(local, external)
