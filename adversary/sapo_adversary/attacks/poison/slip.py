import re

from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.poison import Poison

_NUMBER = re.compile(r"\d+")


class Slip(Poison):
    """One number of the steps is false and the answer is correct all the same: a policy that learns from it learns to
    ignore its own steps.
    """

    id = "poison-slip"

    def poisoned(self, task: Solution) -> str:
        """The steps, with one digit changed in a number that is in neither the prompt nor the answer. Where there is
        none, the steps stay correct.
        """
        text = self.working(task)
        said = {*_NUMBER.findall(task.prompt), *_NUMBER.findall(task.answer)}
        calculated = [found for found in _NUMBER.finditer(text) if found.group() not in said]
        if not calculated:
            return text
        number = self.kit.rng.choice(calculated)
        place = self.kit.rng.randrange(number.start(), number.end())
        digit = self.kit.rng.choice([each for each in "123456789" if each != text[place]])
        return f"{text[:place]}{digit}{text[place + 1 :]}"
