"""Groups that are verified and teach little or parts of answers, or that other peers wrote."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet, Solution


class Flat(Attack):
    """Zero-advantage groups fill buffers and quotas and teach nothing.

    A light group has an advantage on very short texts: it is valid, and its loss weight is close to that of a
    zero-advantage group.
    """

    id = "flat"
    layer = "training"

    def __init__(self, kit: Kit, *, light: bool = False, groups: int = Attack.groups) -> None:
        """`light` sends light groups instead of zero-advantage ones; a message has `groups` groups."""
        super().__init__(kit)
        self._groups = groups
        self._light = light

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """All completions correct or all incorrect, by turns. Half of the keys claim that; the other half claim an
        advantage.
        """
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        make = self._a_light_one if self._light else self._a_flat_one
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self._groups)]))

    def _a_flat_one(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        rewards = [counter % 2 == 0] * self.kit.manifest.completions
        honest = self.kit.keys.index(key) % 2 == 0
        return self.kit.group(task, self.kit.answers(task, rewards), rewards if honest else self.kit.half)

    def _a_light_one(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        rewards = [place == 0 for place in range(self.kit.manifest.completions)]
        return self.kit.group(task, [f"<answer>{task.answer}</answer>" if each else "" for each in rewards], rewards)


_HEARD = 512


@dataclass(frozen=True, slots=True)
class _Copy:
    prompt: str
    texts: tuple[str, ...]
    correct: tuple[bool, ...]


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
            correct = self.kit.claimed(task, group)
            if len(set(correct)) > 1:
                texts = tuple(completion.text for completion in body.completions)
                self._heard.append(_Copy(self.kit.solve(task).prompt, texts, correct))

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round of copies; every second one is edited."""
        counter = self.kit.counter(key, epoch) if self._heard else None
        if counter is None:
            return
        tasks = [self.kit.task(key, epoch, counter, k) for k in range(self.groups)]
        copies = [self._copy(task) for task in tasks]
        texts = [copy.texts if counter % 2 else self._edited(copy.texts) for copy in copies]
        groups = [
            self.kit.group(task, each, copy.correct) for task, each, copy in zip(tasks, texts, copies, strict=True)
        ]
        yield Packet(self.kit.message(key, epoch, counter, groups))

    def _copy(self, task: Solution) -> _Copy:
        """The texts of a peer for the same prompt, or for any prompt where there is none."""
        same = [copy for copy in self._heard if copy.prompt == task.prompt]
        return self.kit.rng.choice(same or self._heard)

    def _edited(self, texts: Sequence[str]) -> list[str]:
        return [f"{self.kit.rng.choice(('Well.', 'Look:', 'Thus'))} {text}" for text in texts]


class Parts(Attack):
    """Completions of tasks with levels earn most parts of an answer and lack its end, with honest claims: a policy that
    trains on parts learns to stop before the end, and is never correct again.
    """

    id = "poison-parts"
    layer = "training"

    def __init__(self, kit: Kit, *, correct: int = 0) -> None:
        """`correct` completions of each such group are correct. Of the others every second one earns nothing, so that
        those with parts are above the mean of their group. No completion of a task without levels is correct.
        """
        super().__init__(kit)
        self._correct = correct

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round."""
        return self.round(key, epoch, self._group)

    def _group(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        correct = [number < self._correct and task.levels > 1 for number in range(len(self.kit.half))]
        others = (self._part(task) if has_part else self.kit.wrong() for has_part in self.kit.half)
        pairs = zip(correct, others, strict=True)
        texts = [task.work(self.kit.rng) if is_correct else text for is_correct, text in pairs]
        return self.kit.group(task, texts, correct)

    def _part(self, task: Solution) -> str:
        """The steps, and the answer without its last character."""
        steps, tag, _ = task.work(self.kit.rng).rpartition("<answer>")
        return f"{steps}{tag}{task.answer[:-1]}</answer>"
