from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol import Manifest

EARNING_EPOCHS = 3
"""How long a patient one behaves as anybody: what it takes to earn standing, and one more."""


class Sybil(Attack):
    """Many keys of one hand always have the answers, so that most of what a swarm is trained on is theirs.

    Nothing that they send is wrong, which is what makes it hard; whoever owns the training mass may poison it later.
    """

    id = "sybil"
    row = 15
    layer = "identity"

    def __init__(self, kit: Kit, *, patient: bool = False) -> None:
        """Patient ones earn standing with plain short groups first."""
        super().__init__(kit)
        self._patience = EARNING_EPOCHS if patient else 0
        self._start: int | None = None

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Half right answers: as long as they may be, once patience is over."""
        if self._start is None:
            self._start = epoch
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        make = self.kit.honest if epoch - self._start < self._patience else self._long
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self.groups)]))

    def _long(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        texts = [_pad(text, self.kit.manifest) for text in self.kit.answers(task, self.kit.half)]
        return self.kit.group(task, texts, self.kit.half)


def _pad(text: str, manifest: Manifest) -> str:
    return "Well. " * ((manifest.max_completion_bytes - len(text.encode())) // 6) + text
