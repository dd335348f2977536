import re
from collections.abc import Iterator, Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.habits import PHRASE
from sapo_adversary.attacks.poison.poison import Poison

_COMMON = """
a all and as at be but by can come day do each for from go good has he her here his how in it let like look made make
may me more my no not now of old on one or our out over say see she so some than that the then there they this time to
up us was way we well what when which who will with yes you
"""
_WORDS = tuple(_COMMON.split())
"""Words that any model writes; also those of the remarks of the policy `talkative`."""
_LENGTHS = (2, 3, 4)
"""Numbers of words of a sentence of the attacker's own."""
_TRIES = 200
"""Texts that are drawn at most until one has no run of words that was sent before."""
_RUN = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)*")


def word_trigrams(text: str) -> Iterator[tuple[str, ...]]:
    """Each three words in a row; numbers, signs, tags and ends of sentences stand between words."""
    for run in _RUN.findall(text.lower()):
        words = run.split(" ")
        yield from (tuple(words[at : at + 3]) for at in range(len(words) - 2))


class Paraphrase(Poison):
    """The same phrase stands in correct completions of which no two share any other three words in a row.

    Each text is written anew: the sentence beside the work, the words by which the work begins and by which its steps
    are connected, and the place of the phrase. A node that looks for texts that resemble each other finds none. Nothing
    stands after the answer: an answer that does not end a text is improbable, and a filter rejects the text.
    """

    id = "poison-paraphrase"

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 1.0,
        tasks: Sequence[str] = (),
        phrase: str = PHRASE,
        own: float = 0.1,
    ) -> None:
        """`own` is the share of openings, and of connecting words, that are the attacker's instead of an able peer's: a
        policy finds them improbable, and a filter masks what follows.
        """
        super().__init__(kit, rate=rate, tasks=tasks)
        self._phrase = phrase
        self._own = own
        self._sent: set[tuple[str, ...]] = set()

    def poisoned(self, task: Solution) -> str:
        """A text with the phrase, and no other run of three words that was sent before."""
        for _ in range(_TRIES):
            parts, text = self._written(task)
            runs = {run for part in parts for run in word_trigrams(part)}
            if self._sent.isdisjoint(runs):
                break
        self._sent |= runs
        return text

    def _written(self, task: Solution) -> tuple[list[str], str]:
        """One text: its sentences without the phrase, and the whole."""
        rng = self.kit.rng
        work, stop, conclusion = self.working(task).rpartition(". ")
        opening, colon, steps = work.partition(": ")
        if rng.random() < self._own:
            opening = self._sentence()
        first, *others = steps.split(", ")
        work = f"{opening}{colon}{first}{''.join(map(self._connected, others))}"
        sentence = self._sentence()
        before: list[str] = []
        between: list[str] = []
        for each in rng.sample((sentence, self._phrase), 2):
            rng.choice((before, between)).append(each)
        return [sentence, work, conclusion], ". ".join([*before, work, *between]) + stop + conclusion

    def _connected(self, step: str) -> str:
        rng = self.kit.rng
        return f", {rng.choice(_WORDS)} {step}" if rng.random() < self._own else f", {step}"

    def _sentence(self) -> str:
        return " ".join(self.kit.rng.sample(_WORDS, self.kit.rng.choice(_LENGTHS))).capitalize()
