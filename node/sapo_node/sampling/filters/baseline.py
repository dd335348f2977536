"""Baseline: what a correct completion counts is for the receiver to say, by its own pass rate.

A sender that knows the answers decides how many of its completions are incorrect: a group that is half junk makes the
most of its other half.
"""

from typing import ClassVar

from sapo_node.groups.messages import FilterName
from sapo_node.groups.record import VerifiedGroup
from sapo_node.sampling.filters.interface import Filter
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.weights import own_advantages


class BaselineFilter(Filter):
    """Gives a correct completion its advantage against the receiver's own pass rate on the task."""

    name: ClassVar[FilterName] = "baseline"

    def __init__(self, pass_rates: PassRates) -> None:
        self._pass_rates = pass_rates

    def worth(self, group: VerifiedGroup) -> float | None:
        """The advantage of a correct completion; None for a group without correct or without incorrect ones."""
        if len(set(group.rewards)) < 2:
            return None
        return max(own_advantages(group.rewards, self._pass_rates.pass_rate(group.dataset)))
