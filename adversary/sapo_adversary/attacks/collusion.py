from collections import deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet
from sapo_protocol import Header, Sealed, encode_evidence, encode_header, parse_envelope, seal


class Collusion(Attack):
    """A ring of peers forwards the messages of its members, and accuses honest peers with made-up evidence."""

    id = "collusion"
    layer = "trust"

    def __init__(self, kit: Kit, *, accusations: int = 2) -> None:
        """`accusations` of each kind are sent at each turn."""
        super().__init__(kit)
        self._accusations = accusations
        self._ring = {key.issuer for key in kit.keys}
        self._signed: dict[bytes, deque[Sealed]] = {}
        self._said: deque[bytes] = deque(maxlen=64)

    def hear(self, message: bytes) -> None:
        """Keep the envelopes of other peers, to build false evidence from."""
        sealed = self.kit.sealed(message)
        if sealed and sealed.issuer not in self._ring:
            self._signed.setdefault(sealed.issuer, deque(maxlen=16)).append(sealed)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round, the last messages of the ring, and accusations of honest peers."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            self._said.append(self.kit.message(key, epoch, counter, groups))
        yield from map(Packet, self._said)
        victims = [signed for signed in self._signed.values() if len(signed) > 1]
        for signed in self.kit.rng.sample(victims, min(self._accusations, len(victims))):
            one, other = self.kit.rng.sample(signed, 2)
            yield Packet(encode_evidence(one, other), "evidence")
            yield Packet(encode_evidence(one, self._forged(key, one)), "evidence")

    def _forged(self, key: Key, of: Sealed) -> Sealed:
        """A second envelope in the name of an honest peer, signed by a key of the ring."""
        group = self.kit.honest(key, 0, 0, 0)
        network_id = self.kit.manifest.network_id
        payload = encode_header(Header(0, 0, (group.header,)))
        return parse_envelope(
            seal(payload, issuer=of.issuer, sign=key.sign, network_id=network_id), network_id=network_id
        )
