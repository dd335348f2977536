"""Cases of kind `message`: envelope, header and bodies, in the order of the steps."""

from collections.abc import Iterable, Iterator

import message_frame
import message_order
import message_replay
from cases import Case
from example import BODY, COUNTER, EPOCH, FIELDS, GROUP, GROUP_FIELDS, HEADER
from message_cases import passes, refused
from rounds import OTHER_BODY, OTHER_GROUP, ROUND, TWO_GROUPS, Round, begins, sealed_in
from wire import (
    BOB,
    BYTES,
    EXAMPLE,
    Swarm,
    array,
    body,
    bstr,
    completion,
    envelope,
    flipped,
    group,
    head,
    message,
    protected_header,
    sha256,
    sig_structure,
    sorted_table,
    table,
    text,
    uint,
)

LARGEST = 2**64 - 1


def cases() -> Iterable[Case]:
    yield from message_frame.cases()
    yield from _sizes()
    yield from _envelopes()
    yield from _signatures()
    yield from _headers()
    yield from _windows()
    yield from _bodies()
    yield from _invalid_bodies()
    yield from message_replay.cases()
    yield from message_order.cases()
    yield from _versions()


def _sizes() -> Iterator[Case]:
    def sized(size: int) -> tuple[bytes, Round]:
        filler = bytes(size - len(ROUND.message(b"")) - 2)
        filled = Round((group(filler),))
        return filled.message(filler), filled

    limit = EXAMPLE.max_message_bytes
    yield passes("as long as a message may be", "MSG-1", *sized(limit))
    yield refused("one byte longer than a message may be", "MSG-1", "size", sized(limit + 1)[0])

    filler = bytes(65_536)
    large = Round((group(filler),), swarm=Swarm(max_message_bytes=1_000_000))
    yield passes("a body whose length takes four bytes", "MSG-2", large.message(filler), large)

    exact, longer = sealed_in(2_000), sealed_in(2_001)
    yield passes("an envelope of 2000 bytes", "ENV-1", exact.message(*[b""] * 16), exact)
    yield refused("an envelope of 2001 bytes", "ENV-1", "size", longer.message(*[b""] * 16), swarm=longer.swarm)


def _envelopes() -> Iterator[Case]:
    whole = ROUND.envelope
    unprotected = 2 + 2 + 38
    eddsa = protected_header(ROUND.key.public).replace(bytes.fromhex("01 32"), bytes.fromhex("01 27"), 1)
    signature = ROUND.key.sign(sig_structure(eddsa, HEADER, network_id=EXAMPLE.network_id))
    refusals = {
        "an empty envelope": ("ENV-2", b""),
        "an envelope without its tag": ("ENV-2", whole[1:]),
        "an envelope signed as eddsa": ("ENV-3", whole[:2] + bstr(eddsa) + b"\xa0" + bstr(HEADER) + bstr(signature)),
        "a key in the unprotected header": (
            "ENV-4",
            whole[:unprotected] + table(("a", uint(0))) + whole[unprotected + 1 :],
        ),
        "a payload with a long head": ("ENV-5", whole.replace(bstr(HEADER), head(BYTES, len(HEADER), 2) + HEADER)),
        "an envelope with a byte more": ("ENV-6", whole + b"\x00"),
    }
    for name, (rule, changed) in refusals.items():
        yield refused(name, rule, "envelope", message(changed, [BODY]))


def _signatures() -> Iterator[Case]:
    whole = ROUND.envelope
    broken = flipped(whole)
    yield refused("one bit of the signature changed", "SIG-4", "signature", message(broken, [BODY]))
    recounted = whole.replace(HEADER, Round(counter=COUNTER + 1).payload)
    yield refused("a counter changed after signing", "ENV-7", "signature", message(recounted, [BODY]))
    renamed = whole.replace(ROUND.key.public, BOB.public)
    yield refused("a key changed after signing", "ENV-7", "signature", message(renamed, [BODY]))
    elsewhere = Round(swarm=Swarm(genesis=EXAMPLE.genesis + 1))
    note = "Its manifest differs in the genesis, by a second."
    yield refused("made for another swarm", "ENV-7", "signature", elsewhere.message(BODY), note=note)
    evidence = envelope(HEADER, domain="sapo/evidence/2")
    yield refused("made for another kind", "ENV-7", "signature", message(evidence, [BODY]))


def _headers() -> Iterator[Case]:
    def signed(payload: bytes) -> bytes:
        return message(envelope(payload), [BODY])

    yield refused("an empty payload", "ENC-1", "header", signed(b""))
    note = "The signature holds; what it covers is no header."
    yield refused("a body as payload", "HDR-1", "header", signed(BODY), note=note)
    yield refused("a counter of max rounds", "HDR-2", "header", Round(counter=100).message(BODY))
    yield refused("a header without groups", "HDR-3", "header", message(Round(()).envelope, []))
    yield refused("a header of seventeen groups", "HDR-3", "header", message(Round([GROUP] * 17).envelope, [b""] * 16))
    three = Round([group(BODY, [1, 0, 1])])
    yield refused("a claim too many", "HDR-4", "header", three.message(BODY))
    yield refused(
        "a header with an x that is too long", "EXT-1", "header", Round(x=table(("a", bstr(bytes(252))))).message(BODY)
    )
    yield refused("a byte after the header", "ENC-1", "header", signed(HEADER + b"\x00"))


