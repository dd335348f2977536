"""Cases of kind `introductions`: the peers of a response, and how many were requested (PULL-8)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from inventory import IDS, NUMBERED
from wire import ALICE, ARRAY, BOB, array, bstr, head, table, text, uint

FIRST, SECOND = sorted((ALICE.public, BOB.public))
ADDRESS = "/ip4/192.0.2.7/tcp/4001"


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _refusals()


def _one(key: bytes, address: str = ADDRESS) -> bytes:
    return array([bstr(key), text(address)])


def _request(most: int) -> bytes:
    return table(("peers", uint(most)), ("shards", uint(1)))


def _passes(name: str, *pairs: tuple[bytes, str], most: int = 16, note: str = "") -> Case:
    fields = {"request": _request(most), "bytes": array(_one(*pair) for pair in pairs)}
    output = {"introduced": [list(pair) for pair in pairs]}
    return Case(name, "PULL-8", "introductions", fields, ACCEPT, output, note, grammar=True)


def _refused(name: str, data: bytes, *, most: int = 16, rule: str = "PULL-8", grammar: bool | None = False) -> Case:
    return Case(name, rule, "introductions", {"request": _request(most), "bytes": data}, "pull", grammar=grammar)


def _accepted() -> Iterator[Case]:
    yield _passes("nobody")
    yield _passes("one peer", (FIRST, ADDRESS))
    yield _passes("two peers at one place", (FIRST, ADDRESS), (SECOND, ADDRESS))
    note = "What is no address of a kind that the receiver can dial is not followed, and nobody's offence."
    yield _passes("a peer at a place that is none", (FIRST, "nowhere"), note=note)
    yield _passes("an address of 128 bytes", (FIRST, "/" + "a" * 127))
    yield _passes(
        "sixteen peers", *((each, ADDRESS) for each in IDS[:16]), note="Whether a key is one is not asked here."
    )
    yield _passes(
        "sixteen peers with addresses of 128 bytes",
        *((each, "/" + "a" * 127) for each in NUMBERED[:16]),
        note="2,610 bytes, the longest introductions there are.",
    )


def _refusals() -> Iterator[Case]:
    yield _refused("more than were asked for", array([_one(FIRST), _one(SECOND)]), most=1, grammar=True)
    yield _refused("keys in descending order", array([_one(SECOND), _one(FIRST)]), grammar=True)
    yield _refused("one key at two places", array([_one(FIRST), _one(FIRST, ADDRESS + "2")]), grammar=True)
    many = [_one(each) for each in NUMBERED[:16]]
    yield _refused("the last two of sixteen keys exchanged", array([*many[:14], many[15], many[14]]), grammar=True)
    yield _refused("the last of sixteen keys twice", array([*many[:15], many[14]]), grammar=True)
    yield _refused("an empty address of the last of sixteen peers", array([*many[:15], _one(NUMBERED[15], "")]))
    yield _refused("a key of 31 bytes", array([_one(FIRST[:-1])]))
    yield _refused("a key of 33 bytes", array([_one(FIRST + b"\x00")]))
    yield _refused("a key in hexadecimal", array([array([text(FIRST.hex()), text(ADDRESS)])]))
    yield _refused("an empty address", array([_one(FIRST, "")]))
    yield _refused("an address of 129 bytes", array([_one(FIRST, "/" + "a" * 128)]))
    yield _refused("an address of 130 bytes in 65 characters", array([_one(FIRST, "é" * 65)]))
    yield _refused("an address as bytes", array([array([bstr(FIRST), bstr(ADDRESS.encode())])]))
    yield _refused("a key without an address", array([array([bstr(FIRST)])]))
    yield _refused("a map of peers", table(("peer", text(ADDRESS))))
    yield _refused("no bytes", b"")
    yield _refused("4097 bytes", array([bstr(bytes(4_097 - 4))]))
    yield _refused("a byte follows the introductions", array([_one(FIRST)]) + b"\x00", rule="ENC-1", grammar=None)
    yield _refused("the number of peers in a long form", head(ARRAY, 1, 1) + _one(FIRST), rule="ENC-4", grammar=True)
