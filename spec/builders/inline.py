"""Cases of kind `inline`: the bodies that gossip takes in a message (MSG-3)."""

from collections.abc import Iterable

from cases import ACCEPT, Case
from example import BODY
from rounds import OTHER_BODY, ROUND, TWO_GROUPS, Round
from wire import EXAMPLE, Swarm, group

NONE, ALL = Swarm(inline_bytes=0), Swarm(inline_bytes=1_000_000)


def _case(name: str, data: bytes, expect: str = ACCEPT, *, swarm: Swarm = EXAMPLE, note: str = "") -> Case:
    fields = {"manifest": swarm.encoded(), "bytes": data}
    return Case(name, "MSG-3", "inline", fields, expect, note=note)


def _sized(size: int, *more: bytes) -> bytes:
    """A message of exactly `size` bytes, of a body of zeros and the bodies `more`."""

    def message(length: int) -> bytes:
        filler = bytes(length)
        return Round([group(filler), *map(group, more)]).message(filler, *more)

    return message(1_000 + size - len(message(1_000)))


def cases() -> Iterable[Case]:
    limit = EXAMPLE.inline_bytes
    yield _case("a body", ROUND.message(BODY))
    yield _case("as long as a message with a body may be", _sized(limit))
    yield _case("a byte longer than a message with a body may be", _sized(limit + 1), "size")
    yield _case("a message as long with two bodies", _sized(limit, OTHER_BODY))
    yield _case("a message a byte longer with two bodies", _sized(limit + 1, OTHER_BODY), "size")
    yield _case("no bodies in a swarm that takes none", TWO_GROUPS.message(b"", b""), swarm=NONE)
    yield _case("a body in a swarm that takes none", ROUND.message(BODY), "size", swarm=NONE)
    yield _case(
        "the second of two bodies in a swarm that takes none", TWO_GROUPS.message(b"", OTHER_BODY), "size", swarm=NONE
    )
    yield _case(
        "no groups in a swarm that takes none", Round([]).message(), swarm=NONE, note="The header is not read here."
    )
    longest = EXAMPLE.max_message_bytes
    yield _case("the longest message in a swarm that takes all", _sized(longest), swarm=ALL)
    note = "MSG-1 holds as well."
    yield _case(
        "a byte longer than any message in a swarm that takes all", _sized(longest + 1), "size", swarm=ALL, note=note
    )
