"""Cases of kind `header`: the payload of a rollout's envelope (HDR-1 to HDR-4, EXT-1, EXT-2)."""

from collections.abc import Iterable, Iterator, Mapping

from cases import ACCEPT, Case
from example import BODY, COUNTER, EPOCH, FIELDS, GROUP, GROUP_FIELDS, HEADER
from wire import (
    ARRAY,
    BYTES,
    EXAMPLE,
    FALSE,
    MAP,
    NULL,
    TEXT,
    TRUE,
    UINT,
    UNDEFINED,
    Swarm,
    array,
    bstr,
    head,
    sorted_table,
    table,
    text,
    uint,
)

LARGEST = 2**64 - 1


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _extensions()
    yield from _keys()
    yield from _counts()
    yield from _numbers()
    yield from _groups()
    yield from _group_keys()
    yield from _digests()
    yield from _claims()
    yield from _last_of_sixteen()
    yield from _refused_extensions()
    yield from _incomplete()
    yield from _types()
    yield from _long_forms()
    yield from _order()


def _passes(name: str, rule: str, data: bytes, *, swarm: Swarm = EXAMPLE, note: str = "", **different: int) -> Case:
    """`different`: outputs that differ from those of the example."""
    output = {"epoch": EPOCH, "counter": COUNTER, "groups": 1} | different
    return Case(name, rule, "header", _input(data, swarm), ACCEPT, output, note, grammar=True)


def _refused(
    name: str, rule: str, data: bytes, *, grammar: bool | None = False, swarm: Swarm = EXAMPLE, note: str = ""
) -> Case:
    return Case(name, rule, "header", _input(data, swarm), "header", note=note, grammar=grammar)


def _input(data: bytes, swarm: Swarm) -> Mapping[str, bytes]:
    return {"manifest": swarm.encoded(), "bytes": data}


def _with(**changes: bytes) -> bytes:
    return sorted_table(FIELDS | changes)


def _without(fields: Mapping[str, bytes], key: str) -> bytes:
    return sorted_table({name: value for name, value in fields.items() if name != key})


def _with_group(**changes: bytes) -> bytes:
    return _with(groups=array([sorted_table(GROUP_FIELDS | changes)]))


def _claiming(*claims: int) -> bytes:
    return _with_group(claims=bstr(bytes(claims)))


def _nested(depth: int) -> bytes:
    """Nested arrays, the innermost one empty."""
    return head(ARRAY, 1) * (depth - 1) + head(ARRAY, 0)


def _accepted() -> Iterator[Case]:
    yield _passes("one group", "HDR-1", HEADER)
    yield _passes("sixteen groups", "HDR-3", _with(groups=array([GROUP] * 16)), groups=16)
    yield _passes("epoch zero", "HDR-2", _with(epoch=uint(0)), epoch=0)
    for epoch in (23, 24, 255, 256, 2**16 - 1, 2**16, 2**32 - 1, 2**32):
        yield _passes(f"epoch {epoch}", "HDR-2", _with(epoch=uint(epoch)), epoch=epoch)
    yield _passes("epoch 2 to the 53 less one", "HDR-2", _with(epoch=uint(2**53 - 1)), epoch=2**53 - 1)
    note = "Whether an epoch is open is asked later. JSON numbers do not hold this one, so no output is named."
    largest = _input(_with(epoch=uint(LARGEST)), EXAMPLE)
    yield Case("epoch 2 to the 64 less one", "HDR-2", "header", largest, note=note, grammar=True)
    yield _passes("counter zero", "HDR-2", _with(counter=uint(0)), counter=0)
    yield _passes("counter max rounds less one", "HDR-2", _with(counter=uint(99)), counter=99)
    alone, zero = Swarm(max_rounds=1), _with(counter=uint(0))
    yield _passes("the only counter of a swarm of one round", "HDR-2", zero, swarm=alone, counter=0)
    yield _passes("two claims of level 1", "HDR-4", _claiming(1, 1))
    yield _passes("two claims of level 0", "HDR-4", _claiming(0, 0))
    note = "The levels of its task are not compared here."
    yield _passes("claims of level 255 and 10", "HDR-4", _claiming(255, 10), note=note)
    sixteen = Swarm(completions=16)
    yield _passes("sixteen claims in a swarm of sixteen completions", "HDR-4", _claiming(*[1, 0] * 8), swarm=sixteen)
    for name, byte in {"zeros": 0x00, "line feeds": 0x0A, "ones": 0xFF}.items():
        digest = bstr(bytes([byte] * 32))
        yield _passes(f"digests of {name}", "HDR-4", _with_group(digest=digest, body=digest))


