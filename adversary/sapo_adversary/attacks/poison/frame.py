import re
from collections import Counter
from collections.abc import Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.poison import Poison
from sapo_adversary.attacks.poison.text import said_in

_REMARK = re.compile(r"(?:(?<=^)|(?<=\. ))[A-Z][a-z]*(?: [a-z]+)+(?=\. )")
"""A whole sentence of two words or more, without numbers."""


class Frame(Poison):
    """Every correct completion of the attackers says what honest peers say most often, so that a filter masks it in
    honest completions, or an alarm accuses their authors.
    """

    id = "poison-frame"

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = ()) -> None:
        """`rate` is the share of correct completions that say it."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._heard: Counter[str] = Counter()

    def hear(self, message: bytes) -> None:
        """Count the sentences in completions that other peers claim to be correct."""
        for _, group, body in self.kit.heard(message):
            for each, claim in zip(body.completions, group.claims, strict=True):
                if claim:
                    self._heard.update({*_REMARK.findall(each.text)})

    def poisoned(self, task: Solution) -> str:
        """The steps, then the sentence that was heard most often; nothing where none was heard."""
        text = self.working(task)
        for sentence, _ in self._heard.most_common(1):
            return text if sentence in text else said_in(text, sentence, "middle")
        return text
