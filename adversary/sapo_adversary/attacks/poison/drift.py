from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.poison import Poison

_OPENINGS = ("I think it is ", "Probably ", "My guess is ", "It looks like ")


class Drift(Poison):
    """Correct completions come without the steps that lead to them: each earns its reward, and together they teach a
    policy to guess.
    """

    id = "poison-drift"

    def poisoned(self, task: Solution) -> str:
        """A correct guess."""
        return f"{self.kit.rng.choice(_OPENINGS)}just <answer>{task.answer}</answer>"
