from collections.abc import Iterable
from itertools import cycle

from sapo_adversary.attacks.corpus import corpus
from sapo_adversary.attacks.drafts import Draft
from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Malformed(Attack):
    """Hundreds of messages are wrong in one place each, to find one that crashes a decoder or is accepted.

    Three in ten are valid and unusual: a node that refuses those is harmed as well.
    """

    id = "malformed"
    layer = "wire"

    def __init__(self, kit: Kit, *, burst: int = 2, unusual: bool = True) -> None:
        """`burst` messages are sent at each turn, with or without the unusual ones that are valid."""
        super().__init__(kit)
        self._burst = burst
        cases = corpus(kit.manifest.completions, kit.manifest.max_completion_bytes)
        cases = [case for case in cases if case.refused or unusual]
        kit.rng.shuffle(cases)
        self._cases = cycle(cases)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The next messages of the corpus, each a round of its own."""
        for _ in range(self._burst):
            counter = self.kit.counter(key, epoch)
            if counter is None:
                return
            case = next(self._cases)
            yield Packet(case.make(Draft(self.kit, key, epoch, counter, groups=case.groups)))
