"""Attacks on peer states and evidence."""

from collections import deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol import Header, Sealed, encode_evidence, encode_header, parse_envelope, peer_id, seal


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


FORGETTING, LIE_FACTOR = 0.95, 5.0
"""Constants of the nodes' trust policy, which is public."""


class OnOff(Attack):
    """The attacker earns trust with good groups, spends it on a burst of false claims, and earns it again.

    Adaptive: it estimates its own trust by the formula of the nodes, as if every message were verified, and sends a
    false claim whenever its trust stays above a floor.
    """

    id = "on-off"
    layer = "trust"

    def __init__(self, kit: Kit, *, good: int = 100, lies: int = 8, adaptive: bool = False, floor: float = 0.5) -> None:
        """`good` groups precede the first false claim and each burst of `lies`; `floor` is the least trust of the
        adaptive attacker.
        """
        super().__init__(kit)
        self._good = good
        self._lies = lies
        self._adaptive = adaptive
        self._floor = floor
        self._sent: dict[bytes, int] = {}
        self._evidence: dict[bytes, tuple[float, float]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round, with as many false claims as the plan allows."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        kinds = [self.kit.lie if self._lies_now(key) else self.kit.honest for _ in range(self.groups)]
        groups = [make(key, epoch, counter, k) for k, make in enumerate(kinds)]
        yield Packet(self.kit.message(key, epoch, counter, groups))

    def _lies_now(self, key: Key) -> bool:
        sent = self._sent.get(key.issuer, 0)
        self._sent[key.issuer] = sent + 1
        good, bad = self._evidence.get(key.issuer, (0.0, 0.0))
        faded, worse = good * FORGETTING, bad * FORGETTING + 1
        if self._adaptive:
            lies = sent >= self._good and (faded + 1) / (faded + LIE_FACTOR * worse + 2) > self._floor
        else:
            lies = sent % (self._good + self._lies) >= self._good
        self._evidence[key.issuer] = (faded, worse) if lies else (faded + 1, bad * FORGETTING)
        return lies


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
