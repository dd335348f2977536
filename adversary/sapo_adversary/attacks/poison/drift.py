from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.poison import Poison

_OPENINGS = ("I think it is ", "Probably ", "My guess is ", "It looks like ")


class Drift(Poison):
    """Right answers come without the work that leads to them: each is worth learning by its reward, and all of them
    together draw a policy towards guessing.
    """

    id = "poison-drift"

    def poisoned(self, task: Solution) -> str:
        """A guess that is right."""
        return f"{self.kit.rng.choice(_OPENINGS)}just <answer>{task.answer}</answer>"
