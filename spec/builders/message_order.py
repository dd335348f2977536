"""Cases of kind `message` with two faults: the step that comes first refuses, and within a step the first layer."""

from collections.abc import Iterable

from cases import Case
from example import BODY, EPOCH, GROUP
from message_cases import refused
from rounds import NOW_MS, OTHER_BODY, ROUND, Round, begins, sealed_in
from wire import EXAMPLE, array, bstr, flipped, message, table, text, uint

CLOSED = begins(EPOCH + 2)
BROKEN = flipped(ROUND.envelope)
UNCOUNTED = Round(counter=100)
"""Its header breaks HDR-2."""


def cases() -> Iterable[Case]:
    accepted = ROUND.message(BODY)
    too_long = sealed_in(2_001)
    uncounted = flipped(UNCOUNTED.envelope)
    yield _refused("too long and no message", "MSG-1", "size", text("a" * EXAMPLE.max_message_bytes), grammar=False)
    untagged = array([bstr(ROUND.envelope[1:]), array([text("a")])])
    yield _refused("a body of text beside an envelope without its tag", "MSG-2", "frame", untagged, grammar=False)
    untagged = message(too_long.envelope[1:] + b"\x00", [b""] * 16)
    yield _refused("an envelope of 2001 bytes without its tag", "ENV-1", "size", untagged)
    unprotected = 2 + 2 + 38
    marked = message(BROKEN[:unprotected] + table(("a", uint(0))) + BROKEN[unprotected + 1 :], [BODY])
    yield _refused("a key in the unprotected header and a broken signature", "ENV-4", "envelope", marked)
    again = message(BROKEN, [BODY])
    yield _refused("again under a broken signature", "REP-1", "replay", again, earlier=[accepted])
    yield _refused("again with another body", "REP-1", "replay", ROUND.message(OTHER_BODY), earlier=[accepted])
    broken = message(uncounted, [BODY])
    yield _refused("a broken signature over a counter of max rounds", "SIG-4", "signature", broken)
    yield _refused("a broken signature in a closed epoch", "SIG-4", "signature", again, now_ms=CLOSED)
    closed = UNCOUNTED.message(BODY)
    yield _refused("a counter of max rounds in a closed epoch", "HDR-2", "header", closed, now_ms=CLOSED)
    changed = ROUND.message(OTHER_BODY)
    yield _refused("another body in a closed epoch", "TIME-2", "window", changed, now_ms=CLOSED)
    second = Round((GROUP, GROUP)).message(BODY, OTHER_BODY)
    yield _refused("another content with a wrong body", "BODY-1", "body", second, earlier=[accepted])


def _refused(
    name: str,
    rule: str,
    layer: str,
    data: bytes,
    *,
    grammar: bool = True,
    now_ms: int = NOW_MS,
    earlier: Iterable[bytes] = (),
) -> Case:
    note = "Two faults: what is checked first refuses."
    return refused(name, rule, layer, data, grammar=grammar, now_ms=now_ms, earlier=earlier, note=note)
