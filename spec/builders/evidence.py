"""Cases of kind `evidence`: pairs of envelopes that prove equivocation, and pairs that do not (EVD-1 to EVD-4)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from cases import ACCEPT, Case
from example import BODY, COUNTER, EPOCH, FIELDS, GROUP, GROUP_FIELDS, HEADER
from rounds import OTHER_GROUP, ROUND, Round, sealed_in, signed_again
from wire import (
    ARRAY,
    BOB,
    BYTES,
    EXAMPLE,
    NULL,
    Swarm,
    array,
    bstr,
    envelope,
    envelope_id,
    flipped,
    head,
    sorted_table,
    table,
    text,
    uint,
)

RECLAIMED = Round((sorted_table(GROUP_FIELDS | {"claims": bstr(bytes([1, 1]))}),))
"""The round of the example, with both rewards claimed."""


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _ids()
    yield from _sizes()
    yield from _frames()
    yield from _encodings()
    yield from _envelopes()
    yield from _issuers_and_ids()
    yield from _signatures()
    yield from _headers()
    yield from _rounds()
    yield from _two_faults()


def _evidence(*envelopes: bytes) -> bytes:
    return array(bstr(each) for each in envelopes)


def _ordered(by_id: Mapping[bytes, bytes]) -> bytes:
    """Evidence of the envelopes, in the order of their ids."""
    return _evidence(*(by_id[each] for each in sorted(by_id)))


def _pair(first: Round, second: Round) -> bytes:
    return _ordered({first.envelope_id: first.envelope, second.envelope_id: second.envelope})


def _passes(name: str, rule: str, data: bytes, content: Round = ROUND, note: str = "", *, shown: bool = True) -> Case:
    """`content` is one of the two rounds. Its slot is the output; `shown` is false if JSON numbers cannot hold it."""
    fields = {"manifest": content.swarm.encoded(), "bytes": data}
    return Case(name, rule, "evidence", fields, ACCEPT, content.slot if shown else None, note, grammar=True)


def _refused(
    name: str,
    rule: str,
    layer: str,
    data: bytes,
    *,
    grammar: bool | None = True,
    swarm: Swarm = EXAMPLE,
    note: str = "",
) -> Case:
    return Case(name, rule, "evidence", {"manifest": swarm.encoded(), "bytes": data}, layer, note=note, grammar=grammar)


def _accepted() -> Iterator[Case]:
    yield _passes("two claims for one round", "EVD-2", _pair(ROUND, RECLAIMED))
    yield _passes("two bodies for one round", "EVD-3", _pair(ROUND, Round((OTHER_GROUP,))))
    yield _passes("one group and two for one round", "EVD-3", _pair(ROUND, Round((GROUP, OTHER_GROUP))))
    extended = Round(x=table(("a", uint(0))))
    note = "What is in x has no meaning, and is signed all the same."
    yield _passes("one round with and without an x", "EVD-3", _pair(ROUND, extended), note=note)
    resigned = {ROUND.envelope_id: signed_again(HEADER), RECLAIMED.envelope_id: RECLAIMED.envelope}
    yield _passes("two claims of which one is signed again", "ENV-8", _ordered(resigned))
    early = replace(ROUND, epoch=0)
    note = "Evidence has no window."
    yield _passes("two claims in epoch zero", "EVD-3", _pair(early, replace(RECLAIMED, epoch=0)), early, note)
    last = replace(ROUND, epoch=2**64 - 1)
    both = _pair(last, replace(RECLAIMED, epoch=last.epoch))
    note = "Evidence has no window. JSON numbers do not hold this epoch, so no output is named."
    yield _passes("two claims in the last of all epochs", "EVD-3", both, last, note, shown=False)


def _ids() -> Iterator[Case]:
    near = _found(lambda found: found[0] == ROUND.envelope_id[0])
    yield _passes("ids that are equal in their first byte", "EVD-4", _pair(ROUND, near))
    low, high = _found(lambda found: found[0] < 0x80), _found(lambda found: found[0] >= 0x80)
    yield _passes("ids on both sides of 80", "EVD-4", _pair(low, high), note="Bytes are compared without a sign.")


def _found(wanted: Callable[[bytes], bool]) -> Round:
    """The round of the example with the first `x` whose envelope id is wanted."""
    rounds = (Round(x=table(("a", uint(number)))) for number in count())
    return next(each for each in rounds if wanted(each.envelope_id))


def _sizes() -> Iterator[Case]:
    longest, another = sealed_in(2_000), sealed_in(2_000, b"\1")
    data = _pair(longest, another)
    yield _passes("two envelopes of 2000 bytes", "EVD-1", data, longest)
    note = "The limit leaves room beyond two envelopes, so it is met only with bytes that are refused later too."
    for size, layer, rule in ((4_097, "size", "EVD-1"), (4_096, "frame", "EVD-2")):
        padded = data + bytes(size - len(data))
        name = f"filled up to {size} bytes"
        yield _refused(name, rule, layer, padded, grammar=None, swarm=longest.swarm, note=note)
    longer = _pair(longest, sealed_in(2_001))
    yield _refused("an envelope of 2001 bytes", "ENV-1", "size", longer, swarm=longest.swarm)


def _frames() -> Iterator[Case]:
    pair = _pair(ROUND, RECLAIMED)
    first, second = sorted([ROUND, RECLAIMED], key=lambda each: each.envelope_id)
    third = Round(x=table())
    frames = {
        "no bytes": b"",
        "an array of none": array([]),
        "one envelope": _evidence(first.envelope),
        "three envelopes": _ordered({each.envelope_id: each.envelope for each in (first, second, third)}),
        "a map": table(("first", bstr(first.envelope)), ("second", bstr(second.envelope))),
        "one envelope after the other": first.envelope + second.envelope,
        "a byte string around the evidence": bstr(pair),
        "envelopes in no byte strings": array([first.envelope, second.envelope]),
        "envelopes in hexadecimal": array([text(first.envelope.hex()), text(second.envelope.hex())]),
        "the second in an array": array([bstr(first.envelope), array([bstr(second.envelope)])]),
        "null in place of the second": array([bstr(first.envelope), NULL]),
        "a rollout": ROUND.message(BODY),
    }
    for name, data in frames.items():
        yield _refused(name, "EVD-2", "frame", data, grammar=False)


def _encodings() -> Iterator[Case]:
    pair = _pair(ROUND, RECLAIMED)
    first, second = sorted([ROUND, RECLAIMED], key=lambda each: each.envelope_id)
    strings, end = bstr(first.envelope) + bstr(second.envelope), b"\xff"
    unusual = {
        "the number of envelopes in a long form": ("ENC-4", head(ARRAY, 2, 1) + strings),
        "the length of the first in a long form": ("ENC-4", array([_long(first.envelope), bstr(second.envelope)])),
        "the length of the second in a long form": ("ENC-4", array([bstr(first.envelope), _long(second.envelope)])),
        "an indefinite array": ("ENC-3", b"\x9f" + strings + end),
        "an indefinite byte string": ("ENC-3", array([bstr(first.envelope), b"\x5f" + bstr(second.envelope) + end])),
    }
    for name, (rule, data) in unusual.items():
        yield _refused(name, rule, "frame", data)
    yield _refused("the last byte is missing", "ENC-1", "frame", pair[:-1], grammar=False)
    yield _refused("a byte follows", "ENC-1", "frame", pair + b"\x00", grammar=None)
    yield _refused("a tag around the evidence", "ENC-2", "frame", bytes.fromhex("d9 d9f7") + pair, grammar=None)
    greedy = array([bstr(first.envelope), head(BYTES, 2**64 - 1) + second.envelope])
    yield _refused("a second that claims 2 to the 64 less one", "ENC-10", "frame", greedy, grammar=False)


def _long(content: bytes) -> bytes:
    return head(BYTES, len(content), 4) + content


def _envelopes() -> Iterator[Case]:
    note = "An envelope without an id has no place in the order; this one is in the place it would have."
    first, second = sorted([ROUND, RECLAIMED], key=lambda each: each.envelope_id)
    untagged = _evidence(first.envelope, second.envelope[1:])
    yield _refused("a second without its tag", "ENV-2", "envelope", untagged, note=note)
    yield _refused("an empty first", "ENV-2", "envelope", _evidence(b"", second.envelope), note=note)
    longer = _evidence(first.envelope + b"\x00", second.envelope)
    yield _refused("a first with a byte more", "ENV-6", "envelope", longer, note=note)


def _issuers_and_ids() -> Iterator[Case]:
    others = _pair(ROUND, replace(RECLAIMED, key=BOB))
    yield _refused("two issuers", "EVD-3", "evidence", others)
    second, first = sorted([ROUND, RECLAIMED], key=lambda each: each.envelope_id)
    backwards = _evidence(first.envelope, second.envelope)
    yield _refused("two claims in the wrong order", "EVD-4", "evidence", backwards)
    yield _refused("one envelope twice", "EVD-4", "evidence", _evidence(ROUND.envelope, ROUND.envelope))
    note = "Both signatures hold, and the ids are equal: many signatures can be valid for one content."
    resigned = _evidence(ROUND.envelope, signed_again(HEADER))
    yield _refused("one content signed twice", "EVD-4", "evidence", resigned, note=note)


def _signatures() -> Iterator[Case]:
    first, second = sorted([ROUND, RECLAIMED], key=lambda each: each.envelope_id)
    broken = _evidence(flipped(first.envelope), second.envelope)
    yield _refused("a first with a broken signature", "SIG-4", "signature", broken)
    broken = _evidence(first.envelope, flipped(second.envelope))
    yield _refused("a second with a broken signature", "SIG-4", "signature", broken)
    note = "The order is that of the ids which the receiver computes, for its own swarm, kind and version."
    foreign = Swarm(genesis=EXAMPLE.genesis + 1).network_id
    made = {
        "another swarm": ("ENV-7", lambda each: envelope(each.payload, network_id=foreign)),
        "another kind": ("ENV-7", lambda each: envelope(each.payload, domain="sapo/evidence/2")),
        "version 3": ("VRS-1", lambda each: envelope(each.payload, domain="sapo/rollout/3")),
    }
    for name, (rule, make) in made.items():
        both = _evidence(make(first), make(second))
        yield _refused(f"both made for {name}", rule, "signature", both, note=note)
    mixed = _evidence(first.envelope, envelope(second.payload, network_id=foreign))
    yield _refused("a second made for another swarm", "ENV-7", "signature", mixed, note=note)


def _headers() -> Iterator[Case]:
    def beside(payload: bytes) -> bytes:
        return _ordered({ROUND.envelope_id: ROUND.envelope, envelope_id(payload): envelope(payload)})

    unknown = sorted_table(FIELDS | {"y": uint(0)})
    yield _refused("a header with an unknown key", "EXT-2", "header", beside(unknown))
    yield _refused("a header and no header", "HDR-1", "header", beside(BODY))
    yield _refused("a header followed by a byte", "ENC-1", "header", beside(HEADER + b"\x00"))
    yield _refused("a header of seventeen groups", "HDR-3", "header", beside(Round([GROUP] * 17).payload))
    yield _refused(
        "a header with x of 257 bytes", "EXT-1", "header", beside(Round(x=table(("a", bstr(bytes(252))))).payload)
    )
    both = _pair(replace(ROUND, counter=100), replace(RECLAIMED, counter=100))
    yield _refused("two claims for counter max rounds", "HDR-2", "header", both)


def _rounds() -> Iterator[Case]:
    later = replace(RECLAIMED, epoch=EPOCH + 1)
    yield _refused("two epochs", "EVD-3", "evidence", _pair(ROUND, later))
    yield _refused("two counters", "EVD-3", "evidence", _pair(ROUND, replace(RECLAIMED, counter=COUNTER + 1)))
    exchanged = _pair(Round(epoch=5, counter=6), Round(epoch=6, counter=5))
    yield _refused("epoch and counter exchanged", "EVD-3", "evidence", exchanged)
    note = "In floating point they are equal."
    near = _pair(Round(epoch=2**53), Round(epoch=2**53 + 1))
    yield _refused("epochs 2 to the 53 and one more", "EVD-3", "evidence", near, note=note)


def _two_faults() -> Iterator[Case]:
    """The earlier of two steps refuses, whichever of the two envelopes has its fault."""
    first, second = sorted([ROUND, RECLAIMED], key=lambda each: each.envelope_id)
    bobs = Round(key=BOB)
    payload = sorted_table(FIELDS | {"y": uint(0)})
    unknown, its_id = envelope(payload), envelope_id(payload)
    before, behind = _found(lambda found: found < its_id), _found(lambda found: found > its_id)
    later = replace(ROUND, epoch=EPOCH + 1)
    untagged = array([bstr(ROUND.envelope[1:]), NULL])
    cut = _evidence(ROUND.envelope, bobs.envelope + b"\x00")
    backwards = _evidence(flipped(second.envelope), flipped(first.envelope))
    issuers = {ROUND.envelope_id: flipped(ROUND.envelope), bobs.envelope_id: bobs.envelope}
    epochs = {later.envelope_id: later.envelope, its_id: unknown}
    refusals = {
        "too long and no evidence": ("EVD-1", "size", bstr(bytes(4_094))),
        "an envelope without its tag beside null": ("EVD-2", "frame", untagged),
        "two issuers and a byte after the second envelope": ("ENV-6", "envelope", cut),
        "the wrong order and broken signatures": ("EVD-4", "evidence", backwards),
        "two issuers and a broken signature": ("EVD-3", "evidence", _ordered(issuers)),
        "an unknown key before a broken signature": (
            "SIG-4",
            "signature",
            _evidence(unknown, flipped(behind.envelope)),
        ),
        "an unknown key behind a broken signature": (
            "SIG-4",
            "signature",
            _evidence(flipped(before.envelope), unknown),
        ),
        "two epochs and an unknown key": ("EXT-2", "header", _ordered(epochs)),
    }
    for name, (rule, layer, data) in refusals.items():
        note = "Two faults: the earlier step refuses."
        yield _refused(name, rule, layer, data, grammar=layer not in {"size", "frame"}, note=note)
