"""Min-token-prob: how improbable the text before the answer may be in a peer's correct completion.

The learner applies this filter, because it knows the probabilities. This part says which ones are too low. This policy
would hardly write a text with a token below MIN_TOKEN_PROB, or one that as a whole is below MIN_TEXT_PROB. But a policy
that samples long texts from its whole vocabulary writes such texts itself. Then the bounds are lower: else the node
could learn from no peer.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import Bounds, FilterName
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter
from sapo_node.tasks.answer import ANSWER_END

KEPT = 64
"""The newest local correct completions to a task that count."""
KNOWN = 32
"""Local correct completions that must be known before they lower a bound: to a task, or to all tasks for a task that
this policy hardly solves."""
QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class _State:
    own: Mapping[str, tuple[Bounds, ...]]
    """The log-probabilities of each of the newest local correct completions, by task."""


class MinTokenProbFilter(Filter):
    """Sets each bound so that it would reject at most QUANTILE of the newest local correct completions to a task."""

    name: ClassVar[FilterName] = "min-token-prob"

    def __init__(self) -> None:
        self._own: defaultdict[str, deque[Bounds]] = defaultdict(lambda: deque(maxlen=KEPT))
        """The log-probability of the least probable token of each, and that of the whole completion."""

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Take in the local completions of a round. Completions without known probabilities do not count, nor
        those with text behind the answer, as a foreign trainer may write: the bounds hold for the text before it.
        """
        for group in local:
            pairs = zip(group.completions, group.levels.correct, strict=True)
            correct = (each for each, is_correct in pairs if is_correct)
            known = (each.logprobs for each in correct if each.text.rstrip().endswith(ANSWER_END) and each.logprobs)
            self._own[group.dataset].extend(Bounds(min(logprobs), sum(logprobs)) for logprobs in known)

    def bounds(self, group: VerifiedGroup, usual: Bounds) -> Bounds:
        """Lower the log-probabilities if local completions are less probable."""
        own: Sequence[Bounds] = self._own.get(group.dataset, ())
        if len(own) < KNOWN:
            own = tuple(chain.from_iterable(self._own.values()))
        if len(own) < KNOWN:
            return usual
        return replace(
            usual,
            token=min(usual.token, _lowest(each.token for each in own)),
            text=min(usual.text, _lowest(each.text for each in own)),
        )

    def state_dict(self) -> dict[str, Any]:
        """The log-probabilities that count: those of at most KEPT completions for each task."""
        return to_object(_State({dataset: tuple(own) for dataset, own in self._own.items()}))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state, as `Filter` says."""
        for dataset, own in from_json(_State, state).own.items():
            self._own[dataset].extend(own)


def _lowest(logprobs: Iterable[float]) -> float:
    """The log-probability that at most QUANTILE of these are below."""
    in_order = sorted(logprobs)
    return in_order[int(QUANTILE * len(in_order))]
