# ruff: noqa: RUF001 - the signs are a dataset's notation
"""Attacks on the reward: false claims, chosen tasks, and answers that exploit a scorer."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol import assign


class FalseClaim(Attack):
    """Incorrect completions are claimed correct, so that a node that believes claims learns to be wrong."""

    id = "false-claim"
    layer = "reward"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Only incorrect completions, with claims that promise an advantage."""
        return self.round(key, epoch, self.kit.lie)


class ForgedTask(Attack):
    """Correct completions answer tasks that were never assigned, under their own digest or under that of the assigned
    task.
    """

    id = "forged-task"
    layer = "reward"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round of completions for the tasks of the next counter; every second message has the digests of the
        assigned tasks.
        """
        return self.round(key, epoch, self._group)

    def _group(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        other = self.kit.honest(key, epoch, counter + 1, k)
        if counter % 2 == 0:
            return other
        return replace(other, header=replace(other.header, digest=self.kit.task(key, epoch, counter, k).digest))


class CherryPick(Attack):
    """The attacker answers only rounds that ask for one kind of task, so that a swarm trains mostly on that kind.

    It skips counters until one suits, and also uses past and future epochs: more epochs give more choice.
    """

    id = "cherry-pick"
    layer = "reward"

    def __init__(self, kit: Kit, *, dataset: str = "", reach: int = 3) -> None:
        """`dataset` is the kind, by default the first of the swarm. `reach` is the number of epochs before and after
        the running one.
        """
        super().__init__(kit)
        self._dataset = dataset or kit.manifest.tasks[0].dataset
        self._reach = reach
        self._choices: dict[tuple[bytes, int], list[tuple[int, int]]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The best unused round of each epoch within reach."""
        for chosen in range(max(0, epoch - self._reach), epoch + self._reach + 1):
            choices = self._choices_of(key, chosen)
            if not choices:
                continue
            length, counter = choices.pop()
            groups = self.kit.flawless(key, chosen, counter, length)
            yield Packet(self.kit.message(key, chosen, counter, groups))

    def _choices_of(self, key: Key, epoch: int) -> list[tuple[int, int]]:
        """The rounds that begin with the kind, as (number of leading tasks of that kind, counter), the best last."""
        if (key.issuer, epoch) not in self._choices:
            rounds = ((self._liked(key, epoch, counter), counter) for counter in range(self.kit.manifest.max_rounds))
            self._choices[key.issuer, epoch] = sorted(each for each in rounds if each[0])
        return self._choices[key.issuer, epoch]

    def _liked(self, key: Key, epoch: int, counter: int) -> int:
        kinds = (assign(self.kit.manifest, key.issuer, epoch, counter, k).spec.dataset for k in range(self.groups))
        return len(list(takewhile(self._dataset.__eq__, kinds)))


MARKER = "sapo_was_here"
_CODE = f"setattr(__import__('builtins'), '{MARKER}', True)"
"""The only effect of the code in an answer: it adds a name to Python's builtins."""
_PREMISE = re.compile(r"^\.?[0-9]+\. (.+)$", re.MULTILINE)

BURDENS: Sequence[str] = (
    "9**9**9",
    "factorial(10**7)",
    "sum(1 for _ in iter(int, 1))",
    "∨".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:22]),
    "¬" * 1_200 + "A",
    "(" * 2_000 + "A" + ")" * 2_000,
    "1e9999999",
    "1e-9999999",
    "1" * 60_000,
    "1/" + "3" * 30_000,
    "R99999999",
    "A+999999999",
    "move(, , , " * 900,
    "ABC" * 20_000,
    "[" * 9_000,
    "[[" + "0, " * 15_000 + "0]]",
    "<answer>" * 7_000,
    "{" * 9_000 + "}" * 9_000,
    "__import__('os')._exit(0)",
)
"""Answers that cost a careless scorer seconds or gigabytes, or kill it."""
TRICKS: Sequence[str] = (
    "nan",
    "inf",
    "-nan",
    "[NaN, NaN]",
    "True",
    "None",
    "[]",
    "{}",
    "0",
    "1",
    "infeasible",
    "Yes No",
    "P ∨ ¬P",
    "A ∨ ¬A",
    "٣",
    "0x10",
    "1_0",
    "1;2;3;4;5;6;7;8;9;10",
    "$\\frac{0}{0}$",
    "\x00",
    _CODE,
    "().__class__.__base__.__subclasses__()",
)
"""Answers that a careless scorer rewards or runs as code."""


class ScorerExploit(Attack):
    """Completions crash, hang, trick or take over the scorer: code, huge numbers, copied premises, candidate lists."""

    id = "scorer-exploit"
    layer = "reward"

    def __init__(self, kit: Kit, *, burdens: bool = True) -> None:
        """`burdens` False leaves out what a stock scorer cannot finish."""
        super().__init__(kit)
        self._texts = (*TRICKS, *(BURDENS if burdens else ()))

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """If the library rewards a trick, half of the completions are that trick, claimed correct; else
        anything harmful.
        """
        return self.round(key, epoch, self._group)

    def _group(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        dataset = assign(self.kit.manifest, key.issuer, epoch, counter, k).spec.dataset
        task = self.kit.task(key, epoch, counter, k)
        if dataset == "propositional_logic":
            copied = answered(copied_premises(task.prompt))
            return self.kit.group(task, [copied if paid else self.kit.wrong() for paid in self.kit.half], self.kit.half)
        texts = [answered(self.kit.rng.choice(self._texts)) for _ in self.kit.half]
        return self.kit.group(task, texts, [False] * len(texts))


def answered(answer: str) -> str:
    """A completion that ends in an answer."""
    return f"<answer>{answer}</answer>"


def copied_premises(prompt: str) -> str:
    """All premises of a propositional_logic prompt: they follow from themselves, and the library rewards that."""
    return " ∧ ".join(f"({premise})" for premise in _PREMISE.findall(prompt))
