"""The levels of the completions of one group, and the one definition of a correct completion.

A task has L levels above 0. A scorer gives each completion a level from 0 to L, and level L alone is correct. The
reward is level / L. With L = 1, the usual case, the level is a bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from sapo_protocol.limits import MAX_LEVELS

Level = Annotated[int, Meta(ge=0, le=MAX_LEVELS)]
Top = Annotated[int, Meta(ge=1, le=MAX_LEVELS)]


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each completion of a group, in order. Raises ValueError if a level is below 0 or above `top`."""

    each: tuple[Level, ...] = ()
    top: Top = 1
    """L, the level of a correct completion."""

    def __post_init__(self) -> None:
        if any(not 0 <= level <= self.top for level in self.each):
            raise ValueError(f"a level is below 0 or above {self.top}")

    @property
    def correct(self) -> tuple[bool, ...]:
        """Return for each completion whether it is correct."""
        return tuple(level == self.top for level in self.each)

    @property
    def right(self) -> int:
        """The number of correct completions."""
        return self.each.count(self.top)

    @property
    def is_mixed(self) -> bool:
        """True if some completions are correct and some are not: peers learn from no other group."""
        return 0 < self.right < len(self.each)

    @property
    def are_unequal(self) -> bool:
        """True if completions earned different levels: the policy learns from no other group of its own."""
        return len(set(self.each)) > 1

    @property
    def rewards(self) -> tuple[float, ...]:
        """The reward of each completion, level / L, between 0 and 1."""
        return tuple(level / self.top for level in self.each)

    @property
    def mean(self) -> float:
        """The mean reward; 0 without a completion."""
        return sum(self.each) / (self.top * len(self.each)) if self.each else 0.0

    def only(self, numbers: Iterable[int]) -> "Levels":
        """Return the levels of some completions, by number."""
        return Levels(tuple(self.each[number] for number in numbers), self.top)
