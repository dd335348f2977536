"""Min-token-prob: how improbable a token before the answer may be in a peer's correct completion.

The learner applies this filter, because it knows the probabilities. This part says which one is too low. A token below
MIN_TOKEN_PROB is one that this policy would hardly write. But a policy that samples long texts from its whole
vocabulary writes such tokens itself. Then the bound is lower: else the node could learn from nobody.
"""

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import MIN_TOKEN_PROB, FilterName
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter

KEPT = 64
"""The newest local correct completions to a task that count."""
KNOWN = 16
"""Local correct completions that must be known before they lower the bound: to a task, or to all tasks for a task that
this policy hardly solves."""
QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class _State:
    least: Mapping[str, tuple[float, ...]]
    """Of each of the newest local correct completions, the log-probability of its least probable token, by task."""


class MinTokenProbFilter(Filter):
    """Sets the bound so that it would reject at most QUANTILE of the newest local correct completions to a task."""

    name: ClassVar[FilterName] = "min-token-prob"

    def __init__(self) -> None:
        self._own: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Take in the local completions of a round. Completions of a server have no probabilities."""
        for group in local:
            correct = (each for each, reward in zip(group.completions, group.rewards, strict=True) if reward)
            self._own[group.dataset].extend(min(each.logprobs) for each in correct if each.logprobs)

    def min_token_prob(self, group: VerifiedGroup) -> float:
        """As in the interface: MIN_TOKEN_PROB, or less if local completions hold less probable tokens."""
        own: Sequence[float] = self._own.get(group.dataset, ())
        if len(own) < KNOWN:
            own = tuple(chain.from_iterable(self._own.values()))
        if len(own) < KNOWN:
            return MIN_TOKEN_PROB
        return math.exp(min(math.log(MIN_TOKEN_PROB), sorted(own)[int(QUANTILE * len(own))]))

    def state_dict(self) -> dict[str, Any]:
        """The log-probabilities that count: at most KEPT for each task."""
        return to_object(_State({dataset: tuple(own) for dataset, own in self._own.items()}))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As in the interface."""
        for dataset, least in from_json(_State, state).least.items():
            self._own[dataset].extend(least)
