"""The texts that the `n-gram` filter has counted, as far as they are stored."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sapo_node.groups.record import GroupKey
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
