"""Alarms: the signs that this policy has learnt something harmful, and which groups they accuse.

An alarm halves the share of strangers in the next rounds (`exposure`). The node then takes back the steps since the
older checkpoint, and replays them without the accused groups (`sapo_node.training.take_back`). An alarm of
`RewardWatch` also halves the bound of J (`mix`).

A replay takes time, and a peer may try to raise alarms. So the alarms of the reward and those of phrases have a budget
each (`ReplayBudget`): an attacker that uses up one leaves the other.

`RewardWatch` needs no text: it is a CUSUM (Page 1954) over the local reward, which no peer can forge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Any

from msgspec import Meta

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import Sampled
from sapo_node.groups.ranges import Count
from sapo_node.groups.record import LocalGroup
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.trust import constants
from sapo_node.trust.constants import HARM_ROUNDS, Tier

SLACK, MOST, THRESHOLD = 0.5, 2.0, 6.0
"""Of the CUSUM, in standard deviations of a round's reward: the fall per round that is no sign of harm, the most that
one round counts, and the sum at which the alarm is raised. So an alarm needs five rounds. A policy that is nearly
always correct fails whole groups of hard prompts now and then. With MOST, and prompts as unlike as ALIKE says, a policy
that stays as it is raised at most 2 alarms in 20,000 rounds, at pass rates from 0.05 to 0.98. Without MOST it raised
one in 207 rounds at 0.98."""
ALIKE = 0.3
"""Correlation of the completions of one prompt: some prompts of a task are harder than others."""
_LEAST_VARIANCE = 0.01


@dataclass(frozen=True, slots=True)
class Alarm:
    """One sign of harm."""

    reason: str
    """What happened, in a few words."""
    accuses: Callable[[Tier, Sampled], bool]
    """Whether a correct completion is accused, given the tier of its peer."""
    phrase: str = ""
    """What the accused texts say; empty where they are not accused of a phrase."""
    takes_back: bool = True
    """Whether steps are taken back: False where the budget of replayed rounds is used up."""


Rounds = Annotated[float, Meta(ge=0, le=constants.REPLAY_BURST)]
"""A budget of rounds replayed."""


class ReplayBudget:
    """The rounds that alarms of one kind may still have replayed."""

    def __init__(self) -> None:
        self.rounds = constants.REPLAY_BURST

    @property
    def affords_alarm(self) -> bool:
        """Whether the steps of one more alarm may be taken back."""
        return self.rounds >= HARM_ROUNDS

    def pass_round(self) -> None:
        """Count a round."""
        self.rounds = min(constants.REPLAY_BURST, self.rounds + constants.REPLAY_SHARE)

    def spend(self) -> None:
        """Charge an alarm."""
        self.rounds -= HARM_ROUNDS


@dataclass(frozen=True, slots=True)
class _State:
    total: Annotated[float, Meta(ge=0, le=THRESHOLD)]
    since: Count = 0
    budget: Rounds = constants.REPLAY_BURST


class RewardWatch:
    """Raises the alarm when the local reward stays below what the pass rates of the same tasks let expect.

    A reward that falls where no group of others was trained on for HARM_ROUNDS rounds is no fault of theirs. An alarm
    beyond the budget takes no steps back. It halves the strangers' share and the bound of J all the same.
    """

    def __init__(self, pass_rates: PassRates) -> None:
        self._pass_rates = pass_rates
        self._total = 0.0
        self._since = HARM_ROUNDS
        """Rounds since the last one that trained on groups of others."""
        self._budget = ReplayBudget()

    def observe(self, local: Sequence[LocalGroup], *, external: int) -> Alarm | None:
        """Take in a round that trained on so many groups of others, before the pass rates do. The alarm accuses all but
        friends: a peer that has proven itself may begin to do harm.
        """
        self._since = 0 if external else self._since + 1
        self._budget.pass_round()
        expected = [(group, rate) for group in local if (rate := self._pass_rates.pass_rate(group.dataset)) is not None]
        if not expected:
            return None
        missed = sum(len(group.rewards) * rate - sum(group.rewards) for group, rate in expected)
        spread = sqrt(sum(_variance(len(group.rewards), rate) for group, rate in expected))
        self._total = max(0.0, self._total + min(MOST, missed / spread) - SLACK)
        if self._total <= THRESHOLD:
            return None
        self._total = 0.0
        if self._since >= HARM_ROUNDS:
            return None
        if takes_back := self._budget.affords_alarm:
            self._budget.spend()
        return Alarm("the local reward fell", lambda tier, _: tier is not Tier.FRIEND, takes_back=takes_back)

    def state_dict(self) -> dict[str, Any]:
        """The sum, the rounds since groups of others were trained on, and the budget."""
        return to_object(_State(self._total, self._since, self._budget.rounds))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the sum in `state`. Raises MalformedError where it holds none."""
        read = from_json(_State, state)
        self._total, self._since, self._budget.rounds = read.total, read.since, read.budget


def _variance(completions: int, rate: float) -> float:
    """Variance of the number of correct completions of one prompt, for a task with this pass rate."""
    return completions * (1 + (completions - 1) * ALIKE) * max(rate * (1 - rate), _LEAST_VARIANCE)
