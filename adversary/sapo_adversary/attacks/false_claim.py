from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Packet


class FalseClaim(Attack):
    """Incorrect completions are claimed correct, so that a node that believes claims learns to be wrong."""

    id = "false-claim"
    layer = "reward"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Only incorrect completions, with claims that promise an advantage."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        lies = [self.kit.lie(key, epoch, counter, k) for k in range(self.groups)]
        yield Packet(self.kit.message(key, epoch, counter, lies))
