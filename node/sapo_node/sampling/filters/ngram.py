"""N-gram: masks a phrase that is frequent in external correct completions, rare in local ones, and does not pay.

The filter looks at the newest completions of all peers together, and at those of each peer. Keys cost nothing, so a
peer may split its texts over so many keys that each of them sends too few to be judged. The texts together stay the
same. A look at one peer finds a phrase that is too rare among the texts of all.

A phrase in correct completions earns what they earn, so a peer's texts alone cannot tell it from skill. Local
completions can: the policy itself generates the phrase now and then. If completions with the phrase are correct no more
often than completions of the same prompt without it, the phrase does not pay. A strategy that is worth learning pays.

A habit is such a phrase: up to LONGEST words in a row.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import FilterName
from sapo_node.groups.types import GroupKey, LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter, GradientVote, Span

Habit = tuple[str, ...]
"""Words that follow one another."""

LONGEST = 3
"""Words of a habit."""
WINDOW = 80
"""Local groups that count: the last twenty rounds at four groups a round."""
SAID = 8
"""Local completions with a habit before the filter can judge the habit."""
RIGHT = 16
"""Local correct completions to a task before external ones are compared with them."""
ASKED = 12
"""Prompts that a peer, or all peers together, must have completed correctly before the habits are judged."""
REMEMBERED = 96
"""Prompts that are remembered for each peer."""
PEERS = 64
"""Peers that are remembered, those that sent completions last."""
POOLED = 512
"""Prompts that are remembered of all peers together."""
STORED_BYTES = 1_000_000
"""Bytes of the texts of all peers together that are stored, the newest, and as many of the texts peer by peer, those of
the peers that sent completions last."""
CONCENTRATED, IN_A_TASK = 0.08, 0.25
"""Least share of the correct completions of a peer, or of all peers together, with a habit: of all, and of those to
one task."""
FOREIGN, STAYS = 4.0, 1.5
"""How many times the own share that must be to be held back, and to stay so: what begins to take hold here is no less
foreign.
"""
PAYS = 0.1
"""By how much more often than others to the same question an own answer with the habit is right, if it pays."""

_WORDS = re.compile(r"[^\W\d_]+|\d+|\S")
_NUMBER = "#"


@lru_cache(maxsize=8192)  # a text that waits is looked at again every round
def habits_of(text: str) -> frozenset[Habit]:
    """All that a text shows: runs of one to LONGEST words, in which all numbers are one word, since they differ by
    question; and each number as it stands.
    """
    return frozenset(habit for habit, _ in _habits_in(text))


def _habits_in(text: str) -> Iterator[tuple[Habit, Span]]:
    """Each with its place in the text."""
    found = list(_WORDS.finditer(text))
    words = [_NUMBER if match[0].isdigit() else match[0].lower() for match in found]
    for count in range(1, LONGEST + 1):
        for at in range(len(words) - count + 1):
            yield tuple(words[at : at + count]), (found[at].start(), found[at + count - 1].end())
    for match in found:
        if match[0].isdigit():
            yield (match[0],), match.span()


@dataclass(slots=True)
class _Answers:
    """The answers to one question, or to many, and those of them that showed each habit."""

    answers: int = 0
    right: int = 0
    shown: Counter[Habit] = field(default_factory=Counter)
    shown_right: Counter[Habit] = field(default_factory=Counter)

    def add(self, habits: Iterable[Habit], *, right: bool) -> None:
        self.answers += 1
        self.right += right
        for habit in habits:
            self.shown[habit] += 1
            self.shown_right[habit] += right

    def gain(self, habit: Habit) -> float:
        """By how many more answers with the habit were right than as many without: of one question, which is as hard
        for both. 0 where all showed it.
        """
        shown, right = self.shown[habit], self.shown_right[habit]
        others = self.answers - shown
        return right - shown * (self.right - right) / others if others else 0.0


@dataclass(frozen=True, slots=True)
class _Said:
    """A group of this policy's own."""

    dataset: str
    answers: tuple[tuple[str, bool], ...]
    """Text of each, and whether it is correct."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The correct completions that a peer gave to one prompt."""

    dataset: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _State:
    own: tuple[_Said, ...]
    """Oldest first."""
    peers: tuple[tuple[str, tuple[_Asked, ...]], ...]
    """Those heard of last come last."""
    seen: tuple[GroupKey, ...]
    held: tuple[Habit, ...]
    pool: tuple[_Asked, ...] = ()
    """Of all peers together, oldest first."""


class _Own:
    """The newest local completions."""

    def __init__(self) -> None:
        self._groups: deque[tuple[_Said, _Answers]] = deque()
        self.right: Counter[str] = Counter()
        """Correct local completions, by task."""
        self._shown_right: defaultdict[str, Counter[Habit]] = defaultdict(Counter)
        self._shown: Counter[Habit] = Counter()

    @property
    def groups(self) -> tuple[_Said, ...]:
        """Those that count, oldest first."""
        return tuple(said for said, _ in self._groups)

    def add(self, said: _Said) -> None:
        """Add the completions of one prompt, and forget those of the oldest."""
        answers = _Answers()
        for text, right in said.answers:
            answers.add(habits_of(text), right=right)
        self._groups.append((said, answers))
        self._count(said.dataset, answers, 1)
        if len(self._groups) > WINDOW:
            forgotten, answers = self._groups.popleft()
            self._count(forgotten.dataset, answers, -1)

    def _count(self, dataset: str, answers: _Answers, sign: int) -> None:
        self.right[dataset] += sign * answers.right
        shown_right = self._shown_right[dataset]
        for habit, count in answers.shown.items():
            self._shown[habit] += sign * count
            shown_right[habit] += sign * answers.shown_right[habit]
            if not self._shown[habit]:
                del self._shown[habit]
            if not shown_right[habit]:
                del shown_right[habit]

    def share(self, dataset: str, habit: Habit) -> float:
        """Share of the local correct completions to a task that show the habit. There must be some."""
        return self._shown_right[dataset][habit] / self.right[dataset]

    def is_idle(self, habit: Habit) -> bool:
        """Whether the habit was shown often enough to know, and answers are no better for it."""
        shown = self._shown[habit]
        return shown >= SAID and sum(answers.gain(habit) for _, answers in self._groups) <= PAYS * shown


