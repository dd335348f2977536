"""Attacks on the decoders: malformed messages, two encodings of one rollout, and items that cost time or memory."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, cycle

import cbor2

from sapo_adversary.attacks.corpus import corpus
from sapo_adversary.attacks.drafts import Draft
from sapo_adversary.attacks.forms import ARRAY, BYTES, FORMS, MAP, TEXT, encode_as, head, with_x
from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Malformed(Attack):
    """Hundreds of messages are wrong in one place each, to find one that crashes a decoder or is accepted.

    Three in ten are valid and unusual: a node that refuses those is harmed as well.
    """

    id = "malformed"
    layer = "wire"

    def __init__(self, kit: Kit, *, burst: int = 2, unusual: bool = True) -> None:
        """`burst` messages are sent at each turn, with or without the unusual ones that are valid."""
        super().__init__(kit)
        self._burst = burst
        cases = corpus(kit.manifest.completions, kit.manifest.max_completion_bytes)
        cases = [case for case in cases if case.refused or unusual]
        kit.rng.shuffle(cases)
        self._cases = cycle(cases)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The next messages of the corpus, each a round of its own."""
        for _ in range(self._burst):
            counter = self.kit.counter(key, epoch)
            if counter is None:
                return
            case = next(self._cases)
            yield Packet(case.make(Draft(self.kit, key, epoch, counter, groups=case.groups)))


class Twin(Attack):
    """One rollout is sent in many encodings, so that a node counts it many times.

    The author signs each encoding: every signature verifies, and no two messages have the same content id.
    """

    id = "twin"
    layer = "wire"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._waiting: dict[bytes, list[bytes]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round in the correct encoding, and at each later turn one of its other encodings."""
        waiting = self._waiting.setdefault(key.issuer, [])
        if not waiting:
            counter = self.kit.counter(key, epoch)
            if counter is None:
                return
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            payload = self.kit.payload(epoch, counter, groups)
            waiting += [self.kit.signed(key, form, groups) for form in (payload, *twins(payload))]
        yield Packet(waiting.pop(0))


def twins(payload: bytes) -> list[bytes]:
    """Other encodings that a lenient decoder reads as the same payload."""
    value = cbor2.loads(payload)
    rewritten = [encode_as(value, form) for form in FORMS.values()]
    self_described = b"\xd9\xd9\xf7" + payload
    return [*rewritten, self_described, payload + b"\0"]


class Bomb(Attack):
    """A flawless rollout with one item that costs its decoder much time or memory.

    The item is the value of `x`, which every node ignores: by turns in the signed header and in the bodies.
    """

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._turns = count()

    @abstractmethod
    def bombs(self) -> Sequence[bytes]:
        """The encoded items."""

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One message with the next item."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        bombs = self.bombs()
        turn, in_bodies = divmod(next(self._turns), 2)
        place = self.in_bodies if in_bodies else self.in_header
        yield Packet(place(key, epoch, counter, bombs[turn % len(bombs)]))

    def in_header(self, key: Key, epoch: int, counter: int, bomb: bytes) -> bytes:
        """A message with the item in the header, which the signature covers."""
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        return self.kit.signed(key, with_x(self.kit.payload(epoch, counter, groups), bomb), groups)

    def in_bodies(self, key: Key, epoch: int, counter: int, bomb: bytes) -> bytes:
        """A message with the item in each of its bodies."""
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        return self.kit.message(key, epoch, counter, [group.carrying(with_x(group.body, bomb)) for group in groups])


CLAIM = 2**40
"""Bytes or items that a head states."""


class LengthBomb(Bomb):
    """A few bytes state, nest or unfold into more items than memory holds, so that their decoder stalls or runs out of
    memory.
    """

    id = "length-bomb"
    layer = "wire"

    def __init__(self, kit: Kit, *, depth: int = 100_000, items: int = 400_000) -> None:
        """`depth` is the depth of nesting, `items` the number of one-byte items that become large objects."""
        super().__init__(kit)
        self._bombs = (
            head(ARRAY, items) + b"\xa0" * items,
            b"\x81" * depth + b"\x80",
            b"\xa1\x60" * depth + b"\xa0",
            b"\x9f" * depth + b"\xff" * depth,
            *(head(major, CLAIM) for major in (BYTES, TEXT, ARRAY, MAP)),
            head(ARRAY, CLAIM) * 8,
        )

    def bombs(self) -> Sequence[bytes]:
        """Many one-byte items, three kinds of nesting, and too great lengths of each type."""
        return self._bombs


MODULUS = 2**61 - 1
"""Python hashes an integer to its remainder by this number, so that all multiples collide in a hash table."""


class HashCollision(Bomb):
    """A map of integer keys with one hash makes a decoder's time grow with the square of their number."""

    id = "hash-collision"
    layer = "wire"

    def __init__(self, kit: Kit, *, keys: int = 16_000) -> None:
        """`keys` is the number of keys in the map."""
        super().__init__(kit)
        self._bomb = colliding_map(keys)

    def bombs(self) -> Sequence[bytes]:
        """The one map."""
        return (self._bomb,)


def colliding_map(keys: int) -> bytes:
    """A map of `keys` colliding keys, each with the value 0."""
    return head(MAP, keys) + b"".join(_number(MODULUS * place) + b"\0" for place in range(1, keys + 1))


def _number(value: int) -> bytes:
    """An encoded integer; from 2^64 on a bignum."""
    if value < 2**64:
        return head(0, value)
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return b"\xc2" + head(2, len(digits)) + digits


_PATTERN = "(?:" + "|".join(f"a{{{low},{low + 9}}}b?" for low in range(40)) + ")*"

TAGGED: Mapping[str, bytes] = {
    "bignum": cbor2.dumps(2**4000),
    "small bignum": bytes.fromhex("c24101"),
    "date as text": cbor2.dumps(cbor2.CBORTag(0, "2026-01-01T00:00:00Z")),
    "date as a number": cbor2.dumps(cbor2.CBORTag(1, 1_767_225_600)),
    "decimal of many digits": cbor2.dumps(cbor2.CBORTag(4, [999_999, 1])),
    "rational": cbor2.dumps(cbor2.CBORTag(30, [1, 3])),
    "cycle": bytes.fromhex("d81c81d81d00"),
    "shared value": bytes.fromhex("82d81c80d81d00"),
    "stringref": bytes.fromhex("d901008368") + b"abcdefgh" + bytes.fromhex("d81900d81900"),
    "regular expression": cbor2.dumps(cbor2.CBORTag(35, _PATTERN)),
    "mail": cbor2.dumps(cbor2.CBORTag(36, "From: a@b\nSubject: c\n\nd")),
    "uuid": cbor2.dumps(cbor2.CBORTag(37, bytes(16))),
    "set": cbor2.dumps(cbor2.CBORTag(258, [1, 2])),
    "address": cbor2.dumps(cbor2.CBORTag(260, bytes(4))),
    "self-described": bytes.fromhex("d9d9f7a0"),
    "unknown tag": bytes.fromhex("d9ea60a0"),
}
"""Items with a tag, by what a stock decoder makes of them."""


class TagBomb(Bomb):
    """Tags make a decoder build objects that no field needs: cycles, regular expressions, dates, huge numbers."""

    id = "tag-bomb"
    layer = "wire"

    def bombs(self) -> Sequence[bytes]:
        """One item for each tag."""
        return tuple(TAGGED.values())
