"""N-gram: masks a phrase that is frequent in external correct completions, rare in local ones, and does not pay.

A phrase in correct completions earns what they earn, so external texts alone cannot tell it from skill. Local
completions can: the policy itself generates the phrase now and then. If completions with the phrase are correct no more
often than completions of the same prompt without it, the phrase does not pay. A strategy that is worth learning pays.
The filter compares only completions that give an answer: a phrase just before the answer would else seem to pay.

Keys cost nothing, so a peer may split its texts over so many keys that each key sends too few texts to be judged. The
filter therefore looks at the newest completions of all peers together, of each tier, and of each peer. All of them
together show a phrase that many keys send. One peer or one tier shows a phrase that is rare among the texts of all. A
look can add to the masked phrases, and never removes one.

Completions cost nothing either. A peer may offer many that no filter lets through, so that a phrase is rare among all
that is on offer, and frequent in what is left of it. So a completion that a filter outside the learner rejects does not
count, and the filter also looks at the completions that were trained on.

The phrases of one peer are masked in the texts of all. An attacker could have the working of honest peers masked by
writing far more of it. So a masked phrase that is common in local completions is not masked for a peer that shows it
about as often.

A phrase that takes hold in local completions although it is masked was learnt from groups of earlier rounds. The filter
then raises an alarm, which names the groups to take back. Strangers may say an honest phrase forever, and the policy
may say it long after they have left. So each alarm of a phrase doubles the rounds until its next one (`Repeats`), and
all phrases together have one budget (`ReplayBudget`): an attacker that teaches one phrase after another runs out of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import pairwise
from typing import Any, ClassVar

from sapo_node.groups.codec import Count, from_json, to_object
from sapo_node.groups.messages import FilterName
from sapo_node.groups.record import GroupKey, LocalGroup, Span, VerifiedGroup, merged
from sapo_node.sampling.alarm import Alarm, ReplayBudget, Rounds
from sapo_node.sampling.filters.habits import (
    HABITS,
    JUDGED_HABITS,
    LOCAL_WINDOW,
    Habit,
    LocalTexts,
    LocalWindow,
    Sent,
    Sources,
    Stored,
    Window,
    habits_in,
    shares_of,
    teaches,
)
from sapo_node.sampling.filters.interface import Filter
from sapo_node.trust.constants import REPLAY_BURST, Tier

QUIET = 10
"""Rounds between the first alarm of a phrase and the second."""
REMEMBERED_ROUNDS = 320
"""Rounds after its last alarm in which a phrase is remembered."""


def runs(habit: Habit) -> Sequence[Habit]:
    """Return each two neighbouring words of a phrase; the phrase itself if it is one word."""
    return list(pairwise(habit)) or [habit]


@dataclass(frozen=True, slots=True)
class Raised:
    """The last alarm of a phrase."""

    habit: Habit
    wait: Count
    """Rounds from that alarm to the next one of the phrase, at least."""
    ago: Count = 0
    """Rounds since that alarm."""


class Repeats:
    """The phrases that an alarm was raised for."""

    def __init__(self, known: Sequence[Raised] = ()) -> None:
        """`known` is what `state` gave before a restart."""
        self._raised = {each.habit: each for each in known}

    @property
    def waiting(self) -> AbstractSet[Habit]:
        """The `runs` of phrases that may not be why an alarm is raised now."""
        return {run for each in self._raised.values() if each.ago < each.wait for run in runs(each.habit)}

    def pass_round(self) -> None:
        """Count a round."""
        later = (replace(each, ago=each.ago + 1) for each in self._raised.values())
        self._raised = {each.habit: each for each in later if each.ago < REMEMBERED_ROUNDS}

    def raised(self, habits: Iterable[Habit]) -> None:
        """Note the phrases of an alarm."""
        waits: dict[Habit, int] = {}
        for each in self._raised.values():
            for run in runs(each.habit):
                waits[run] = max(each.wait, waits.get(run, 0))
        for habit in habits:
            before = max(waits.get(run, 0) for run in runs(habit))
            self._raised[habit] = Raised(habit, 2 * before if before else QUIET)

    def state(self) -> tuple[Raised, ...]:
        """Return the state to keep through a restart."""
        return tuple(self._raised.values())


SHOWN = 8
"""Local completions with a habit before the filter can judge the habit."""
CORRECT = 16
"""Correct local completions to a task before external ones are compared with them."""
PROMPTS = 12
"""Prompts that a source must have completed correctly before its habits are judged."""
CONCENTRATED, IN_A_TASK = 0.08, 0.25
"""Least share of a source's correct completions with a habit: of all, and of those to one task."""
FOREIGN, STAYS = 4.0, 1.5
"""Least ratio of the external share to the local one before a habit is masked, and for it to stay masked: a
habit that begins to take hold here is no less foreign.
"""
PAYS = 0.1
"""By how much more often local completions with a habit are correct, if it pays, among those that give an answer."""
TAKES_HOLD, ALARMING = 0.02, 8.0
"""Share of local completions that show a masked phrase at which the filter raises an alarm, and how many times that
share the external share must be. Honest peers say an idle phrase up to four or five times as often as this policy; an
attacker says its phrase in every completion.
"""


