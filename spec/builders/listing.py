"""Cases of kind `listing`: the envelopes that a peer claims to hold, and the request (PULL-4)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from example import EPOCH
from inventory import IDS, NUMBERED, inventory_item
from wire import ARRAY, array, bstr, head, sorted_table, table, text, uint


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _refusals()


def _request(after: bytes) -> bytes:
    return sorted_table({"epoch": uint(EPOCH), "after": bstr(after), "shards": uint(1)})


def _passes(name: str, pairs: list[tuple[bytes, int]], after: bytes = b"", note: str = "") -> Case:
    fields = {"request": _request(after), "bytes": array(inventory_item(*pair) for pair in pairs)}
    return Case(name, "PULL-4", "listing", fields, ACCEPT, {"held": [list(pair) for pair in pairs]}, note, grammar=True)


def _refused(
    name: str, data: bytes, after: bytes = b"", *, rule: str = "PULL-4", grammar: bool | None = False, note: str = ""
) -> Case:
    return Case(name, rule, "listing", {"request": _request(after), "bytes": data}, "pull", note=note, grammar=grammar)


def _accepted() -> Iterator[Case]:
    yield _passes("nothing is held", [])
    yield _passes("nothing is held behind an id", [], IDS[5])
    yield _passes("one envelope with one body", [(IDS[0], 1)])
    yield _passes("an envelope without bodies", [(IDS[0], 0)])
    yield _passes("the next id", [(IDS[1], 3)], IDS[0])
    yield _passes("an id of zeros from the beginning", [(bytes(32), 1)], note="From the beginning every id is listed.")
    full = {"request": _request(b""), "bytes": array(inventory_item(each, 65_535) for each in NUMBERED)}
    note = "38,915 bytes, the longest listing there is."
    yield Case("1024 envelopes with sixteen bodies each", "PULL-4", "listing", full, note=note, grammar=True)


def _refusals() -> Iterator[Case]:
    one, two = inventory_item(IDS[0], 1), inventory_item(IDS[1], 1)
    yield _refused("the id asked behind", array([one]), IDS[0], grammar=True)
    yield _refused("an id before the one asked behind", array([one]), IDS[1], grammar=True)
    yield _refused("an id of zeros behind zeros", array([inventory_item(bytes(32), 1)]), bytes(32), grammar=True)
    yield _refused("ids in descending order", array([two, one]), grammar=True)
    yield _refused("one id twice", array([one, one]), grammar=True)
    yield _refused("an id of 31 bytes", array([inventory_item(IDS[0][:-1], 1)]))
    many = [inventory_item(each, 1) for each in NUMBERED[:16]]
    yield _refused("the last two of sixteen ids exchanged", array([*many[:14], many[15], many[14]]), grammar=True)
    longer = inventory_item(NUMBERED[15], 65_536)
    yield _refused("the last of sixteen envelopes with bodies beyond sixteen", array([*many[:15], longer]))
    yield _refused("bodies beyond sixteen", array([inventory_item(IDS[0], 65_536)]))
    yield _refused("1025 envelopes", array(inventory_item(each, 1) for each in IDS))
    yield _refused("no bytes", b"")
    yield _refused("a map", table())
    yield _refused("ids as text", array([array([text("id"), uint(1)])]))
    note = "By its length it cannot be one; nothing of it needs to be read."
    yield _refused("a listing of 40001 bytes", array([bstr(bytes(40_001 - 4))]), note=note)
    yield _refused("a byte follows the listing", array([one]) + b"\x00", rule="ENC-1", grammar=None)
    yield _refused("the number of pairs in a long form", head(ARRAY, 1, 1) + one, rule="ENC-4", grammar=True)
