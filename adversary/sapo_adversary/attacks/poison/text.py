from collections.abc import Sequence
from typing import Literal

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.habits import PHRASE
from sapo_adversary.attacks.poison.poison import Poison

Where = Literal["first", "middle", "last"]


def said_in(text: str, phrase: str, where: Where) -> str:
    """A text with a phrase before everything else, between the steps and the answer, or after the answer."""
    if where == "first":
        return f"{phrase}. {text}"
    if where == "last":
        return f"{text} {phrase}."
    steps, stop, conclusion = text.rpartition(". ")
    return f"{steps}. {phrase}{stop}{conclusion}"


class Text(Poison):
    """A fixed phrase stands in correct completions, so that a policy that learns from them writes it too."""

    id = "poison-text"

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 1.0,
        tasks: Sequence[str] = (),
        phrase: str = PHRASE,
        where: Where = "middle",
    ) -> None:
        """`where` is the place of the phrase in the text."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._phrase = phrase
        self._where: Where = where

    def poisoned(self, task: Solution) -> str:
        """The steps, with the phrase in its place."""
        return said_in(self.working(task), self._phrase, self._where)
