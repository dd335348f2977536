"""How much each verified group on offer is worth to this node.

`trust` draws by trust and age. `uniform` draws every group alike, as SAPO does; a node cannot be set to it, only the
simulator compares with it. Neither asks what the receiver can do already, and a strong node gained nothing from weak
peers. `informative` asks: a correct completion is drawn, and weighs, by how much better it is than what this policy
does itself. A correct completion teaches most in a task that this policy hardly ever solves.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

from sapo_node.groups.advantage import advantages, counts
from sapo_node.groups.messages import ExternalObjective
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.pass_rates import PassRates

Selection = Literal["trust", "informative", "uniform"]

SPREAD = 0.35
"""Least deviation by which an own advantage is divided. Without it a task that is hardly ever solved would dominate."""
LEAST_PREFERENCE = 0.05


def preference(group: VerifiedGroup, pass_rates: PassRates) -> float:
    """How much a correct completion of a group's task is worth to this policy, as a share of the most possible."""
    rate = pass_rates.pass_rate(group.dataset)
    return 1.0 if rate is None else max(LEAST_PREFERENCE, SPREAD * _worth(rate))


def own_advantages(rewards: Sequence[bool], rate: float | None) -> tuple[float, ...]:
    """Advantages against the receiver's own pass rate b on the task, (r - b) / max(sqrt(b (1 - b)), SPREAD).

    The sender's group has no say in them: neither a rare success among staged failures nor a good day counts for more
    than it is worth here. Where the own rate is not known yet the group's own advantages stand in.
    """
    if rate is None or len(set(rewards)) < 2:
        return advantages(rewards)
    right, wrong = _worth(rate), -rate / _deviation(rate)
    return tuple(right if reward else wrong for reward in rewards)


def worth(group: LocalGroup | VerifiedGroup, pass_rates: PassRates) -> float:
    """What a group is worth to this policy: the sum of its positive own advantages. Only correct completions count: the
    loss does not count external completions with negative advantage.
    """
    weighed = own_advantages(group.rewards, pass_rates.pass_rate(group.dataset))
    return sum(advantage for advantage in weighed if advantage > 0)


def loss_weight(
    weighed: Sequence[float], lengths: Sequence[int], objective: ExternalObjective = "positive-only"
) -> float:
    """Loss weight of an external group: sum over its completions of |advantage| x UTF-8 bytes, with one byte for each
    end; never 0. Only completions that the loss counts have a part in it: a peer whose incorrect completions are empty
    would else teach more than its group seems to weigh.
    """
    counted = (
        abs(advantage) * (1 + length)
        for advantage, length in zip(weighed, lengths, strict=True)
        if counts(advantage, external=True, objective=objective)
    )
    return max(1.0, sum(counted))


def _worth(rate: float) -> float:
    """The own advantage of a correct completion."""
    return (1 - rate) / _deviation(rate)


def _deviation(rate: float) -> float:
    return max(sqrt(rate * (1 - rate)), SPREAD)
