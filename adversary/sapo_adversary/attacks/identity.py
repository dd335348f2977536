"""Attacks on signatures, counters and keys."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol import (
    ROLLOUT_DOMAIN,
    RemoteError,
    Sealed,
    decode_message,
    encode_evidence,
    encode_message,
    parse_envelope,
    peer_id,
    seal,
)

ORDER = 2**252 + 27742317777372353535851937790883648493
"""L of Ed25519: S + L is another number for the same scalar."""
_HEARD = 32
_SIGNATURE = 64


class Forgery(Attack):
    """The attacker sends altered messages of honest peers, and false claims in their names, signed by another key."""

    id = "forgery"
    layer = "identity"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._heard: deque[bytes] = deque(maxlen=_HEARD)
        self._lies = 0

    def hear(self, message: bytes) -> None:
        """Keep the last messages."""
        if self.kit.sealed(message):
            self._heard.append(message)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A message with one bit changed, one with another signature, and a false claim and false evidence in the
        author's name.
        """
        if not self._heard:
            return
        message = self.kit.rng.choice(self._heard)
        envelope, bodies = decode_message(message, self.kit.manifest)
        yield Packet(flipped(message, self.kit.rng.randrange(8 * len(message))))
        yield Packet(encode_message(self.kit.rng.choice(resealed(envelope, key.issuer)), bodies))
        name = Key(self._seal_of(message).issuer, key.sign)
        one, other = self._lie(name, epoch), self._lie(name, epoch)
        self._lies += 1
        yield Packet(one)
        yield Packet(encode_evidence(self._seal_of(one), self._seal_of(other)), "evidence")

    def _seal_of(self, message: bytes) -> Sealed:
        sealed = self.kit.sealed(message)
        assert sealed  # it was one when it was heard or made
        return sealed

    def _lie(self, name: Key, epoch: int) -> bytes:
        """A false claim that counts counters down from the last: the honest issuer reaches them late or never."""
        counter = self.kit.manifest.max_rounds - 1 - self._lies % self.kit.manifest.max_rounds
        groups: list[Group] = [self.kit.lie(name, epoch, counter, k) for k in range(self.groups)]
        return self.kit.message(name, epoch, counter, groups)


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def resealed(envelope: bytes, issuer: bytes) -> list[bytes]:
    """The envelope with other signatures, and under another issuer."""
    signed, signature = envelope[:-_SIGNATURE], envelope[-_SIGNATURE:]
    point, scalar = signature[:32], int.from_bytes(signature[32:], "little")
    key = signed.index(b"\xa2\x01\x32\x04\x58\x20") + 6
    return [
        signed + point + ((scalar + ORDER) % 2**256).to_bytes(32, "little"),
        signed + point + (-scalar % ORDER).to_bytes(32, "little"),
        signed + signature[32:] + point,
        signed + bytes(_SIGNATURE),
        signed[:-1] + b"\x3f" + signature[:-1],
        envelope[:-1],
        envelope[:key] + issuer + envelope[key + 32 :],
    ]


_FIELD = 2**255 - 19
_SIGN = 2**255
IDENTITY = (1).to_bytes(32, "little")
_HEIGHTS = (
    0,
    1,
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    _FIELD - 1,
    _FIELD,
    _FIELD + 1,
)
"""The y of all points of small order, the last two not reduced."""
ENCODINGS = tuple((height | sign).to_bytes(32, "little") for height in _HEIGHTS for sign in (0, _SIGN))
"""The 14 keys that nobody holds and anybody can sign for."""


class SmallOrder(Attack):
    """Rollouts come under keys of small order, which belong to no peer and for which a signature of zeros often
    verifies.
    """

    id = "small-order"
    layer = "identity"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._turns = count()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round under the next of these keys, whichever key sends it."""
        del key
        nobody = Key(ENCODINGS[next(self._turns) % len(ENCODINGS)], _zeros)
        counter = self.kit.counter(nobody, epoch)
        if counter is not None:
            yield Packet(self._message(nobody, epoch, counter))

    def _message(self, nobody: Key, epoch: int, counter: int) -> bytes:
        """A message whose hash is a multiple of the order of all these keys: the key drops out of the equation."""
        while True:
            hashes: list[int] = []

            def sign(message: bytes, hashes: list[int] = hashes) -> bytes:
                digest = hashlib.sha512(IDENTITY + nobody.issuer + message).digest()
                hashes.append(int.from_bytes(digest, "little") % ORDER)
                return _zeros(message)

            groups = self.kit.flawless(nobody, epoch, counter, self.groups)
            message = self.kit.message(Key(nobody.issuer, sign), epoch, counter, groups)
            if hashes[0] % 8 == 0:
                return message


def _zeros(_message: bytes) -> bytes:
    """A signature with R the identity and S zero."""
    return IDENTITY + bytes(32)


DOMAINS = ("sapo/evidence/1", "sapo/rollout/1", "sapo/rollout", "sapo/task/2", "libp2p-peer-record", "")
"""Other domains that a key may sign for."""


class CrossDomain(Attack):
    """A message that was signed for another swarm or another purpose is sent as a rollout of this swarm."""

    id = "cross-domain"
    layer = "identity"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round, sealed for another domain or network. Every fourth time also evidence as a rollout and a
        rollout as evidence.
        """
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        places = elsewhere(self.kit.manifest.network_id)
        network_id, domain = places[counter % len(places)]
        payload = self.kit.payload(epoch, counter, groups)
        envelope = seal(payload, issuer=key.issuer, sign=key.sign, network_id=network_id, domain=domain)
        yield Packet(encode_message(envelope, tuple(group.body for group in groups)))
        if counter % 4 == 0:
            true = [self.kit.message(key, epoch, counter, [group]) for group in groups[:2]]
            yield Packet(self._evidence(true))
            yield Packet(true[0], "evidence")

    def _evidence(self, messages: Sequence[bytes]) -> bytes:
        """Valid evidence of an equivocation, sent on the topic of rollouts."""
        envelopes = (decode_message(each, self.kit.manifest)[0] for each in messages)
        one, other = (parse_envelope(each, network_id=self.kit.manifest.network_id) for each in envelopes)
        return encode_evidence(one, other)


