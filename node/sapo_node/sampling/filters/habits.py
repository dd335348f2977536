"""Habits: the phrases that a source shows, and how often.

A habit is a phrase of up to LONGEST words, a number of two digits or more, a word with capitals as it stands, or more
blank than one space. `Window` counts the habits of external completions, and `LocalWindow` those of this policy. Both
hold only the newest texts, and both count when a text comes and when it goes, so that a query reads no text again.

`Sources` has one window for each source. A group is counted when it is read: over all peers, over its tier and over its
peer. Completions that this node trained on are counted once more, in a window of their own. A peer decides what it
offers, and may offer any number of clean groups that are never trained on. It does not decide what is trained on.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Generic, Protocol, TypeVar

from sapo_node.groups.record import GroupKey, Span
from sapo_node.tasks.answer import answer_span
from sapo_node.trust.constants import Tier

STORED_BYTES = 1_000_000
"""Bytes of local texts that are stored, the newest; of external texts on offer as many, and of those trained on."""


@dataclass(frozen=True, slots=True)
class LocalTexts:
    """The completions that this policy generated for one prompt."""

    dataset: str
    completions: tuple[tuple[str, bool], ...]
    """The text of each, and whether it is correct."""

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(text.encode()) for text, _ in self.completions)


@dataclass(frozen=True, slots=True)
class Sent:
    """The correct completions that a peer gave to one prompt."""

    key: GroupKey
    peer: str
    tier: Tier
    dataset: str
    texts: tuple[str, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(text.encode()) for text in self.texts)


class Sized(Protocol):
    """The texts of one prompt."""

    @property
    def size(self) -> int:
        """In bytes."""
        ...


T = TypeVar("T", bound=Sized)


class Stored(Generic[T]):
    """The newest texts of one source, as far as they are stored."""

    def __init__(self, most: int) -> None:
        """At most `most` prompts and STORED_BYTES are stored."""
        self._most = most
        self._kept: deque[T] = deque()
        self._bytes = 0

    def __iter__(self) -> Iterator[T]:
        """Oldest first."""
        return iter(self._kept)

    def add(self, texts: T) -> None:
        """Store the texts of one prompt, and forget the oldest beyond the limits."""
        self._kept.append(texts)
        self._bytes += texts.size
        while self._bytes > STORED_BYTES or len(self._kept) > self._most:
            self._bytes -= self._kept.popleft().size


Habit = tuple[str, ...]
"""Words that follow one another."""

LONGEST = 3
"""Words of a habit."""
LONGEST_WORD = 32
"""Characters of a word that count. Words that begin alike up to there are the same, however long they are."""
LOCAL_WINDOW = 80
"""Local groups that count: the last twenty rounds at four groups a round."""
LOCAL_HABITS = 8192
"""Habits that count of one local group. Eight completions of 2 KB of ordinary text show fewer."""

_WORDS = re.compile(r"[^\W\d_]+|\d+|\S")
_BLANKS = re.compile(r"\s{2,}|[^\S ]")
_NUMBER = "#"
_NOTHING = 1e-9
"""A share below this is a rounding error of a sum from which all texts with the habit have gone."""


def habits_of(text: str) -> frozenset[Habit]:
    """All habits of a text: runs of one to LONGEST words, in which every number is the same word, since numbers differ
    by prompt, and capitals count for nothing; each number as it stands, but no single digit: those are in every longer
    computation; each word with capitals as it stands; and each blank that is more than one space.

    The answer shows no habit, and no habit crosses it: the reward decides what a correct answer says. Policies that
    solve other tasks than this one give other answers, and those are no phrases of theirs.
    """
    return frozenset(habit for matches in _beside_the_answer(text) for habit in _habits(matches))


def habits_in(text: str) -> Iterator[tuple[Habit, Span]]:
    """Each habit of a text with its place in the text."""
    for matches in _beside_the_answer(text):
        yield from zip(_habits(matches), _spans(matches), strict=True)


def teaches(text: str, silent: Sequence[Span], habits: AbstractSet[Habit]) -> bool:
    """Return whether a text shows one of the habits at a place that the spans in `silent` do not cover."""
    return any(
        habit in habits and not any(first <= begin and end <= last for first, last in silent)
        for habit, (begin, end) in habits_in(text)
    )


def _beside_the_answer(text: str) -> Iterator[list[re.Match[str]]]:
    """The words before the answer, those after it, and the blanks beside it, each of which follows no other."""
    begin, end = answer_span(text) or (len(text), len(text))
    for parts in ((0, begin), (end, len(text))):
        yield list(_WORDS.finditer(text, *parts))
        yield from ([blank] for blank in _BLANKS.finditer(text, *parts))


def _habits(matches: Sequence[re.Match[str]]) -> Iterator[Habit]:
    """The habits of words that follow one another, in the order of `_spans`."""
    words = [_NUMBER if match[0].isdigit() else match[0][:LONGEST_WORD].lower() for match in matches]
    for count in range(1, LONGEST + 1):
        yield from zip(*(words[first:] for first in range(count)), strict=False)
    yield from ((match[0][:LONGEST_WORD],) for match in matches if _counts_as_it_stands(match[0]))


def _spans(matches: Sequence[re.Match[str]]) -> Iterator[Span]:
    begins, ends = [match.start() for match in matches], [match.end() for match in matches]
    for count in range(1, LONGEST + 1):
        yield from zip(begins, ends[count - 1 :], strict=False)
    yield from (match.span() for match in matches if _counts_as_it_stands(match[0]))


def _counts_as_it_stands(word: str) -> bool:
    """Return whether a word is a number of two digits or more, or has capitals."""
    return len(word) > 1 if word.isdigit() else word[:LONGEST_WORD].lower() != word[:LONGEST_WORD]


def shares_of(texts: Sequence[str]) -> Counter[Habit]:
    """The share of the completions of one prompt, at least one, that show each habit."""
    counts = Counter(habit for text in texts for habit in habits_of(text))
    return Counter({habit: count / len(texts) for habit, count in counts.items()})


class Window:
    """The newest prompts that one source completed correctly: a peer, a tier, or all peers."""

    def __init__(self, prompts: int) -> None:
        """`prompts` is how many of them count."""
        self._most = prompts
        self._kept: deque[tuple[str, Counter[Habit]]] = deque()
        self.prompts: Counter[str] = Counter()
        """Prompts that count, by task."""
        self.habits = 0
        """Habits that are kept, prompt by prompt."""
        self._shares: defaultdict[str, Counter[Habit]] = defaultdict(Counter)

    def add(self, dataset: str, shares: Counter[Habit]) -> None:
        """Count the correct completions of one prompt, given what they show, and forget the oldest prompt beyond the
        limit. The window keeps `shares` and changes nothing of it: several windows may keep the same.
        """
        self._kept.append((dataset, shares))
        self.habits += len(shares)
        self.prompts[dataset] += 1
        self._shares[dataset].update(shares)
        if len(self._kept) > self._most:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        """Forget the oldest prompt; there must be one."""
        dataset, shares = self._kept.popleft()
        self.habits -= len(shares)
        self.prompts[dataset] -= 1
        if not self.prompts[dataset]:
            del self.prompts[dataset], self._shares[dataset]
            return
        summed = self._shares[dataset]
        for habit, share in shares.items():
            summed[habit] -= share
            if summed[habit] < _NOTHING:
                del summed[habit]

    def shown(self, dataset: str, habits: AbstractSet[Habit], least: float) -> list[Habit]:
        """Return the given habits whose shares, summed over the prompts of a task, are at least `least`."""
        shares = self._shares[dataset]
        if len(shares) < len(habits):
            return [habit for habit, share in shares.items() if share >= least and habit in habits]
        return [habit for habit in habits if shares.get(habit, 0.0) >= least]

    def times(self, tasks: Iterable[str], habit: Habit) -> float:
        """The sum, over the prompts of several tasks, of the share of completions that show a habit."""
        return sum(self._shares[task][habit] for task in tasks)

    def share(self, habit: Habit) -> float:
        """Share of the completions to all tasks that show the habit; 0 before the first one."""
        prompts = self.prompts.total()
        return sum(shares[habit] for shares in self._shares.values()) / prompts if prompts else 0.0


@dataclass(slots=True)
class _Answers:
    """The local completions of one prompt, and how many of them show each habit."""

    completions: int = 0
    correct: int = 0
    unanswered: int = 0
    """Completions that give no answer."""
    shown: Counter[Habit] = field(default_factory=Counter)
    shown_correct: Counter[Habit] = field(default_factory=Counter)
    shown_unanswered: Counter[Habit] = field(default_factory=Counter)

    def add(self, text: str, *, correct: bool) -> None:
        answers = answer_span(text) is not None
        habits = habits_of(text)
        self.completions += 1
        self.correct += correct
        self.unanswered += not answers
        self.shown.update(habits)
        if correct:
            self.shown_correct.update(habits)
        if not answers:
            self.shown_unanswered.update(habits)

    def keep(self, habits: Sequence[Habit]) -> None:
        """Forget all habits but these."""
        self.shown = Counter({habit: self.shown[habit] for habit in habits})
        self.shown_correct = Counter({habit: shown for habit in habits if (shown := self.shown_correct[habit])})
        self.shown_unanswered = Counter({habit: shown for habit in habits if (shown := self.shown_unanswered[habit])})

    def answered(self, habit: Habit) -> int:
        """Completions with the habit that give an answer."""
        return self.shown[habit] - self.shown_unanswered[habit]

    def gain(self, habit: Habit) -> float:
        """By how much more completions with the habit are correct than as many without it, of one prompt, which is as
        hard for both. 0 if all that answer show it.

        Only completions that give an answer are compared. A completion that comes to the place before its answer gives
        one, so whatever a text says there would else seem to pay.
        """
        shown, correct = self.answered(habit), self.shown_correct[habit]
        others = self.completions - self.unanswered - shown
        return correct - shown * (self.correct - correct) / others if others else 0.0


class LocalWindow:
    """The newest local completions."""

    def __init__(self) -> None:
        self._groups: deque[tuple[str, _Answers]] = deque()
        self._completions = 0
        self.correct: Counter[str] = Counter()
        """Correct local completions, by task."""
        self._shown_correct: defaultdict[str, Counter[Habit]] = defaultdict(Counter)
        self._shown: Counter[Habit] = Counter()

    def add(self, texts: LocalTexts, external: Callable[[Habit], float]) -> None:
        """Count the completions of one prompt, and forget those of the oldest prompt beyond LOCAL_WINDOW.

        Of more than LOCAL_HABITS habits, first those count whose `external` share is greatest, because the filter
        compares the two; then those that most of the completions show.
        """
        answers = _Answers()
        for text, correct in texts.completions:
            answers.add(text, correct=correct)
        if len(answers.shown) > LOCAL_HABITS:
            answers.keep(nlargest(LOCAL_HABITS, answers.shown, key=lambda each: (external(each), answers.shown[each])))
        self._groups.append((texts.dataset, answers))
        self._count(texts.dataset, answers, 1)
        if len(self._groups) > LOCAL_WINDOW:
            self._count(*self._groups.popleft(), -1)

    def _count(self, dataset: str, answers: _Answers, sign: int) -> None:
        self._completions += sign * answers.completions
        self.correct[dataset] += sign * answers.correct
        shown_correct = self._shown_correct[dataset]
        for habit, count in answers.shown.items():
            self._shown[habit] += sign * count
            shown_correct[habit] += sign * answers.shown_correct[habit]
            if not self._shown[habit]:
                del self._shown[habit]
            if not shown_correct[habit]:
                del shown_correct[habit]

    def often(self, least: int) -> frozenset[Habit]:
        """The habits that at least this many local completions show."""
        return frozenset(habit for habit, shown in self._shown.items() if shown >= least)

    def shown(self, habit: Habit) -> int:
        """Return the number of local completions that show the habit."""
        return self._shown[habit]

    def rate(self, habit: Habit) -> float:
        """Share of all local completions that show the habit; 0 before the first one."""
        return self._shown[habit] / self._completions if self._completions else 0.0

    def share(self, dataset: str, habit: Habit) -> float:
        """Share of the correct local completions to a task that show the habit. There must be some."""
        return self._shown_correct[dataset][habit] / self.correct[dataset]

    def gain(self, habit: Habit) -> float:
        """By how much more often local completions that give an answer are correct if they show the habit, at most 1; 0
        if none of them shows it.
        """
        answered = sum(answers.answered(habit) for _, answers in self._groups)
        return sum(answers.gain(habit) for _, answers in self._groups) / answered if answered else 0.0


POOLED = 512
"""Newest prompts that count of all peers together; of each tier, those among them."""
REMEMBERED = 96
"""Newest prompts that count of each peer."""
TRAINED = 128
"""Newest prompts that count of those that were trained on: those of eight rounds or more."""
PEERS = 64
"""Peers that are looked at one by one: those that sent completions last."""
HABITS, JUDGED_HABITS = 1024, 4096
"""Habits that count of one prompt: of all, and of those that can be judged. Long texts of random words show any number.
Of what can be judged far more count, as a phrase could else hide among habits that every text shows."""
HABITS_OF_PEERS = 2 * POOLED * HABITS
"""Habits, prompt by prompt, that count of the peers one by one. Many peers with long texts would fill the memory."""


class Sources:
    """The windows of all sources, and the texts behind them as far as they are stored."""

    def __init__(self) -> None:
        self.all = Window(POOLED)
        """The window of all peers."""
        self.of_tier = {tier: Window(POOLED) for tier in Tier}
        self.of_peer: dict[str, Window] = {}
        """The peer that was heard from longest ago comes first."""
        self.trained = Window(TRAINED)
        self.offered_texts: Stored[Sent] = Stored(POOLED)
        self.trained_texts: Stored[Sent] = Stored(TRAINED)
        self._tiers: deque[Tier] = deque()
        """The tiers of the prompts that count in `all`, oldest first."""

    @property
    def pools(self) -> tuple[Window, ...]:
        """The windows that hold completions of many peers."""
        return (self.all, *self.of_tier.values(), self.trained)

    def peers(self, names: Iterable[str]) -> list[Window]:
        """The windows of some peers, without those of which nothing is known."""
        return [self.of_peer[name] for name in names if name in self.of_peer]

    def offer(self, sent: Sent, shares: Counter[Habit]) -> None:
        """Count what the completions of a prompt on offer show."""
        if len(self._tiers) == POOLED:
            # A tier from which nothing comes any more, because its peers are proven by now, would else be judged for
            # ever by what this policy left behind long ago.
            self.of_tier[self._tiers.popleft()].forget_oldest()
        self._tiers.append(sent.tier)
        self.offered_texts.add(sent)
        of_peer = self.of_peer.pop(sent.peer, None) or Window(REMEMBERED)
        self.of_peer[sent.peer] = of_peer
        for window in (of_peer, self.all, self.of_tier[sent.tier]):
            window.add(sent.dataset, shares)
        while len(self.of_peer) > PEERS or self._habits_of_peers() > HABITS_OF_PEERS:
            del self.of_peer[next(iter(self.of_peer))]

    def train(self, sent: Sent, shares: Counter[Habit]) -> None:
        """Count what the completions of a prompt show that were trained on."""
        self.trained_texts.add(sent)
        self.trained.add(sent.dataset, shares)

    def _habits_of_peers(self) -> int:
        return sum(window.habits for window in self.of_peer.values())
