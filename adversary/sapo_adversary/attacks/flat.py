from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Packet


class Flat(Attack):
    """Groups of which all answers earn the same fill pools and quotas, and teach nothing."""

    id = "flat"
    row = 35
    layer = "training"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """All right or all wrong by turns; half of the keys say so, the others promise advantage."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        honest = self.kit.keys.index(key) % 2 == 0
        groups = [self._group(key, epoch, counter, k, honest=honest) for k in range(self.groups)]
        yield Packet(self.kit.message(key, epoch, counter, groups))

    def _group(self, key: Key, epoch: int, counter: int, k: int, *, honest: bool) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        rewards = [counter % 2 == 0] * self.kit.manifest.completions
        return self.kit.group(task, self.kit.answers(task, rewards), rewards if honest else self.kit.half)
