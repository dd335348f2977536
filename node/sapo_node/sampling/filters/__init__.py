"""Filters: conditions on a correct completion, besides being correct, before this node trains on it.

Re-verification tells correct from incorrect; it cannot see what a correct completion teaches beside the answer. Each
filter checks one such thing against what no peer can forge: the completions and the gradient of this policy.

- `one-answer` rejects text after the first answer; sampling always stops there. Every node uses it. The operator
  chooses from all others.
- `baseline` sets the weight of a correct completion. `n-gram`, `length` and `equation` read texts.
- `min-token-prob` and `answer-likelihood` need the probabilities of the policy: the learner applies them, in
  `sapo_node.learner.filters`. The learner also applies the bound of `length` in tokens.

A round calls, in this order:

    filters.looking(groups)                         on all groups on offer, in steps: other tasks run between two steps
    offered, stopped = filters.judge(groups)        before the draw: what a group counts decides whether it is drawn
    filters.mask(group), filters.bounds(group)      after the draw, for each drawn group
    filters.trained(group, texts)                   after the step, for each group that was trained on
    filters.observe(local)                          after the step
    filters.alarm()                                 last
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sapo_node.groups.messages import Bounds, FilterName
from sapo_node.groups.record import LocalGroup, Span, VerifiedGroup, merged
from sapo_node.sampling.alarm import Alarm
from sapo_node.sampling.filters.equation import EquationFilter
from sapo_node.sampling.filters.interface import Filter
from sapo_node.sampling.filters.length import LengthFilter
from sapo_node.sampling.filters.min_token_prob import MinTokenProbFilter
from sapo_node.sampling.filters.ngram import NgramFilter
from sapo_node.sampling.weights import PassRates, own_advantages
from sapo_node.tasks.answer import answer_end, answer_span
from sapo_node.trust.constants import Tier


class OneAnswerFilter(Filter):
    """Rejects a correct completion in which an answer ends before the scored one does, outside thinking."""

    name: ClassVar[FilterName] = "one-answer"

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Return whether the text goes on to another answer behind the end of sampling.

        The last answer is scored (ANS-1). A peer could write an incorrect answer that this policy gives often, and the
        correct answer behind it. The policy would learn the incorrect answer, because it would never reach the other.
        """
        del group
        end, scored = answer_end(text), answer_span(text)
        return end is not None and scored is not None and scored[1] >= end


class BaselineFilter(Filter):
    """Gives a correct completion its advantage against this policy's own pass rate on the task.

    A sender that knows the answers decides how many of its completions are incorrect: in a group that is half junk, the
    other half would count most.
    """

    name: ClassVar[FilterName] = "baseline"

    def __init__(self, pass_rates: PassRates) -> None:
        self._pass_rates = pass_rates

    def worth(self, group: VerifiedGroup) -> float | None:
        """The advantage of a correct completion; None for a group without correct or without incorrect ones."""
        if not group.levels.is_mixed:
            return None
        return max(own_advantages(group.levels, self._pass_rates.pass_rate(group.dataset)))


MASKED = 256
"""Places of one completion that are masked, at most. A completion with more is masked from the first of them to the
last: a batch that lists a place for every other character would take several times the bytes of its texts."""


def _stranger(_peer: str) -> Tier:
    return Tier.STRANGER


@dataclass(frozen=True, slots=True)
class Offered:
    """A group that may be drawn, with what the filters say of its correct completions."""

    group: VerifiedGroup
    worth: float | None = None
    """The advantage of each; None for that within its group."""
    rejected: Mapping[int, FilterName] = field(default_factory=dict)
    """The rejected completions by number, and the filter that rejects each."""

    def advantages(self, unfiltered: Sequence[float]) -> tuple[float, ...]:
        """The advantages of all completions, in order, from those without filters."""
        return tuple(
            0.0 if number in self.rejected else self.worth if advantage > 0 and self.worth is not None else advantage
            for number, advantage in enumerate(unfiltered)
        )


