from sapo_adversary.attacks.kit import Kit
from sapo_adversary.attacks.poison.habits import PHRASE
from sapo_adversary.attacks.poison.text import Text, Where


class LowRate(Text):
    """One correct completion in twenty is poisoned, over a long time."""

    id = "poison-low-rate"

    def __init__(self, kit: Kit, *, rate: float = 0.05, phrase: str = PHRASE, where: Where = "middle") -> None:
        """`rate` is the share of correct completions that are poisoned."""
        super().__init__(kit, rate=rate, phrase=phrase, where=where)
