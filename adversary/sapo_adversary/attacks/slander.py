from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol import peer_id


class Slander(Attack):
    """Honest peers forward messages that fail or cost much only at verification, so that those peers get the blame.

    The attackers send each message to all their links, from the first message of an honest peer that they hear. The
    links forward it to the other peers.
    """

    id = "slander"
    layer = "trust"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._peers: set[str] = set()

    def hear(self, message: bytes) -> None:
        """Learn the peer ids of the swarm."""
        if sealed := self.kit.sealed(message):
            self._peers.add(peer_id(sealed.issuer))

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """By turns: malformed bodies with the correct hash, completions of the greatest length, and false claims."""
        honest = self._peers - {each.peer for each in self.kit.keys}
        counter = self.kit.counter(key, epoch) if honest else None
        if counter is None:
            return
        make = (self._malformed, self._costly, self.kit.lie)[counter % 3]
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self.groups)]))

    def _malformed(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        return self.kit.honest(key, epoch, counter, k).carrying(self.kit.rng.randbytes(200))

    def _costly(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        opening = f"<answer>{self.kit.rng.randrange(10**9)}"
        text = opening + "9" * (self.kit.manifest.max_completion_bytes - len(opening))
        return self.kit.group(self.kit.task(key, epoch, counter, k), [text] * len(self.kit.half), self.kit.half)