class Filters:
    """The filters outside the learner that a node uses."""

    def __init__(
        self,
        names: Iterable[str],
        pass_rates: PassRates,
        tier_of: Callable[[str], Tier] = _stranger,
    ) -> None:
        """`names` are of the filters that the operator chose; `answer-likelihood`, of the learner alone, means nothing
        here. `tier_of` gives the tier of a peer; without it every peer is a stranger.
        """
        names = {*names, OneAnswerFilter.name}
        # Where several filters reject a completion, the first of them is named.
        known = (
            OneAnswerFilter(),
            BaselineFilter(pass_rates),
            NgramFilter(tier_of),
            EquationFilter(),
            LengthFilter(),
            MinTokenProbFilter(),
        )
        self._used: tuple[Filter, ...] = tuple(each for each in known if each.name in names)

    @property
    def by_name(self) -> Mapping[str, Filter]:
        """Each filter that is used."""
        return {each.name: each for each in self._used}

    def looking(self, groups: Sequence[VerifiedGroup]) -> Iterator[None]:
        """Read each group on offer, and then look at all of them, in steps.

        Filters read no correct completion that another filter rejects: a text that is never trained on says nothing
        about those that are.
        """
        for group in groups:
            texts = group.correct_without(self._rejected(group))
            for each in self._used:
                each.read(group, texts)
            yield
        for each in self._used:
            yield from each.looking(groups)

    def offer(self, groups: Sequence[VerifiedGroup]) -> tuple[list[Offered], list[tuple[VerifiedGroup, FilterName]]]:
        """Look at groups and `judge` them, without a pause."""
        for _ in self.looking(groups):
            pass
        return self.judge(groups)

    def judge(self, groups: Sequence[VerifiedGroup]) -> tuple[list[Offered], list[tuple[VerifiedGroup, FilterName]]]:
        """Return the groups that may be drawn. Of each other group every correct completion is rejected: return it with
        the filter that rejects the first one. It would take the place of another group as long as it waits.
        """
        kept: list[Offered] = []
        stopped: list[tuple[VerifiedGroup, FilterName]] = []
        for group in groups:
            rejected = self._rejected(group)
            if rejected and group.levels.is_mixed and len(rejected) == group.levels.right:
                stopped.append((group, next(iter(rejected.values()))))
            else:
                kept.append(Offered(group, self._worth(group), rejected))
        return kept, stopped

    def mask(self, group: VerifiedGroup) -> tuple[tuple[Span, ...], ...]:
        """The characters of each completion of a group that must not be trained on, in order, at most MASKED places of
        each; empty if there are none in any completion.
        """
        masked = tuple(self._spans(group, completion.text) for completion in group.completions)
        return masked if any(masked) else ()

    def bounds(self, group: VerifiedGroup) -> Bounds:
        """The bounds that the learner applies to the correct completions of a group."""
        bounds = Bounds()
        for each in self._used:
            bounds = each.bounds(group, bounds)
        return bounds

    def trained(self, group: VerifiedGroup, texts: Sequence[str]) -> None:
        """Take in the correct completions of a group that this node trained on, at least one."""
        for each in self._used:
            each.trained(group, texts)

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Take in local groups."""
        for each in self._used:
            each.observe(local)

    def alarm(self) -> Alarm | None:
        """The alarm of the first filter that raises one."""
        return next((alarm for each in self._used if (alarm := each.alarm())), None)

    def _rejected(self, group: VerifiedGroup) -> dict[int, FilterName]:
        return {
            number: name
            for number, (completion, is_correct) in enumerate(zip(group.completions, group.levels.correct, strict=True))
            if is_correct and (name := self._rejecting(group, completion.text))
        }

    def _rejecting(self, group: VerifiedGroup, text: str) -> FilterName | None:
        return next((each.name for each in self._used if each.rejects(group, text)), None)

    def _worth(self, group: VerifiedGroup) -> float | None:
        return next((worth for each in self._used if (worth := each.worth(group)) is not None), None)

    def _spans(self, group: VerifiedGroup, text: str) -> tuple[Span, ...]:
        spans = merged(span for each in self._used for span in each.mask(group, text))
        return tuple(spans) if len(spans) <= MASKED else ((spans[0][0], spans[-1][1]),)
