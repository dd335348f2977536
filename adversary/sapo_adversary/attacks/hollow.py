from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Packet


class Hollow(Attack):
    """Many keys take the verifications of honest untrusted peers with rollouts that give no group to train on.

    They answer tasks that were not assigned. Another digest is no offence, since peers may run other versions of a
    task.
    """

    id = "hollow"
    layer = "resource"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The tasks of the next counter, answered."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = self.kit.flawless(key, epoch, counter + 1, self.groups)
            yield Packet(self.kit.message(key, epoch, counter, groups))
