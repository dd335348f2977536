from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet


class Flat(Attack):
    """Zero-advantage groups fill buffers and quotas and teach nothing.

    A light group has an advantage on very short texts: it is valid, and its loss weight is close to that of a
    zero-advantage group.
    """

    id = "flat"
    layer = "training"

    def __init__(self, kit: Kit, *, light: bool = False, groups: int = Attack.groups) -> None:
        """`light` sends light groups instead of zero-advantage ones; a message has so many `groups`."""
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