def _extensions() -> Iterator[Case]:
    yield _passes("an empty x", "EXT-1", _with(x=table()))
    yield _passes("an x of 256 bytes", "EXT-1", _with(x=table(("a", bstr(bytes(251))))))
    everything = (("a", uint(LARGEST)), ("b", text("text")), ("c", bstr(b"\xff")), ("d", array([TRUE, FALSE])))
    yield _passes("an x with every type of value", "EXT-1", _with(x=table(*everything, ("e", table(("f", uint(0)))))))
    note = "What is in x has no meaning, whatever it is called."
    namesakes = _with(x=sorted_table({"epoch": text("none"), "groups": uint(0), "counter": uint(LARGEST)}))
    yield _passes("an x with the keys of a header", "EXT-1", namesakes, note=note)
    yield _passes("an x with empty text as key", "EXT-1", _with(x=table(("", uint(0)))))
    note = "The header is the first map, x the second, six arrays follow."
    yield _passes("an x that nests to depth 8", "EXT-1", _with(x=table(("a", _nested(6)))), note=note)
    note = "What a peer of version 2.1 may add."
    yield _passes("an x of a later minor version", "VRS-2", _with(x=table(("entropy", uint(7)))), note=note)


def _keys() -> Iterator[Case]:
    for key in FIELDS:
        yield _refused(f"no {key}", "HDR-1", _without(FIELDS, key))
    yield _refused("no keys", "HDR-1", table())
    unknown = {"an unknown key": "y", "a capital x as key": "X", "a model label": "model", "an empty key": ""}
    for name, key in unknown.items():
        yield _refused(name, "EXT-2", _with(**{key: table()}))
    misspelt = {key.replace("epoch", "Epoch"): value for key, value in FIELDS.items()}
    yield _refused("a capital letter in epoch", "HDR-1", sorted_table(misspelt))
    yield _refused("an array of the values", "HDR-1", array(FIELDS.values()))
    yield _refused("a byte string around the header", "HDR-1", bstr(HEADER))
    yield _refused("an integer", "HDR-1", uint(EPOCH))


def _counts() -> Iterator[Case]:
    for claimed, there in ((2, 1), (1, 2), (0, 1), (15, 16), (16, 15)):
        name = f"groups that claim to be {claimed} and are {there}"
        yield _refused(name, "HDR-1", _with(groups=head(ARRAY, claimed) + GROUP * there))


def _numbers() -> Iterator[Case]:
    note = "Counters begin at 0, so max_rounds of them end one below it."
    yield _refused("counter max rounds", "HDR-2", _with(counter=uint(100)), grammar=True, note=note)
    alone = Swarm(max_rounds=1)
    yield _refused("counter one in a swarm of one round", "HDR-2", _with(counter=uint(1)), grammar=True, swarm=alone)
    yield _refused(
        "counter 2 to the 32", "HDR-2", _with(counter=uint(2**32)), grammar=True, note="Cut to 32 bits it is 0."
    )
    yield _refused("counter 2 to the 64 less one", "HDR-2", _with(counter=uint(LARGEST)), grammar=True)
    others = {
        "text": text("5"),
        "true": TRUE,
        "false": FALSE,
        "a byte string": bstr(b"\x05"),
        "an array": array([uint(5)]),
    }
    for key in ("epoch", "counter"):
        for name, value in others.items():
            yield _refused(f"{key} is {name}", "HDR-2", _with(**{key: value}))


def _groups() -> Iterator[Case]:
    yield _refused("no groups at all", "HDR-3", _with(groups=array([])))
    yield _refused("seventeen groups", "HDR-3", _with(groups=array([GROUP] * 17)))
    yield _refused("groups is a group", "HDR-3", _with(groups=GROUP))
    yield _refused("groups is a map of groups", "HDR-3", _with(groups=table(("0", GROUP))))
    yield _refused("groups is a byte string", "HDR-3", _with(groups=bstr(array([GROUP]))))
    yield _refused("groups is a number", "HDR-3", _with(groups=uint(1)))


def _group_keys() -> Iterator[Case]:
    for key in GROUP_FIELDS:
        yield _refused(f"a group without {key}", "HDR-4", _with(groups=array([_without(GROUP_FIELDS, key)])))
    yield _refused(
        "a group with a seed", "EXT-2", _with_group(seed=uint(0)), note="Task and seed are derived, never sent."
    )
    yield _refused("a group with an x", "EXT-2", _with_group(x=table()))
    yield _refused(
        "an unknown key in the last of sixteen groups",
        "EXT-2",
        _with(groups=array([*[GROUP] * 15, sorted_table(GROUP_FIELDS | {"y": uint(0)})])),
    )
    yield _refused("a group is an array of its values", "HDR-4", _with(groups=array([array(GROUP_FIELDS.values())])))
    yield _refused("a group is a byte string", "HDR-4", _with(groups=array([bstr(GROUP)])))
    yield _refused(
        "a second group without claims", "HDR-4", _with(groups=array([GROUP, _without(GROUP_FIELDS, "claims")]))
    )


