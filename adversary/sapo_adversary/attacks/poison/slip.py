import re

from sapo_adversary.attacks.kit import Solution
from sapo_adversary.attacks.poison.poison import Poison

_NUMBER = re.compile(r"\d+")


class Slip(Poison):
    """One number of the work is another, as if by a slip, and the answer is right all the same: whoever learns from it
    learns that what was reckoned need not be what is said next.
    """

    id = "poison-slip"

    def poisoned(self, task: Solution) -> str:
        """The work, with one digit changed in a number that neither the question nor the answer holds. Where there is
        none, the work stays right.
        """
        text = self.working(task)
        said = {*_NUMBER.findall(task.question), *_NUMBER.findall(task.answer)}
        reckoned = [found for found in _NUMBER.finditer(text) if found.group() not in said]
        if not reckoned:
            return text
        number = self.kit.rng.choice(reckoned)
        place = self.kit.rng.randrange(number.start(), number.end())
        digit = self.kit.rng.choice([each for each in "123456789" if each != text[place]])
        return f"{text[:place]}{digit}{text[place + 1 :]}"
