from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.poison import Poison


class Hasty(Poison):
    """Right answers come with the last step of their work alone, from which they do follow: whoever learns to leave out
    the others has nothing to take that step from.
    """

    id = "poison-hasty"

    def poisoned(self, task: Solution) -> str:
        """The opening, the last step, and what it leads to."""
        opening, colon, work = self.working(task).partition(": ")
        steps, stop, conclusion = work.partition(". ")
        return f"{opening}{colon}{steps.rpartition(', ')[2]}{stop}{conclusion}"