def elsewhere(network_id: bytes) -> list[tuple[bytes, str]]:
    """Pairs of network id and domain that differ a little from those of this swarm's rollouts."""
    another = hashlib.sha256(network_id).digest()
    swarms = [(each, ROLLOUT_DOMAIN) for each in (another, bytes(32), b"", network_id[:-1], network_id + b"\0")]
    return swarms + [(network_id, domain) for domain in DOMAINS]


class Replay(Attack):
    """Messages that were valid once are sent again, whole and in parts, so that they are trained on twice.

    A message without some of its bodies has another content id, which the seen cache does not know.
    """

    id = "replay"
    layer = "identity"

    def __init__(self, kit: Kit, *, repeats: int = 8, kept: int = 4_096) -> None:
        """`repeats` of the last `kept` messages are sent again at each turn."""
        super().__init__(kit)
        self._repeats = repeats
        self._recorded: deque[bytes] = deque(maxlen=kept)

    def hear(self, message: bytes) -> None:
        """Keep a message, to send it again later."""
        self._recorded.append(message)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round of its own, at first in part; then recorded messages, in part and whole."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            message = self.kit.message(key, epoch, counter, groups)
            self._recorded.append(message)
            yield Packet(self._part_of(message))
        for message in self.kit.rng.sample(self._recorded, min(self._repeats, len(self._recorded))):
            yield Packet(self._part_of(message))
            yield Packet(message)

    def _part_of(self, message: bytes) -> bytes:
        """The message with each body kept or left out at random."""
        try:
            envelope, bodies = decode_message(message, self.kit.manifest)
        except RemoteError:
            return message
        return encode_message(envelope, tuple(body if self.kit.rng.random() < 0.5 else None for body in bodies))


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


class Reconnect(Attack):
    """A peer that is banned for false claims leaves for a while and comes back under the same key."""

    id = "reconnect"
    layer = "identity"

    def __init__(self, kit: Kit, *, stays: int = 6, away: int = 4) -> None:
        """The peer sends false claims for `stays` turns and is away for the next `away` turns."""
        super().__init__(kit)
        self._stays = stays
        self._cycle = stays + away
        self._turns: Counter[bytes] = Counter()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Only false claims, in the turns in which it stays."""
        turn = self._turns[key.issuer]
        self._turns[key.issuer] += 1
        if turn % self._cycle >= self._stays:
            return
        yield from self.round(key, epoch, self.kit.lie)


class NewKeys(Attack):
    """Each key is discarded after one offence, so that the attacker is always an untrusted peer, with the credit of
    one.
    """

    id = "new-keys"
    layer = "identity"

    def __init__(self, kit: Kit, *, alive: int = 4, turns: int = 4) -> None:
        """`alive` keys are in use at a time, each for `turns` turns; the last turn is the offence."""
        super().__init__(kit)
        self._turns = turns
        self._alive = {key.issuer for key in kit.keys[:alive]}
        self._unused = deque(kit.keys[alive:])
        self._played: Counter[bytes] = Counter()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Flawless groups with the greatest advantage, and at last one message of false claims."""
        if key.issuer not in self._alive:
            return
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        self._played[key.issuer] += 1
        offends = self._played[key.issuer] == self._turns
        make = self.kit.lie if offends else self.kit.honest
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self.groups)]))
        if offends:
            self._alive.discard(key.issuer)
            if self._unused:
                self._alive.add(self._unused.popleft().issuer)


EARNING_EPOCHS = 3
"""Epochs in which a patient sybil behaves honestly: as many as a peer needs to become healthy, and one more."""


class Sybil(Attack):
    """Many keys of one attacker always have the answers, so that most of what a swarm trains on is theirs.

    Everything that they send is correct. A peer that holds most of the loss weight may poison it later.
    """

    id = "sybil"
    layer = "identity"

    def __init__(
        self, kit: Kit, *, patient: bool = False, padding: int = 32, groups: int = Attack.groups, heavy: bool = False
    ) -> None:
        """`patient` keys earn trust with plain short groups first; `padding` bytes are added to each text; a message
        has `groups` groups. All completions of a `heavy` group are correct but one, which is empty.
        """
        super().__init__(kit)
        self._groups = groups
        self._heavy = heavy
        self._padding = padding
        self._patience = EARNING_EPOCHS if patient else 0
        self._start: int | None = None

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Half of the completions correct, or all but one; padded after the patient phase."""
        if self._start is None:
            self._start = epoch
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        make = self.kit.honest if epoch - self._start < self._patience else self._padded
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self._groups)]))

    def _padded(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        rewards = tuple(place > 0 for place in range(len(self.kit.half))) if self._heavy else self.kit.half
        padding = "Well. " * (self._padding // 6)
        texts = [
            "" if self._heavy and not reward else padding + text
            for text, reward in zip(self.kit.answers(task, rewards), rewards, strict=True)
        ]
        return self.kit.group(task, texts, rewards)
