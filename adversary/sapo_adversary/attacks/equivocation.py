from collections import Counter
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet
from sapo_protocol import peer_id


class Equivocation(Attack):
    """The attacker signs two contents for one counter and sends them to different peers, so that one counter is trained
    on twice.

    Minting: each key equivocates once and is discarded, so that the evidence itself becomes a flood.
    """

    id = "equivocation"
    layer = "identity"

    def __init__(self, kit: Kit, *, minting: bool = False, counters: int = 2) -> None:
        """`counters` is the number of counters that are used again and again in each epoch."""
        super().__init__(kit)
        self._minting = minting
        self._counters = counters
        self._turns: Counter[bytes] = Counter()
        self._peers = {key.peer for key in kit.keys}

    def hear(self, message: bytes) -> None:
        """Learn the peer ids of the swarm."""
        if sealed := self.kit.sealed(message):
            self._peers.add(peer_id(sealed.issuer))

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One counter and two contents; each content goes to every second known peer."""
        turn = self._turns[key.issuer]
        if self._minting and turn:
            return
        self._turns[key.issuer] += 1
        counter = turn % self._counters
        peers = sorted(self._peers)
        for side in (peers[::2], peers[1::2]):
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            yield Packet(self.kit.message(key, epoch, counter, groups), to=tuple(side) or None)
