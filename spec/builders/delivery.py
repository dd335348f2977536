"""Cases of kind `delivery`: messages that a peer sends on request (PULL-5, PULL-6)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from example import BODY
from inventory import IDS, inventory_item
from rounds import OTHER_BODY, OTHER_GROUP, ROUND, TWO_GROUPS, Round, sealed_in
from wire import ARRAY, BOB, BYTES, EXAMPLE, NULL, Swarm, array, bstr, flipped, group, head, message, table, text

BOBS = Round(key=BOB)
FIRST, SECOND = sorted((ROUND, BOBS), key=lambda each: each.envelope_id)
"""Two rounds of one group, the first with the smaller id."""

LIMIT = 1_048_576


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _sizes()
    yield from _frames()
    yield from _not_requested()
    yield from _last_of_sixteen()
    yield from _sixteen_bodies()
    yield from _messages()


def _request(*wanted: tuple[Round, int]) -> bytes:
    pairs = sorted((each.envelope_id, bodies) for each, bodies in wanted)
    return table(("want", array(inventory_item(*pair) for pair in pairs)))


ONE = _request((ROUND, 1))
BOTH = _request((FIRST, 1), (SECOND, 1))


def _delivery(*messages: bytes) -> bytes:
    return array(bstr(each) for each in messages)


def _many(count: int) -> list[Round]:
    """Rounds of one group, in ascending order of their ids."""
    return sorted((Round(counter=counter) for counter in range(count)), key=lambda each: each.envelope_id)


def _passes(
    name: str, rule: str, request: bytes, data: bytes, *ids: Round, note: str = "", swarm: Swarm = EXAMPLE
) -> Case:
    fields = {"manifest": swarm.encoded(), "request": request, "bytes": data}
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
    broken = whole.replace(ROUND.envelope, flipped(ROUND.envelope))
    note = "The signature is judged with the message, by step 7 of rollouts; the id does not depend on it."
    yield _passes("a broken signature", "PULL-6", ONE, _delivery(broken), ROUND, note=note)
    note = "The head of the array has two bytes."
    for name, count in {"twenty-four": 24, "sixty-four": 64}.items():
        many = _many(count)
        wanted, data = _request(*((each, 0) for each in many)), _delivery(*(each.message(b"") for each in many))
        yield _passes(f"{name} messages", "PULL-5", wanted, data, *many, note=note)


def _sizes() -> Iterator[Case]:
    swarm = Swarm(max_message_bytes=1_000_000)

    def filled(length: int, counter: int) -> tuple[Round, bytes]:
        filler = bytes(length)
        content = Round((group(filler),), counter=counter, swarm=swarm)
        return content, content.message(filler)

    def sized(size: int) -> tuple[list[Round], bytes]:
        fixed = len(_delivery(filled(900_000, 0)[1], filled(100_000, 1)[1])) - 100_000
        both = sorted((filled(900_000, 0), filled(size - fixed, 1)), key=lambda each: each[0].envelope_id)
        return [content for content, _ in both], _delivery(*(data for _, data in both))

    content, data = sized(LIMIT)
    wanted = _request(*((each, 1) for each in content))
    yield _passes("as long as a delivery may be", "PULL-5", wanted, data, *content, swarm=swarm)
    content, data = sized(LIMIT + 1)
    wanted = _request(*((each, 1) for each in content))
    yield _refused("one byte longer than a delivery may be", "PULL-5", data, request=wanted, swarm=swarm)


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


def _last_of_sixteen() -> Iterator[Case]:
    """Only the last message is at fault."""
    many = _many(17)
    *most, last, unasked = (each.message(b"") for each in many)
    asked = _request(*((each, 0) for each in many[:16]))
    untagged = message(many[15].envelope[1:], [b""])
    refusals = {
        "the last two of sixteen messages exchanged": ("PULL-6", [*most[:14], last, most[14]], "pull"),
        "the last of sixteen messages twice": ("PULL-6", [*most, most[14]], "pull"),
        "a last of sixteen messages that was not asked for": ("PULL-6", [*most, unasked], "pull"),
        "a last of sixteen messages with a body that was not asked for": (
            "PULL-6",
            [*most, many[15].message(BODY)],
            "pull",
        ),
        "a last of sixteen messages without its tag": ("ENV-2", [*most, untagged], "envelope"),
    }
    for name, (rule, messages, layer) in refusals.items():
        yield _refused(name, rule, _delivery(*messages), layer, asked)
    as_text = array([*(bstr(each) for each in most), text("a")])
    yield _refused("a last of sixteen messages that is text", "PULL-5", as_text, request=asked, grammar=False)


def _sixteen_bodies() -> Iterator[Case]:
    sixteen = Round([OTHER_GROUP] * 16)
    whole = _delivery(sixteen.message(*[OTHER_BODY] * 16))
    last = _delivery(sixteen.message(*[b""] * 15, OTHER_BODY))
    yield _passes("all of sixteen bodies", "PULL-6", _request((sixteen, 65_535)), whole, sixteen)
    yield _passes("the last of sixteen bodies", "PULL-6", _request((sixteen, 32_768)), last, sixteen)
    asked = _request((sixteen, 32_767))
    yield _refused("the last of sixteen bodies when the others were asked for", "PULL-6", last, request=asked)


def _messages() -> Iterator[Case]:
    whole = ROUND.envelope
    yield _refused("an empty message", "MSG-2", array([bstr(b"")]), "frame")
    note = "Two faults: the second message is looked at after the first."
    yield _refused("a message that was not asked for before an empty one", "PULL-6",
                   _delivery(BOBS.message(BODY), b""), note=note)  # fmt: skip
    yield _refused("a message without its tag", "ENV-2", _delivery(message(whole[1:], [BODY])), "envelope")
    longer = sealed_in(2_001)
    yield _refused("an envelope of 2001 bytes", "ENV-1", _delivery(longer.message(*[b""] * 16)), "size",
                   request=_request((longer, 0)), swarm=longer.swarm)  # fmt: skip
    filler = bytes(EXAMPLE.max_message_bytes)
    large = Round((group(filler),))
    yield _refused("a message longer than one may be", "MSG-1", _delivery(large.message(filler)), "size",
                   request=_request((large, 1)))  # fmt: skip
