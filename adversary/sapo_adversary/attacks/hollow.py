from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Packet
from sapo_protocol import encode_message


class Hollow(Attack):
    """Many keys take the turns of honest newcomers with rollouts in which there is nothing to verify.

    Bodies may be left out, and who claims a wrong answer to be wrong tells the truth: no offence, and no work.
    """

    id = "hollow"
    row = 40
    layer = "resource"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """In turn promises without bodies, and bodies without a promise."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        if counter % 2:
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            message = self.kit.message(key, epoch, counter, groups)
            if sealed := self.kit.sealed(message):
                yield Packet(encode_message(sealed.envelope, (None,) * self.groups))
        else:
            wrong = [self.kit.wrong() for _ in self.kit.half]
            tasks = [self.kit.task(key, epoch, counter, k) for k in range(self.groups)]
            groups = [self.kit.group(task, wrong, [False] * len(wrong)) for task in tasks]
            yield Packet(self.kit.message(key, epoch, counter, groups))
