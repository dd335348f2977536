from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet, Solution

_HEARD = 512


@dataclass(frozen=True, slots=True)
class _Copy:
    prompt: str
    texts: tuple[str, ...]
    claims: tuple[bool, ...]


class Copycat(Attack):
    """The attacker signs the texts of other peers as its own, unchanged or lightly edited, to earn their rewards.

    Where the attacker is assigned the same prompt by chance, the copied texts are correct.
    """

    id = "copycat"
    layer = "training"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._heard: deque[_Copy] = deque(maxlen=_HEARD)

    def hear(self, message: bytes) -> None:
        """Keep the groups that claim an advantage, with their prompts."""
        for task, group, body in self.kit.heard(message):
            if len(set(group.claims)) > 1:
                texts = tuple(completion.text for completion in body.completions)
                self._heard.append(_Copy(self.kit.solve(task).prompt, texts, group.claims))

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round of copies; every second one is edited."""
        counter = self.kit.counter(key, epoch) if self._heard else None
        if counter is None:
            return
        tasks = [self.kit.task(key, epoch, counter, k) for k in range(self.groups)]
        copies = [self._copy(task) for task in tasks]
        texts = [copy.texts if counter % 2 else self._edited(copy.texts) for copy in copies]
        groups = [
            self.kit.group(task, each, copy.claims) for task, each, copy in zip(tasks, texts, copies, strict=True)
        ]
        yield Packet(self.kit.message(key, epoch, counter, groups))

    def _copy(self, task: Solution) -> _Copy:
        """The texts of a peer for the same prompt, or for any prompt where there is none."""
        same = [copy for copy in self._heard if copy.prompt == task.prompt]
        return self.kit.rng.choice(same or self._heard)

    def _edited(self, texts: Sequence[str]) -> list[str]:
        return [f"{self.kit.rng.choice(('Well.', 'Look:', 'Thus'))} {text}" for text in texts]
