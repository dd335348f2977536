from collections.abc import Mapping, Sequence

import cbor2

from sapo_adversary.attacks.bomb import Bomb

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
