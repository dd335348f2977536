"""Alarms: the signs that this policy has learnt something harmful, the groups they accuse, and the share of strangers.

The node takes back the steps since the older checkpoint, and replays them without the accused groups
(`sapo_node.training.take_back`). An alarm of `RewardWatch` also halves the bound of J (`mix`).

A replay takes time, and a peer may try to raise alarms. So the alarms of the reward and those of phrases have a budget
each (`ReplayBudget`): an attacker that uses up one leaves the other.

`RewardWatch` needs no text: it is a CUSUM (Page 1954) over the local reward, which no peer can forge.

`Exposure` is the share of the external groups of a round that strangers may fill. Keys cost nothing, so it is the share
of all strangers together, and time alone does not raise it. It starts at STRANGERS_SHARE. Each round that trained on
strangers and raised no alarm adds SHARE_RISE, up to the whole of J. Each alarm halves it, but never below SHARE_LEAST:
a node that takes nothing from strangers could not learn that they do no harm.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Any

from msgspec import Meta

from sapo_node.groups.codec import Count, Share, from_json, to_object
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup
from sapo_node.sampling.weights import PassRates, Reward
from sapo_node.trust import constants
from sapo_node.trust.constants import HARM_ROUNDS, Tier
from sapo_node.trust.limits import LIMITS, Limits

SLACK, MOST, THRESHOLD = 0.5, 2.0, 6.0
"""Parameters of the CUSUM, in standard deviations of a round's reward: the fall per round that is no sign of harm, the
most that one round counts, and the sum at which the alarm is raised. So an alarm needs five rounds. A policy that is
nearly always correct fails whole groups of hard prompts now and then. With MOST, and prompts as unlike as ALIKE says, a
policy that stays as it is raised at most 2 alarms in 20,000 rounds, at pass rates from 0.05 to 0.98. Without MOST it
raised one in 207 rounds at 0.98.
"""
ALIKE = 0.3
"""Correlation of the completions of one prompt: some prompts of a task are harder than others."""
_LEAST_VARIANCE = 0.01


@dataclass(frozen=True, slots=True)
class Alarm:
    """One sign of harm."""

    reason: str
    """The sign of harm, in a few words."""
    accuses: Callable[[Tier, Sampled], bool]
    """Returns whether a correct completion is accused, given the tier of its peer."""
    phrase: str = ""
    """The phrase of the accused texts; empty if there is none."""
    takes_back: bool = True
    """True if steps are taken back; False if the budget of replayed rounds is used up."""


Rounds = Annotated[float, Meta(ge=0, le=constants.REPLAY_BURST)]
"""A budget of rounds replayed."""


class ReplayBudget:
    """The rounds that alarms of one kind may still have replayed."""

    def __init__(self) -> None:
        self.rounds = constants.REPLAY_BURST

    @property
    def affords_alarm(self) -> bool:
        """True if the steps of one more alarm may be taken back."""
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
    """Raises the alarm when the local reward stays below the usual reward of the same tasks.

    If no external group was trained on for HARM_ROUNDS rounds, a fall of the reward is not the fault of peers. An alarm
    beyond the budget takes no steps back. It halves the strangers' share and the bound of J all the same.
    """

    def __init__(self, pass_rates: PassRates) -> None:
        self._pass_rates = pass_rates
        self._total = 0.0
        self._since = HARM_ROUNDS
        """Rounds since the last one that trained on external groups."""
        self._budget = ReplayBudget()

    def observe(self, local: Sequence[LocalGroup], *, external: int) -> Alarm | None:
        """Take in a round that trained on so many external groups, before the pass rates do. The alarm accuses all but
        friends: a peer that has proven itself may begin to do harm.
        """
        self._since = 0 if external else self._since + 1
        self._budget.pass_round()
        expected = [(group, usual) for group in local if (usual := self._pass_rates.reward(group.dataset)) is not None]
        if not expected:
            return None
        missed = sum(len(group.levels.each) * (usual.mean - group.levels.mean) for group, usual in expected)
        spread = sqrt(sum(_variance(len(group.levels.each), usual) for group, usual in expected))
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
        """Return the sum, the rounds since external groups were trained on, and the budget."""
        return to_object(_State(self._total, self._since, self._budget.rounds))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the sum in `state`. Raises MalformedError if it has another form."""
        read = from_json(_State, state)
        self._total, self._since, self._budget.rounds = read.total, read.since, read.budget


def _variance(completions: int, usual: Reward) -> float:
    """Variance of the summed reward of the completions of one prompt, for a task with this usual reward."""
    return completions * (1 + (completions - 1) * ALIKE) * max(usual.variance, _LEAST_VARIANCE)


@dataclass(frozen=True, slots=True)
class _Share:
    share: Share


class Exposure:
    """The strangers' share of one node."""

    def __init__(self, *, limits: Limits = LIMITS) -> None:
        self.share = limits.strangers_share
        """Share of the external groups of a round, between 0 and 1."""

    def observe(self, *, strangers: int, alarm: bool) -> None:
        """Take in a round that trained on `strangers` groups of strangers."""
        if alarm:
            self.share = max(constants.SHARE_LEAST, self.share / 2)
        elif strangers:
            self.share = min(1.0, self.share + constants.SHARE_RISE)

    def state_dict(self) -> dict[str, Any]:
        """The share."""
        return to_object(_Share(self.share))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the share in `state`. Raises MalformedError if it has another form."""
        self.share = from_json(_Share, state).share