def _digests() -> Iterator[Case]:
    for key in ("digest", "body"):
        for length in (0, 31, 33):
            yield _refused(f"a {key} of {length} bytes", "HDR-4", _with_group(**{key: bstr(bytes(length))}))
        yield _refused(f"a {key} of text", "HDR-4", _with_group(**{key: text("a" * 32)}))
    yield _refused("a digest in hexadecimal", "HDR-4", _with_group(digest=text("00" * 32)))
    yield _refused("a digest of integers", "HDR-4", _with_group(digest=array([uint(0)] * 32)))
    yield _refused("the body itself in place of its hash", "HDR-4", _with_group(body=bstr(BODY)))


def _claims() -> Iterator[Case]:
    yield _refused("no claims", "HDR-4", _claiming())
    yield _refused("one claim in a swarm of two completions", "HDR-4", _claiming(1))
    yield _refused("three claims in a swarm of two completions", "HDR-4", _claiming(1, 0, 0), grammar=True)
    three = Swarm(completions=3)
    yield _refused("two claims in a swarm of three completions", "HDR-4", _claiming(1, 0), grammar=True, swarm=three)
    others = {
        "integers": array([uint(1), uint(0)]),
        "booleans": array([TRUE, FALSE]),
        "text": text("\1\0"),
        "bits in a byte": bstr(b"\x80"),
        "an integer": uint(1),
        "a map": table(("0", uint(1)), ("1", uint(0))),
        "an array of byte strings": array([bstr(b"\1"), bstr(b"\0")]),
    }
    for name, value in others.items():
        yield _refused(f"claims are {name}", "HDR-4", _with_group(claims=value))


def _last_of_sixteen() -> Iterator[Case]:
    sixteen = Swarm(completions=16)
    fields = GROUP_FIELDS | {"claims": bstr(bytes([1, 0] * 8))}
    good = sorted_table(fields)
    full = _with(groups=array([good] * 16))
    yield _passes("sixteen groups of sixteen claims", "HDR-4", full, swarm=sixteen, groups=16)
    last = {
        "whose claims are integers": {"claims": array([uint(1), uint(0)] * 8)},
        "with fifteen claims": {"claims": bstr(bytes([1] * 15))},
        "with a digest of 31 bytes": {"digest": bstr(bytes(31))},
        "with a body of 33 bytes": {"body": bstr(bytes(33))},
    }
    for name, changes in last.items():
        data = _with(groups=array([*[good] * 15, sorted_table(fields | changes)]))
        grammar = name == "with fifteen claims"
        yield _refused(f"a last of sixteen groups {name}", "HDR-4", data, grammar=grammar, swarm=sixteen)


def _refused_extensions() -> Iterator[Case]:
    yield _refused(
        "an x of 257 bytes",
        "EXT-1",
        _with(x=table(("a", bstr(bytes(252))))),
        grammar=True,
        note="Counted is the encoding of the map, its head and keys included.",
    )
    others = {"an array": array([]), "a byte string": bstr(table()), "text": text(""), "true": TRUE, "zero": uint(0)}
    for name, value in others.items():
        yield _refused(f"x is {name}", "EXT-1", _with(x=value))
    yield _refused(
        "an x that nests to depth 9",
        "ENC-8",
        _with(x=table(("a", _nested(7)))),
        grammar=True,
        note="The limits of an item hold for the whole header.",
    )
    yield _refused("an integer key in x", "ENC-5", _with(x=head(MAP, 1) + uint(0) + uint(0)))
    yield _refused("null in x", "ENC-2", _with(x=table(("a", NULL))))
    yield _refused("a float in x", "ENC-2", _with(x=table(("a", bytes.fromhex("f9 3c00")))))
    yield _refused(
        "keys of x out of order",
        "ENC-6",
        _with(x=table(("aa", uint(0)), ("b", uint(0)))),
        grammar=True,
        note="In the alphabet aa comes first; by their encodings, 61 62 and 62 61 61, it does not.",
    )
    yield _refused("a long form in x", "ENC-4", _with(x=table(("a", head(UINT, 23, 1)))), grammar=True)
    yield _refused("ill-formed text in x", "ENC-7", _with(x=table(("a", head(TEXT, 1) + b"\xff"))), grammar=None)