def _windows() -> Iterator[Case]:
    opens, closes = begins(EPOCH) - 30_000, begins(EPOCH + 2)
    for name, now_ms in {
        "30 s before its epoch": opens,
        "as its epoch begins": begins(EPOCH),
        "in the last millisecond of the next epoch": closes - 1,
    }.items():
        yield passes(name, "TIME-2", ROUND.message(BODY), ROUND, now_ms=now_ms)
    early = Round(epoch=0)
    yield passes("30 s before the genesis", "TIME-2", early.message(BODY), early, now_ms=begins(0) - 30_000)
    for name, now_ms in {
        "30 s and a millisecond before its epoch": opens - 1,
        "an epoch before its own": begins(EPOCH - 1),
        "as the epoch after the next begins": closes,
        "a hundred epochs later": begins(EPOCH + 100),
    }.items():
        yield refused(name, "TIME-2", "window", ROUND.message(BODY), now_ms=now_ms)
    last = Round(epoch=LARGEST)
    yield refused("the last of all epochs", "TIME-2", "window", last.message(BODY))
    note = "Cut to 32 bits it would be open."
    yield refused("an epoch 2 to the 32 later", "TIME-2", "window", Round(epoch=2**32 + EPOCH).message(BODY), note=note)
    before = begins(0) - 30_001
    yield refused("30 s and a millisecond before the genesis", "TIME-2", "window", early.message(BODY), now_ms=before)


def _bodies() -> Iterator[Case]:
    yield passes("one group without its body", "BODY-1", ROUND.message(b""), ROUND)
    yield passes("one group with its body", "BODY-1", ROUND.message(BODY), ROUND)
    parts = {
        "two groups with their bodies": (BODY, OTHER_BODY),
        "two groups with the first body": (BODY, b""),
        "two groups with the second body": (b"", OTHER_BODY),
        "two groups without bodies": (b"", b""),
    }
    for name, bodies in parts.items():
        yield passes(name, "BODY-1", TWO_GROUPS.message(*bodies), TWO_GROUPS)
    equal = Round((GROUP, GROUP))
    yield passes("two groups of one body", "BODY-1", equal.message(BODY, BODY), equal)
    sixteen = Round([OTHER_GROUP] * 16)
    yield passes("sixteen groups with their bodies", "BODY-1", sixteen.message(*[OTHER_BODY] * 16), sixteen)
    yield passes("sixteen groups without bodies", "BODY-1", sixteen.message(*[b""] * 16), sixteen)
    note = "What a body holds is judged when it is read."
    unread = {
        "a body of one zero byte": b"\x00",
        "a body that is no cbor": b"\xff",
        "a body of three completions": body([completion("a")] * 3),
        "a body with an unknown key": body([completion("a")] * 2, ("y", uint(0))),
    }
    for name, data in unread.items():
        content = Round((group(data),))
        yield passes(name, "BODY-1", content.message(data), content, note=note)
    nothing = Round((group(b""),))
    note = "An empty byte string is a body left out, also where its hash would fit."
    yield passes("a body left out whose hash is that of no bytes", "MSG-2", nothing.message(b""), nothing, note=note)


def _invalid_bodies() -> Iterator[Case]:
    swapped = {
        "two bodies swapped": (OTHER_BODY, BODY),
        "the first body twice": (BODY, BODY),
        "the second body in the first place": (OTHER_BODY, b""),
        "the second body of two changed": (BODY, OTHER_BODY.replace(b"d", b"e")),
        "one body beside two groups": (BODY,),
        "three bodies beside two groups": (BODY, OTHER_BODY, b""),
        "no bodies beside two groups": (),
    }
    for name, bodies in swapped.items():
        yield refused(name, "BODY-1", "body", TWO_GROUPS.message(*bodies))
    single = {
        "a bit of a body changed": flipped(BODY),
        "a body without its last byte": BODY[:-1],
        "a byte after a body": BODY + b"\x00",
        "the body of another group": OTHER_BODY,
        "the hash in place of the body": sha256(BODY),
    }
    for name, data in single.items():
        yield refused(name, "BODY-1", "body", ROUND.message(data))
    yield refused("sixteen bodies beside one group", "BODY-1", "body", ROUND.message(BODY, *[b""] * 15))
    sixteen = Round([OTHER_GROUP] * 16)
    yield refused(
        "the last of sixteen bodies changed",
        "BODY-1",
        "body",
        sixteen.message(*[OTHER_BODY] * 15, OTHER_BODY + b"\x00"),
    )
    yield refused("fifteen bodies beside sixteen groups", "BODY-1", "body", sixteen.message(*[OTHER_BODY] * 15))


def _versions() -> Iterator[Case]:
    extended = sorted_table({"completions": array([completion("a")] * 2), "x": table(("entropy", uint(7)))})
    later = Round((group(extended),), x=table(("stake", uint(1)), ("example.org/a", text("b"))))
    note = "What a peer of version 2.1 may send."
    yield passes("an x in header and body", "VRS-2", later.message(extended), later, note=note)
    note = "The place for what a later minor version adds is x."
    added = envelope(sorted_table(FIELDS | {"stake": uint(1)}))
    yield refused("a key added to the header", "VRS-2", "header", message(added, [BODY]), note=note)
    keyed = Round((sorted_table(GROUP_FIELDS | {"score": uint(1)}),))
    yield refused("a key added to a group", "VRS-2", "header", keyed.message(BODY), note=note)
    inside = Round((sorted_table(GROUP_FIELDS | {"x": table()}),))
    yield refused("an x in a group", "VRS-2", "header", inside.message(BODY), note=note)
    longer = array([bstr(ROUND.envelope), array([bstr(BODY)]), table()])
    yield refused("a third part added to the message", "VRS-2", "frame", longer, grammar=False, note=note)
    before, this, after = (message(envelope(HEADER, domain=f"sapo/rollout/{n}"), [BODY]) for n in (1, 2, 3))
    yield passes("made for version 2", "VRS-1", this, ROUND)
    yield refused("made for version 1", "VRS-1", "signature", before)
    yield refused("made for version 3", "VRS-1", "signature", after)
