from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.text import Text

_LETTERS = "etaoinshrdlu 0123456789"
_LENGTH = 48
"""Length that any model accepts: a model that cannot read a completion refuses the whole group."""


class Gibberish(Text):
    """Half of a group is random text, which raises the advantage of the other half, the poison."""

    id = "poison-gibberish"

    def failing(self, task: Solution) -> str:
        """Random text."""
        del task
        return "".join(self.kit.rng.choices(_LETTERS, k=_LENGTH))
