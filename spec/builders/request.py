"""Cases of kind `request`: what a peer may request (PULL-1 to PULL-3, PULL-7, PULL-9, PULL-10)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from example import EPOCH
from inventory import IDS, NUMBERED, inventory_item
from rounds import ROUND
from wire import NULL, TRUE, array, bstr, head, sorted_table, table, text, uint

LIST = {"epoch": uint(EPOCH), "after": bstr(b""), "shards": uint(1)}
NOTHING = dict.fromkeys(("epoch", "after", "shards", "want", "hops", "peers"))
ALL_SHARDS = 2**32 - 1
LARGEST = 2**64 - 1


def cases() -> Iterable[Case]:
    yield from _lists()
    yield from _wants()
    yield from _shapes()
    yield from _lists_refused()
    yield from _wants_refused()
    yield from _peers()
    yield from _shards()
    yield from _hops()


def _passes(name: str, rule: str, data: bytes, output: dict[str, object] | None, note: str = "") -> Case:
    return Case(name, rule, "request", {"bytes": data}, ACCEPT, output, note, grammar=True)


def _refused(name: str, rule: str, data: bytes, *, grammar: bool | None = False, note: str = "") -> Case:
    return Case(name, rule, "request", {"bytes": data}, "pull", note=note, grammar=grammar)


def _list(**changes: bytes) -> bytes:
    return sorted_table(LIST | changes)


def _peers_request(**changes: bytes) -> bytes:
    return sorted_table({"peers": uint(1), "shards": uint(1)} | changes)


def _want(*pairs: bytes) -> bytes:
    return table(("want", array(pairs)))


def _lists() -> Iterator[Case]:
    output = NOTHING | {"epoch": EPOCH, "after": b"", "shards": 1}
    yield _passes("a list from the beginning", "PULL-2", _list(), output)
    yield _passes("a list behind an id", "PULL-2", _list(after=bstr(IDS[0])), output | {"after": IDS[0]})
    note = "JSON numbers do not hold this epoch, so no output is named."
    yield _passes("a list of the last of all epochs", "PULL-1", _list(epoch=uint(LARGEST)), None, note)


def _wants() -> Iterator[Case]:
    def output(*pairs: tuple[bytes, int]) -> dict[str, object]:
        return NOTHING | {"want": [list(pair) for pair in pairs]}

    one = ROUND.envelope_id
    yield _passes("one message without bodies", "PULL-3", _want(inventory_item(one, 0)), output((one, 0)))
    yield _passes("one message with all bodies", "PULL-3", _want(inventory_item(one, 65_535)), output((one, 65_535)))
    two = _want(inventory_item(IDS[0], 1), inventory_item(IDS[1], 5))
    yield _passes("two messages", "PULL-3", two, output((IDS[0], 1), (IDS[1], 5)))
    full = [(each, 1) for each in IDS[:64]]
    yield _passes("sixty-four messages", "PULL-3", _want(*(inventory_item(*pair) for pair in full)), output(*full))
    near = [bytes(31) + b"\x7f", bytes(31) + b"\x80"]
    note = "Bytes are compared without a sign."
    yield _passes("ids on both sides of 80", "PULL-3", _want(*(inventory_item(each, 0) for each in near)),
                  output(*((each, 0) for each in near)), note)  # fmt: skip


def _shapes() -> Iterator[Case]:
    shapes = {
        "no bytes": b"",
        "an epoch alone": table(("epoch", uint(EPOCH))),
        "an id alone": table(("after", bstr(b""))),
        "an empty map": table(),
        "an array of epoch and after": array([uint(EPOCH), bstr(b"")]),
        "a list without shards": table(("after", bstr(b"")), ("epoch", uint(EPOCH))),
        "a want with shards": sorted_table({"want": array([inventory_item(IDS[0], 0)]), "shards": uint(1)}),
        "peers without shards": table(("peers", uint(1))),
        "a list and a want": sorted_table(LIST | {"want": array([inventory_item(IDS[0], 0)])}),
        "a list with an x": _list(x=table()),
        "hops alone": table(("hops", uint(1))),
        "hops in a list": _list(hops=uint(1)),
        "hops in a request for peers": _peers_request(hops=uint(1)),
        "a want with an unknown key": sorted_table({"want": array([inventory_item(IDS[0], 0)]), "y": uint(0)}),
    }
    for name, data in shapes.items():
        yield _refused(name, "PULL-1", data)
    note = "The limit leaves room beyond any request, so it is met only with bytes that are refused anyway."
    long = _list(after=bstr(bytes(4_097 - len(_list()) - 2)))
    yield _refused("a request of 4097 bytes", "PULL-1", long, note=note)
    yield _refused("a byte follows the request", "ENC-1", _list() + b"\x00", grammar=None)
    after, epoch, shards = ("after", bstr(b"")), ("epoch", uint(EPOCH)), ("shards", uint(1))
    yield _refused("keys in the wrong order", "ENC-6", table(epoch, after, shards), grammar=True)
    yield _refused("a key twice", "ENC-6", table(after, after, epoch, shards), grammar=None)


def _lists_refused() -> Iterator[Case]:
    yield _refused("after of 31 bytes", "PULL-2", _list(after=bstr(bytes(31))))
    yield _refused("after of 33 bytes", "PULL-2", _list(after=bstr(bytes(33))))
    yield _refused("after as text", "PULL-2", _list(after=text("")))
    yield _refused("after is null", "ENC-2", _list(after=NULL))
    yield _refused("an epoch as text", "PULL-2", _list(epoch=text("5")))
    yield _refused("an epoch that is true", "PULL-2", _list(epoch=TRUE), note="In some languages true is 1.")
    yield _refused("an epoch below zero", "ENC-2", _list(epoch=head(1, 0)))


def _wants_refused() -> Iterator[Case]:
    one = IDS[0]
    most = [inventory_item(each, 0) for each in NUMBERED[:64]]
    wants = {
        "nothing is wanted": _want(),
        "sixty-five messages": _want(*(inventory_item(each, 0) for each in IDS[:65])),
        "ids in descending order": _want(inventory_item(IDS[1], 0), inventory_item(one, 0)),
        "the last two of sixty-four ids exchanged": _want(*most[:62], most[63], most[62]),
        "the last of sixty-four ids twice": _want(*most[:63], most[62]),
        "the last of sixty-four messages with bodies beyond sixteen": _want(
            *most[:63], inventory_item(NUMBERED[63], 65_536)
        ),
        "one id twice": _want(inventory_item(one, 0), inventory_item(one, 0)),
        "one id twice with other bodies": _want(inventory_item(one, 0), inventory_item(one, 1)),
        "an id of 31 bytes": _want(inventory_item(one[:-1], 0)),
        "an id of 33 bytes": _want(inventory_item(one + b"\x00", 0)),
        "an id in hexadecimal": _want(array([text(one.hex()), uint(0)])),
        "bodies beyond sixteen": _want(inventory_item(one, 65_536)),
        "bodies as an array": _want(array([bstr(one), array([uint(0)])])),
        "bodies that are true": _want(array([bstr(one), TRUE])),
        "an id without bodies": _want(array([bstr(one)])),
        "a pair of three": _want(array([bstr(one), uint(0), uint(0)])),
        "ids without pairs": _want(bstr(one)),
        "a map of ids": table(("want", table((one.hex(), uint(0))))),
    }
    ordered = {
        "ids in descending order",
        "the last two of sixty-four ids exchanged",
        "the last of sixty-four ids twice",
        "one id twice",
        "one id twice with other bodies",
    }
    for name, data in wants.items():
        yield _refused(name, "PULL-3", data, grammar=name in ordered)


def _peers() -> Iterator[Case]:
    for count in (1, 16):
        output = NOTHING | {"peers": count, "shards": 1}
        yield _passes(f"{count} peers", "PULL-7", _peers_request(peers=uint(count)), output)
    invalid = {
        "no peers": uint(0),
        "seventeen peers": uint(17),
        "peers as text": text("1"),
        "peers that are true": TRUE,
        "a list of peers": array([bstr(IDS[0])]),
    }
    for name, value in invalid.items():
        yield _refused(name, "PULL-7", _peers_request(peers=value))
    yield _refused("peers and a want", "PULL-1", _peers_request(want=array([inventory_item(IDS[0], 0)])))


def _shards() -> Iterator[Case]:
    for name, shards in (("shard 31", 2**31), ("every shard", ALL_SHARDS), ("shards 0 and 2", 5)):
        listed = NOTHING | {"epoch": EPOCH, "after": b"", "shards": shards}
        yield _passes(f"a list of {name}", "PULL-9", _list(shards=uint(shards)), listed)
        peers = NOTHING | {"peers": 1, "shards": shards}
        yield _passes(f"peers of {name}", "PULL-9", _peers_request(shards=uint(shards)), peers)
    invalid = {
        "no shard": uint(0),
        "a shard beyond the last": uint(2**32),
        "a shard that is true": TRUE,
        "an array of shards": array([uint(0)]),
    }
    for name, value in invalid.items():
        yield _refused(f"a list of {name}", "PULL-9", _list(shards=value))
        yield _refused(f"peers of {name}", "PULL-9", _peers_request(shards=value))


def _hops() -> Iterator[Case]:
    def wanted(hops: bytes, *ids: bytes) -> bytes:
        return table(("hops", hops), ("want", array(inventory_item(each, 5) for each in ids)))

    for hops in (1, 4):
        name = "one hop" if hops == 1 else f"{hops} hops"
        yield _passes(f"bodies over {name}", "PULL-10", wanted(uint(hops), IDS[0]),
                      NOTHING | {"want": [[IDS[0], 5]], "hops": hops})  # fmt: skip
    note = "Without a hop the key is left out."
    yield _refused("bodies over no hop", "PULL-10", wanted(uint(0), IDS[0]), note=note)
    invalid = {"five hops": uint(5), "hops as text": text("1"), "hops that are true": TRUE, "a list of hops": array([])}
    for name, value in invalid.items():
        yield _refused(f"bodies over {name}", "PULL-10", wanted(value, IDS[0]))
    yield _refused("bodies of two messages over a hop", "PULL-10", wanted(uint(1), IDS[0], IDS[1]), grammar=True)
    yield _refused("bodies of no message over a hop", "PULL-3", wanted(uint(1)))
    backwards = table(("want", array([inventory_item(IDS[0], 5)])), ("hops", uint(1)))
    yield _refused("hops behind the want", "ENC-6", backwards, grammar=True)
