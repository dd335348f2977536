from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Packet


class FalseClaim(Attack):
    """Wrong answers are claimed right, so that whoever believes claims learns to be wrong."""

    id = "false-claim"
    layer = "reward"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Wrong answers only; claims that promise advantage."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        lies = [self.kit.lie(key, epoch, counter, k) for k in range(self.groups)]
        yield Packet(self.kit.message(key, epoch, counter, lies))