@dataclass(frozen=True, slots=True)
class _State:
    local: tuple[LocalTexts, ...]
    """Oldest first."""
    external: tuple[Sent, ...]
    """Oldest first."""
    masked: tuple[Habit, ...]
    quiet: Count
    trained: tuple[Sent, ...] = ()
    """Oldest first."""
    raised: tuple[Raised, ...] = ()
    budget: Rounds = REPLAY_BURST


class NgramFilter(Filter):
    """Knows the habits of this policy and of the completions on offer."""

    name: ClassVar[FilterName] = "n-gram"

    def __init__(self, tier_of: Callable[[str], Tier]) -> None:
        """`tier_of` gives the tier of a peer."""
        self._tier_of = tier_of
        self._local = LocalWindow()
        self._often: dict[Habit, Habit] | None = None
        """Cache of `_judged`, until a local group changes it."""
        self._stored_local: Stored[LocalTexts] = Stored(LOCAL_WINDOW)
        self._sources = Sources()
        self._seen: set[GroupKey] = set()
        self._masked: set[Habit] = set()
        self._quiet = 0
        """Rounds until the filter may raise an alarm: the parts of one phrase take hold one after another."""
        self._repeats = Repeats()
        self._budget = ReplayBudget()

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Count what local completions show."""
        for group in local:
            texts = (each.text for each in group.completions)
            self._enter_local(LocalTexts(group.dataset, tuple(zip(texts, group.levels.correct, strict=True))))

    def read(self, group: VerifiedGroup, texts: Sequence[str]) -> None:
        """Count what the texts of a new group show."""
        if group.key not in self._seen and texts:
            self._offer(self._sent(group, texts))
        self._seen.add(group.key)

    def trained(self, group: VerifiedGroup, texts: Sequence[str]) -> None:
        """Count what the texts show that were trained on."""
        self._train(self._sent(group, texts))

    def looking(self, offered: Sequence[VerifiedGroup]) -> Iterator[None]:
        """Decide which habits are masked for now. A step looks at one source."""
        self._quiet = max(0, self._quiet - 1)
        self._repeats.pass_round()
        self._budget.pass_round()
        self._seen = {group.key for group in offered}
        sources = self._sources.peers({group.peer for group in offered})
        if offered:
            sources += self._sources.pools
        # Of what the policy hardly shows nothing can be said. External texts may show any number of such habits.
        judged = self._judged().keys()
        foreign = set[Habit]()
        for source in sources:
            foreign.update(self._foreign(source, judged))
            yield
        self._masked = {habit for habit in foreign if self._is_idle(habit)}

    def alarm(self) -> Alarm | None:
        """A masked phrase that has taken hold. The alarm accuses completions in which one was trained on, or a part."""
        if self._quiet or not self._budget.affords_alarm:
            return None
        waiting = self._repeats.waiting
        taken = {habit for habit in self._masked if waiting.isdisjoint(runs(habit)) and self._takes_hold(habit)}
        if not taken:
            return None
        self._quiet = QUIET
        self._budget.spend()
        self._repeats.raised(taken)
        _, longest = max((len(habit), habit) for habit in taken)
        return Alarm(
            "local completions began to say",
            lambda _, each: teaches(each.text, each.silent, taken),
            phrase=" ".join(longest),
        )

    def state_dict(self) -> dict[str, Any]:
        """The newest texts that count, at most STORED_BYTES of local ones, as many on offer, and as many that were
        trained on. What they show is counted again. So a filter whose texts are longer knows fewer of its groups after
        a restart.
        """
        return to_object(
            _State(
                tuple(self._stored_local),
                tuple(self._sources.offered_texts),
                masked=tuple(sorted(self._masked)),
                quiet=self._quiet,
                trained=tuple(self._sources.trained_texts),
                raised=self._repeats.state(),
                budget=self._budget.rounds,
            )
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state. A waiting group whose texts were not stored is read once more."""
        known = from_json(_State, state)
        for texts in known.local:
            self._enter_local(texts)
        for sent in known.external:
            self._offer(sent)
        for sent in known.trained:
            self._train(sent)
        self._seen = {sent.key for sent in known.external}
        self._masked, self._quiet, self._repeats = set(known.masked), known.quiet, Repeats(known.raised)
        self._budget.rounds = known.budget

    def mask(self, group: VerifiedGroup, text: str) -> tuple[Span, ...]:
        """Return the spans of masked habits in a text that its peer shows more often than this policy, in order; spans
        that overlap are one.
        """
        if not self._masked:
            return ()  # the usual case
        shown = [(span, habit) for habit, span in habits_in(text) if habit in self._masked]
        moderate = self._moderate(group, {habit for _, habit in shown}) if shown else set()
        return tuple(merged(span for span, habit in shown if habit not in moderate))

    def _enter_local(self, texts: LocalTexts) -> None:
        self._often = None
        self._local.add(texts, self._sources.all.share)
        self._stored_local.add(texts)

    def _sent(self, group: VerifiedGroup, texts: Sequence[str]) -> Sent:
        return Sent(group.key, group.peer, self._tier_of(group.peer), group.dataset, tuple(texts))

    def _offer(self, sent: Sent) -> None:
        self._sources.offer(sent, self._counted(shares_of(sent.texts)))

    def _train(self, sent: Sent) -> None:
        self._sources.train(sent, self._counted(shares_of(sent.texts)))

    def _counted(self, shares: Counter[Habit]) -> Counter[Habit]:
        """Return the habits of a prompt that count, if it shows more than HABITS. First come habits that can be judged,
        at most JUDGED_HABITS: those that are least like local completions. If they are fewer than HABITS, the habits
        that most of its completions show follow.
        """
        if len(shares) <= HABITS:
            return shares
        judged = self._judged()
        # The keys are those of the local habits: thousands of copies of the same words would fill the memory.
        known = [(judged[habit], share) for habit, share in shares.items() if habit in judged]
        found = nlargest(JUDGED_HABITS, known, key=lambda each: each[1] / self._local.shown(each[0]))
        others = (each for each in shares.items() if each[0] not in judged)
        return Counter(dict([*found, *nlargest(HABITS - len(found), others, key=lambda each: each[1])]))

    def _judged(self) -> Mapping[Habit, Habit]:
        """The habits that local completions show often enough to be judged, each under itself."""
        if self._often is None:
            self._often = {habit: habit for habit in self._local.often(SHOWN)}
        return self._often

    def _moderate(self, group: VerifiedGroup, habits: set[Habit]) -> set[Habit]:
        """Return the common habits of this policy that the peer of a group shows about as often as this policy, in all
        tasks and in that of the group. Such a peer alone would not keep the habits masked.

        A rare habit of this policy stays masked for all: keys that sent clean texts for long could show it all at once.
        """
        source = self._sources.of_peer.get(group.peer)
        if source is None:
            return set()
        known = self._comparable(source)
        here = Counter({group.dataset: known[group.dataset]})
        if not here.total() or known.total() < PROMPTS:
            return set()
        looks = (known, here) if here.total() >= PROMPTS else (known,)
        return {
            habit
            for habit in habits
            if self._expected(known, habit) >= CONCENTRATED * known.total()
            and all(source.times(prompts, habit) <= STAYS * self._expected(prompts, habit) for prompts in looks)
        }

    def _foreign(self, source: Window, judged: AbstractSet[Habit]) -> Iterator[Habit]:
        """Yield the judged habits that a source shows far more often than correct local completions to the same
        tasks.
        """
        known = self._comparable(source)
        yield from self._concentrated(source, known, judged, CONCENTRATED)
        for dataset, count in known.items():
            yield from self._concentrated(source, Counter({dataset: count}), judged, IN_A_TASK)

    def _concentrated(
        self, source: Window, prompts: Counter[str], judged: AbstractSet[Habit], least: float
    ) -> Iterator[Habit]:
        """Habits in at least this share of a source's completions to some tasks, far more often than in local ones.
        `prompts` are those of the source to each of the tasks.
        """
        total = prompts.total()
        if total < PROMPTS:
            return
        # A habit is concentrated in all tasks only if it is in one of them. Long local texts make thousands judged.
        found = {habit for dataset, count in prompts.items() for habit in source.shown(dataset, judged, least * count)}
        for habit in found:
            times = source.times(prompts, habit)
            ratio = STAYS if habit in self._masked else FOREIGN
            if times >= least * total and times > ratio * self._expected(prompts, habit):
                yield habit

    def _comparable(self, source: Window) -> Counter[str]:
        """The prompts of a source to each task of which enough local completions are known."""
        return Counter({task: count for task, count in source.prompts.items() if self._local.correct[task] >= CORRECT})

    def _expected(self, prompts: Counter[str], habit: Habit) -> float:
        """Return how often local completions to the same number of prompts of each task would show a habit."""
        return sum(count * self._local.share(dataset, habit) for dataset, count in prompts.items())

    def _takes_hold(self, habit: Habit) -> bool:
        """Return whether local completions began to show a phrase that an attacker may have put into external ones. A
        single word or number is too common to accuse a text of.
        """
        rate = self._local.rate(habit)
        judged = [pool for pool in self._sources.pools if pool.prompts.total() >= PROMPTS]
        external = max((pool.share(habit) for pool in judged), default=0.0)
        return len(habit) > 1 and rate >= TAKES_HOLD and external >= ALARMING * rate

    def _is_idle(self, habit: Habit) -> bool:
        """Return whether local completions with the habit are correct no more often."""
        return self._local.gain(habit) <= PAYS