def _size(asked: _Asked) -> int:
    """UTF-8 bytes of the completions."""
    return sum(len(text.encode()) for text in asked.texts)


def _shares(asked: _Asked) -> Counter[Habit]:
    """The share of the completions of one prompt that show each habit."""
    counts = Counter(habit for text in asked.texts for habit in habits_of(text))
    return Counter({habit: count / len(asked.texts) for habit, count in counts.items()})


class NgramFilter(Filter):
    """Knows the habits of this policy and of those on offer."""

    name: ClassVar[FilterName] = "n-gram"

    def __init__(self) -> None:
        self._own = _Own()
        self._peers: dict[str, deque[tuple[_Asked, Counter[Habit]]]] = {}
        self._pool: deque[tuple[_Asked, Counter[Habit]]] = deque(maxlen=POOLED)
        self._seen: set[GroupKey] = set()
        self._held: set[Habit] = set()

    def observe(self, local: Sequence[LocalGroup], heard: Sequence[GradientVote] = ()) -> None:
        """Take in a round's own answers, whatever they earned."""
        del heard
        for group in local:
            texts = (each.text for each in group.completions)
            self._own.add(_Said(group.dataset, tuple(zip(texts, group.rewards, strict=True))))

    def look(self, offered: Sequence[VerifiedGroup]) -> None:
        """Take in what is on offer, and decide which habits are held back for now."""
        here = {group.place: group for group in offered}
        for place, group in here.items():
            if place not in self._seen:
                texts = (each.text for each, right in zip(group.completions, group.rewards, strict=True) if right)
                self._enter(group.peer, _Asked(group.dataset, tuple(texts)))
        self._seen = set(here)
        offering = {group.peer for group in offered} & self._peers.keys()
        texts_of = [self._peers[peer] for peer in offering] + ([self._pool] if here else [])
        foreign = {habit for prompts in texts_of for habit in self._foreign(prompts)}
        self._held = {habit for habit in foreign if self._own.is_idle(habit)}

    def state_dict(self) -> dict[str, Any]:
        """The texts that count, without those of peers beyond STORED_BYTES: what they show is counted again."""
        peers: list[tuple[str, tuple[_Asked, ...]]] = []
        room = STORED_BYTES
        for peer, prompts in reversed(self._peers.items()):
            asked = tuple(each for each, _ in prompts)
            room -= sum(map(_size, asked))
            if room < 0:
                break
            peers.append((peer, asked))
        seen, held = tuple(sorted(self._seen)), tuple(sorted(self._held))
        sizes = accumulate(_size(asked) for asked, _ in reversed(self._pool))
        pool = [asked for (asked, _), size in zip(reversed(self._pool), sizes, strict=True) if size <= STORED_BYTES]
        return to_object(_State(self._own.groups, tuple(reversed(peers)), seen, held, tuple(reversed(pool))))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As in the interface."""
        known = from_json(_State, state)
        for said in known.own:
            self._own.add(said)
        for peer, prompts in known.peers:
            for asked in prompts:
                self._enter_for(peer, asked, _shares(asked))
        self._pool.extend((asked, _shares(asked)) for asked in known.pool)
        self._seen, self._held = set(known.seen), set(known.held)

    def _enter(self, peer: str, asked: _Asked) -> None:
        if asked.texts:
            shares = _shares(asked)
            self._enter_for(peer, asked, shares)
            self._pool.append((asked, shares))

    def _enter_for(self, peer: str, asked: _Asked, shares: Counter[Habit]) -> None:
        prompts = self._peers.pop(peer, None) or deque(maxlen=REMEMBERED)
        prompts.append((asked, shares))
        self._peers[peer] = prompts
        if len(self._peers) > PEERS:
            del self._peers[next(iter(self._peers))]

    def _foreign(self, prompts: Iterable[tuple[_Asked, Counter[Habit]]]) -> Iterator[Habit]:
        """Habits that these completions show far more often than local correct completions to the same tasks."""
        by_task: defaultdict[str, list[Counter[Habit]]] = defaultdict(list)
        for asked, shares in prompts:
            if self._own.right[asked.dataset] >= RIGHT:
                by_task[asked.dataset].append(shares)
        yield from self._concentrated(by_task, CONCENTRATED)
        for dataset, shown in by_task.items():
            yield from self._concentrated({dataset: shown}, IN_A_TASK)

    def _concentrated(self, by_task: Mapping[str, Sequence[Counter[Habit]]], least: float) -> Iterator[Habit]:
        """Habits in at least this share of the completions, and far more often than in local ones."""
        asked = sum(map(len, by_task.values()))
        if asked < ASKED:
            return
        said: Counter[Habit] = Counter()
        for prompts in by_task.values():
            for shares in prompts:
                said.update(shares)
        for habit, times in said.items():
            if times >= least * asked:
                own = sum(len(prompts) * self._own.share(dataset, habit) for dataset, prompts in by_task.items())
                if times > (STAYS if habit in self._held else FOREIGN) * own:
                    yield habit

    def mask(self, text: str) -> tuple[Span, ...]:
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
