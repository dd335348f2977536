from collections.abc import Iterable
from dataclasses import replace

from sapo_adversary.attacks.kit import Attack, Group, Key, Packet


class ForgedTask(Attack):
    """Correct completions answer tasks that were never assigned, under their own digest or under that of the assigned
    task.
    """

    id = "forged-task"
    layer = "reward"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round of completions for the tasks of the next counter; every second message has the digests of the
        assigned tasks.
        """
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        disguised = counter % 2 == 1
        groups = [self._group(key, epoch, counter, k, disguised=disguised) for k in range(self.groups)]
        yield Packet(self.kit.message(key, epoch, counter, groups))

    def _group(self, key: Key, epoch: int, counter: int, k: int, *, disguised: bool) -> Group:
        other = self.kit.honest(key, epoch, counter + 1, k)
        if not disguised:
            return other
        return replace(other, header=replace(other.header, digest=self.kit.task(key, epoch, counter, k).digest))
