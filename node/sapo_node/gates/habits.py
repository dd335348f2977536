"""Habits: what a peer says in many of its right answers, hardly anybody here does, and does not pay.

A phrase that rides on right answers earns what they earn, so nothing that a peer sends can tell it from skill. But
this policy's own answers can: it says the phrase itself now and then, and is no more often right for it. A strategy
that is worth learning pays.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sapo_node.contribution import LocalGroup
from sapo_node.verify import VerifiedGroup

Habit = tuple[str, ...]
"""Words that follow one another."""
Span = tuple[int, int]
"""First character, and the one behind the last."""

LONGEST = 3
"""Words of a habit."""
WINDOW = 640
"""Own answers that count: of the last twenty rounds, where a round has four groups of eight."""
SAID = 8
"""Own answers that must show a habit before anything is said of it."""
RIGHT = 16
"""Own right answers to a task, before others' are compared with them."""
ASKED = 12
"""Questions, of a peer's last, that must have been answered rightly before anything is said of its habits."""
REMEMBERED = 48
"""Questions of a peer's that are remembered."""
CONCENTRATED = 0.08
"""Least share of a peer's right answers that a habit takes."""
FOREIGN, STAYS = 4.0, 1.5
"""How many times the own share that must be to be held back, and to stay so: what begins to take hold here is no less
foreign.
"""
PAYS = 0.1
"""By how much more often than others an own answer with the habit is right, if it pays."""

_WORDS = re.compile(r"[^\W\d_]+|\d+|\S")
_NUMBER = "#"


@lru_cache(maxsize=8192)  # a text that waits is looked at again every round
def habits_of(text: str) -> frozenset[Habit]:
    """All that a text shows: runs of one to LONGEST words. All numbers are one word, since they differ by question."""
    return frozenset(habit for habit, _ in _habits_in(text))


def _habits_in(text: str) -> Iterator[tuple[Habit, Span]]:
    """Each with its place in the text."""
    found = list(_WORDS.finditer(text))
    words = [_NUMBER if match[0].isdigit() else match[0].lower() for match in found]
    for count in range(1, LONGEST + 1):
        for at in range(len(words) - count + 1):
            yield tuple(words[at : at + count]), (found[at].start(), found[at + count - 1].end())


@dataclass(slots=True)
class _Tally:
    """Answers to the questions of one task, and those of them that showed each habit."""

    answers: int = 0
    right: int = 0
    shown: Counter[Habit] = field(default_factory=Counter)
    shown_right: Counter[Habit] = field(default_factory=Counter)

    def add(self, habits: Iterable[Habit], *, right: bool, count: int) -> None:
        self.answers += count
        self.right += count * right
        for habit in habits:
            self.shown[habit] += count
            self.shown_right[habit] += count * right
            if not self.shown[habit]:
                del self.shown[habit], self.shown_right[habit]

    def share(self, habit: Habit) -> float:
        """Of right answers."""
        return self.shown_right[habit] / self.right


class HabitGate:
    """Knows the habits of this policy and of those on offer."""

    def __init__(self) -> None:
        self._own: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._answers: deque[tuple[str, frozenset[Habit], bool]] = deque()
        self._peers: dict[str, deque[tuple[str, Counter[Habit]]]] = {}
        self._seen: set[tuple[str, int, int, int]] = set()
        self._held: set[Habit] = set()

    def observe(self, local: Iterable[LocalGroup]) -> None:
        """Take in a round's own answers, whatever they earned."""
        for group in local:
            for completion, right in zip(group.completions, group.rewards, strict=True):
                habits = habits_of(completion.text)
                self._answers.append((group.dataset, habits, right))
                self._own[group.dataset].add(habits, right=right, count=1)
        while len(self._answers) > WINDOW:
            dataset, habits, right = self._answers.popleft()
            self._own[dataset].add(habits, right=right, count=-1)

    def look(self, offered: Sequence[VerifiedGroup]) -> None:
        """Take in what is on offer, and decide which habits are held back for now."""
        here = {(group.peer, group.epoch, group.counter, group.k): group for group in offered}
        for place, group in here.items():
            if place not in self._seen:
                self._enter(group)
        self._seen = set(here)
        offering = {group.peer for group in offered}
        self._peers = {peer: answers for peer, answers in self._peers.items() if peer in offering}
        foreign = {habit for answers in self._peers.values() for habit in self._foreign(answers)}
        self._held = {habit for habit in foreign if self._is_idle(habit)}

    def _enter(self, group: VerifiedGroup) -> None:
        texts = [each.text for each, right in zip(group.completions, group.rewards, strict=True) if right]
        if texts:
            counts = Counter(habit for text in texts for habit in habits_of(text))
            shares = Counter({habit: count / len(texts) for habit, count in counts.items()})
            self._peers.setdefault(group.peer, deque(maxlen=REMEMBERED)).append((group.dataset, shares))

    def _foreign(self, answers: Iterable[tuple[str, Counter[Habit]]]) -> Iterator[Habit]:
        """What a peer says far more often than this policy does when it answers the same tasks rightly."""
        comparable = [(dataset, shares) for dataset, shares in answers if self._own[dataset].right >= RIGHT]
        if len(comparable) < ASKED:
            return
        said: Counter[Habit] = Counter()
        for _, shares in comparable:
            said.update(shares)
        datasets = Counter(dataset for dataset, _ in comparable)
        for habit, times in said.items():
            if times >= CONCENTRATED * len(comparable):
                own = sum(count * self._own[dataset].share(habit) for dataset, count in datasets.items())
                if times > (STAYS if habit in self._held else FOREIGN) * own:
                    yield habit

    def _is_idle(self, habit: Habit) -> bool:
        """Whether this policy has shown the habit often enough to know, and is no better for it."""
        said = right = expected = 0.0
        for tally in self._own.values():
            shown = tally.shown[habit]
            if shown:
                others = tally.answers - shown
                said += shown
                right += tally.shown_right[habit]
                expected += shown * (tally.right - tally.shown_right[habit]) / others if others else shown
        return said >= SAID and right <= expected + PAYS * said

    def silent(self, text: str) -> tuple[Span, ...]:
        """Where a text shows a habit that is held back, in order; what overlaps is one."""
        if self._held.isdisjoint(habits_of(text)):
            return ()
        found = sorted(span for habit, span in _habits_in(text) if habit in self._held)
        merged = found[:1]
        for begin, end in found[1:]:
            if begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return tuple(merged)
