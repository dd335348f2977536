"""The loss weight of a local group: the measure of external groups that no peer can forge.

A peer that knows the answers chooses how many of its completions are correct and how long all of them are. So the
groups on offer say what a group usually weighs only where nobody wants them to say something else. The texts of local
completions do not depend on that.

A group without correct completions is not weighed: a policy that writes next to nothing would find all groups too
heavy, and never learn from others again.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sapo_node.groups.advantage import advantages
from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import ExternalObjective
from sapo_node.groups.ranges import Amount
from sapo_node.groups.record import LocalGroup
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.weights import loss_weight, own_advantages

KEPT = 32
"""The newest informative local groups that count."""


@dataclass(frozen=True, slots=True)
class _State:
    weights: tuple[Amount, ...]
    """Of the groups that count, oldest first."""


class LocalWeight:
    """What the newest informative local groups weigh."""

    def __init__(
        self, pass_rates: PassRates, *, by_pass_rate: bool, objective: ExternalObjective = "positive-only"
    ) -> None:
        """`by_pass_rate` says whether correct external completions count by this node's own pass rate."""
        self._objective: ExternalObjective = objective
        self._pass_rates = pass_rates
        self._by_pass_rate = by_pass_rate
        self._weights: deque[float] = deque(maxlen=KEPT)

    @property
    def value(self) -> float | None:
        """The median; None before the first informative local group."""
        return median(self._weights) if self._weights else None

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Weigh the informative groups of a round, as if a peer had sent them."""
        for group in local:
            if len(set(group.rewards)) > 1:
                lengths = [len(each.text.encode()) for each in group.completions]
                self._weights.append(loss_weight(self._advantages(group), lengths, self._objective))

    def state_dict(self) -> dict[str, Any]:
        """The weights that count."""
        return to_object(_State(tuple(self._weights)))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the weights in `state`. Raises MalformedError where it holds none."""
        self._weights = deque(from_json(_State, state).weights, maxlen=KEPT)

    def _advantages(self, group: LocalGroup) -> tuple[float, ...]:
        counted = advantages(group.rewards)
        if not self._by_pass_rate:
            return counted
        own = own_advantages(group.rewards, self._pass_rates.pass_rate(group.dataset))
        return tuple(mine if reward else each for mine, each, reward in zip(own, counted, group.rewards, strict=True))
