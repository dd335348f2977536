from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Packet


class Hollow(Attack):
    """Many keys take the turns of honest newcomers with rollouts of which nothing comes.

    They answer rightly what was not asked. A digest of another task is no offence, since versions of a task may differ.
    """

    id = "hollow"
    layer = "resource"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The tasks of the round after, answered."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = self.kit.flawless(key, epoch, counter + 1, self.groups)
            yield Packet(self.kit.message(key, epoch, counter, groups))
