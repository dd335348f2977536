"""A dictionary with a bounded number of items, for what peers cause a node to remember.

    offences: Bounded[str, int] = Bounded(1_024)
    offences[peer] = offences.get(peer, 0) + 1

Reading never changes the order: a peer that asks about an item must not be able to keep it.
"""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """Setting an item makes it the newest. Beyond `most` items the oldest is removed. Reading changes nothing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