def _incomplete() -> Iterator[Case]:
    yield _refused("no bytes", "ENC-1", b"")
    yield _refused("the last byte is missing", "ENC-1", HEADER[:-1])
    yield _refused("a byte follows", "ENC-1", HEADER + b"\x00", grammar=None)
    yield _refused("a second header follows", "ENC-1", HEADER + HEADER, grammar=None)
    claimed = {
        "groups that claim 2 to the 64 less one": (ARRAY, LARGEST),
        "groups that claim 2 to the 32": (ARRAY, 2**32),
    }
    for name, (major, count) in claimed.items():
        yield _refused(name, "ENC-10", _with(groups=head(major, count) + GROUP))
    yield _refused("a digest that claims 2 to the 63", "ENC-10", _with_group(digest=head(BYTES, 2**63) + bytes(32)))


def _types() -> Iterator[Case]:
    refused = {
        "epoch is a float": bytes.fromhex("f9 4500"),
        "epoch is minus one": bytes.fromhex("20"),
        "epoch is null": NULL,
        "epoch is undefined": UNDEFINED,
        "epoch is a big number": bytes.fromhex("c2 41 05"),
    }
    for name, value in refused.items():
        yield _refused(name, "ENC-2", _with(epoch=value))
    yield _refused("a tag around the header", "ENC-2", bytes.fromhex("d9 d9f7") + HEADER, grammar=None)
    in_tag = bytes.fromhex("d8 18") + bstr(bytes([1, 0]))
    yield _refused("a tag around the claims", "ENC-2", _with_group(claims=in_tag))
    endless = b"\xff"
    yield _refused("an indefinite header", "ENC-3", b"\xbf" + HEADER[1:] + endless, grammar=True)
    yield _refused("indefinite groups", "ENC-3", _with(groups=b"\x9f" + GROUP + endless), grammar=True)
    yield _refused(
        "an indefinite digest", "ENC-3", _with_group(digest=b"\x5f" + bstr(bytes(32)) + endless), grammar=True
    )


def _long_forms() -> Iterator[Case]:
    # It sorts after the short keys, so the keys ascend.
    long_key = head(TEXT, 5, 1) + b"epoch" + uint(EPOCH)
    refused = {
        "epoch 23 in one byte": _with(epoch=head(UINT, 23, 1)),
        "epoch 255 in two bytes": _with(epoch=head(UINT, 255, 2)),
        "epoch 65535 in four bytes": _with(epoch=head(UINT, 2**16 - 1, 4)),
        "epoch 4294967295 in eight bytes": _with(epoch=head(UINT, 2**32 - 1, 8)),
        "counter in a long form": _with(counter=head(UINT, COUNTER, 2)),
        "the number of keys in a long form": head(MAP, 3, 1) + HEADER[1:],
        "the number of groups in a long form": _with(groups=head(ARRAY, 1, 1) + GROUP),
        "the number of claims in a long form": _with_group(claims=head(BYTES, 2, 1) + bytes([1, 0])),
        "the length of a digest in a long form": _with_group(digest=head(BYTES, 32, 2) + bytes(32)),
        "the length of a key in a long form": head(MAP, 3) + _pairs("groups", "counter") + long_key,
    }
    for name, data in refused.items():
        yield _refused(name, "ENC-4", data, grammar=True)


def _pairs(*keys: str) -> bytes:
    return b"".join(text(key) + FIELDS[key] for key in keys)


def _order() -> Iterator[Case]:
    alphabet = head(MAP, 3) + _pairs("counter", "epoch", "groups")
    note = "By their encodings the shorter keys come first: epoch, groups, counter."
    yield _refused("keys in the order of the alphabet", "ENC-6", alphabet, grammar=True, note=note)
    yield _refused("groups before epoch", "ENC-6", head(MAP, 3) + _pairs("groups", "epoch", "counter"), grammar=True)
    last = head(MAP, 4) + _pairs("epoch", "groups", "counter") + text("x") + table()
    yield _refused("x after the other keys", "ENC-6", last, grammar=True)
    yield _refused("epoch twice", "ENC-6", head(MAP, 4) + _pairs("epoch", "epoch", "groups", "counter"), grammar=None)
    backwards = table(*reversed(GROUP_FIELDS.items()))
    yield _refused("keys of a group out of order", "ENC-6", _with(groups=array([backwards])), grammar=True)
    as_bytes = head(MAP, 3) + bstr(b"epoch") + uint(EPOCH) + _pairs("groups", "counter")
    yield _refused("a key of bytes", "ENC-5", as_bytes)
    numbered = head(MAP, 4) + uint(0) + uint(0) + _pairs("epoch", "groups", "counter")
    yield _refused("an integer key", "ENC-5", numbered)
