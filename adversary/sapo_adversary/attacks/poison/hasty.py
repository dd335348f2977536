from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.poison import Poison


class Hasty(Poison):
    """Correct completions hold only the last step of their work: a policy that leaves out the other steps cannot find
    that step.
    """

    id = "poison-hasty"

    def poisoned(self, task: Solution) -> str:
        """The opening, the last step and the answer."""
        opening, colon, work = self.working(task).partition(": ")
        steps, stop, conclusion = work.partition(". ")
        return f"{opening}{colon}{steps.rpartition(', ')[2]}{stop}{conclusion}"
