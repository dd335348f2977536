"""Cases of kind `delivery`: messages that a peer sends on request (PULL-5, PULL-6)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from example import BODY
from inventory import IDS, inventory_item
from rounds import OTHER_BODY, ROUND, TWO_GROUPS, Round, sealed_in
from wire import ARRAY, BOB, BYTES, EXAMPLE, NULL, Swarm, array, bstr, group, head, message, table, text

BOBS = Round(key=BOB)
FIRST, SECOND = sorted((ROUND, BOBS), key=lambda each: each.envelope_id)
"""Two rounds of one group, the first with the smaller id."""


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _frames()
    yield from _not_requested()
    yield from _messages()


def _request(*wanted: tuple[Round, int]) -> bytes:
    pairs = sorted((each.envelope_id, bodies) for each, bodies in wanted)
    return table(("want", array(inventory_item(*pair) for pair in pairs)))


ONE = _request((ROUND, 1))
BOTH = _request((FIRST, 1), (SECOND, 1))


def _delivery(*messages: bytes) -> bytes:
    return array(bstr(each) for each in messages)


def _passes(name: str, rule: str, request: bytes, data: bytes, *ids: Round, note: str = "") -> Case:
    fields = {"manifest": EXAMPLE.encoded(), "request": request, "bytes": data}
    output = {"ids": [each.envelope_id for each in ids]}
    return Case(name, rule, "delivery", fields, ACCEPT, output, note, grammar=True)


def _refused(
    name: str,
    rule: str,
    data: bytes,
    layer: str = "pull",
    request: bytes = ONE,
    *,
    grammar: bool | None = True,
    note: str = "",
    swarm: Swarm = EXAMPLE,
) -> Case:
    fields = {"manifest": swarm.encoded(), "request": request, "bytes": data}
    return Case(name, rule, "delivery", fields, layer, note=note, grammar=grammar)


def _accepted() -> Iterator[Case]:
    whole = ROUND.message(BODY)
    yield _passes("the message asked for", "PULL-6", ONE, _delivery(whole), ROUND)
    yield _passes("nothing of what was asked for", "PULL-5", ONE, array([]))
    both = _delivery(FIRST.message(BODY), SECOND.message(BODY))
    yield _passes("both messages asked for", "PULL-5", BOTH, both, FIRST, SECOND)
    yield _passes("the second of two", "PULL-6", BOTH, _delivery(SECOND.message(BODY)), SECOND)
    yield _passes("without the body asked for", "PULL-6", ONE, _delivery(ROUND.message(b"")), ROUND)
    two = _request((TWO_GROUPS, 2))
    yield _passes("the second body alone", "PULL-6", two, _delivery(TWO_GROUPS.message(b"", OTHER_BODY)), TWO_GROUPS)
    broken = whole.replace(ROUND.envelope, ROUND.envelope[:-1] + bytes([ROUND.envelope[-1] ^ 1]))
    note = "The signature is judged with the message, by step 7 of rollouts; the id does not depend on it."
    yield _passes("a broken signature", "PULL-6", ONE, _delivery(broken), ROUND, note=note)
    many = [Round(counter=counter) for counter in range(24)]
    wanted = _request(*((each, 0) for each in many))
    ordered = sorted(many, key=lambda each: each.envelope_id)
    data = _delivery(*(each.message(b"") for each in ordered))
    note = "The head of the array has two bytes."
    yield _passes("twenty-four messages", "PULL-5", wanted, data, *ordered, note=note)


def _frames() -> Iterator[Case]:
    whole = bstr(ROUND.message(BODY))
    frames = {
        "no bytes": b"",
        "a message by itself": ROUND.message(BODY),
        "a message in no byte string": array([ROUND.message(BODY)]),
        "a byte string around the delivery": bstr(array([whole])),
        "a map of messages": table(("messages", array([whole]))),
        "a message in hexadecimal": array([text(ROUND.message(BODY).hex())]),
        "null in place of a message": array([NULL]),
        "the last byte is missing": array([whole])[:-1],
        "sixty-five messages": array([whole] * 65),
    }
    for name, data in frames.items():
        yield _refused(name, "PULL-5", data, grammar=False)
    yield _refused("a byte follows the delivery", "PULL-5", array([whole]) + b"\x00", grammar=None)
    yield _refused("the number of messages in a long form", "ENC-4", head(ARRAY, 1, 1) + whole)
    long = head(BYTES, len(ROUND.message(BODY)), 4) + ROUND.message(BODY)
    yield _refused("the length of a message in a long form", "ENC-4", array([long]))
    yield _refused("an indefinite array of messages", "ENC-3", b"\x9f" + whole + b"\xff")
    greedy = array([head(BYTES, 2**64 - 1) + ROUND.message(BODY)])
    yield _refused("a message that claims 2 to the 64 less one", "ENC-10", greedy, grammar=False)


def _not_requested() -> Iterator[Case]:
    other, whole = BOBS.message(BODY), ROUND.message(BODY)
    yield _refused("a message that was not asked for", "PULL-6", _delivery(other))
    between = sorted((ROUND, BOBS, TWO_GROUPS), key=lambda each: each.envelope_id)
    asked = _request((between[0], 1), (between[2], 1))
    data = _delivery(*(each.message(*[b""] * len(each.groups)) for each in between))
    yield _refused("one between those asked for", "PULL-6", data, request=asked)
    backwards = _delivery(SECOND.message(BODY), FIRST.message(BODY))
    yield _refused("messages in the wrong order", "PULL-6", backwards, request=BOTH)
    yield _refused("one message twice", "PULL-6", _delivery(whole, whole), request=BOTH)
    yield _refused("a body that was not asked for", "PULL-6", _delivery(whole), request=_request((ROUND, 0)))
    other_body = _delivery(TWO_GROUPS.message(BODY, OTHER_BODY))
    yield _refused("the first body beside the second", "PULL-6", other_body, request=_request((TWO_GROUPS, 2)))
    foreign = Round(swarm=Swarm(genesis=EXAMPLE.genesis + 1))
    note = "Its id is another in this swarm, so nobody asked for it."
    yield _refused("a message of another swarm", "PULL-6", _delivery(foreign.message(BODY)),
                   request=_request((foreign, 1)), note=note)  # fmt: skip
    unknown = table(("want", array([inventory_item(IDS[0], 1)])))
    yield _refused("another message than the one asked for", "PULL-6", _delivery(whole), request=unknown)


def _messages() -> Iterator[Case]:
    whole = ROUND.envelope
    yield _refused("an empty message", "MSG-2", array([bstr(b"")]), "frame")
    yield _refused("a message without its tag", "ENV-2", _delivery(message(whole[1:], [BODY])), "envelope")
    longer = sealed_in(2_001)
    yield _refused("an envelope of 2001 bytes", "ENV-1", _delivery(longer.message(*[b""] * 16)), "size",
                   request=_request((longer, 0)), swarm=longer.swarm)  # fmt: skip
    filler = bytes(EXAMPLE.max_message_bytes)
    large = Round((group(filler),))
    yield _refused("a message longer than one may be", "MSG-1", _delivery(large.message(filler)), "size",
                   request=_request((large, 1)))  # fmt: skip
