"""Cases of kind `message`: messages that arrive after others (REP-1, REP-2)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cases import Case
from example import BODY, COUNTER, EPOCH, GROUP_FIELDS
from message_cases import passes, refused
from rounds import OTHER_BODY, OTHER_GROUP, ROUND, TWO_GROUPS, Round, signed_again
from wire import BOB, bstr, flipped, group, message, sorted_table, table, uint

AGAIN = signed_again(TWO_GROUPS.payload)
"""The envelope of the two groups with another valid signature."""

WHOLE = TWO_GROUPS.message(BODY, OTHER_BODY)
FIRST = TWO_GROUPS.message(BODY, b"")
SECOND = TWO_GROUPS.message(b"", OTHER_BODY)
STRIPPED = TWO_GROUPS.message(b"", b"")


SIXTEEN = Round([OTHER_GROUP] * 16)
ALL_BUT_LAST = SIXTEEN.message(*[OTHER_BODY] * 15, b"")
LAST = SIXTEEN.message(*[b""] * 15, OTHER_BODY)


def cases() -> Iterable[Case]:
    yield from _replays()
    yield from _new_bodies()
    yield from _invalid_new_bodies()
    yield from _equivocations()
    yield from _other_rounds()


def _replays() -> Iterator[Case]:
    replays = {
        "the same message again": (WHOLE, [WHOLE]),
        "the same message again without bodies": (STRIPPED, [STRIPPED]),
        "again and only stripped": (STRIPPED, [WHOLE]),
        "again with one of its bodies": (FIRST, [WHOLE]),
        "again while the other body is still missing": (FIRST, [FIRST]),
        "the whole after its parts": (WHOLE, [FIRST, SECOND]),
        "a part after the whole came in parts": (SECOND, [SECOND, FIRST]),
        "a third time": (WHOLE, [STRIPPED, WHOLE]),
        "again after another round": (WHOLE, [WHOLE, Round(counter=COUNTER + 1).message(BODY)]),
    }
    for name, (data, earlier) in replays.items():
        yield refused(name, "REP-1", "replay", data, earlier=earlier)
    whole = SIXTEEN.message(*[OTHER_BODY] * 16)
    yield refused(
        "all sixteen bodies after fifteen and the last", "REP-1", "replay", whole, earlier=[ALL_BUT_LAST, LAST]
    )
    yield refused("again with the last of sixteen bodies", "REP-1", "replay", LAST, earlier=[LAST])
    note = "Both signatures hold. The id is that of what is signed, so it is the same."
    resigned = message(AGAIN, [BODY, OTHER_BODY])
    yield refused("again under another signature", "ENV-8", "replay", resigned, earlier=[WHOLE], note=note)


def _new_bodies() -> Iterator[Case]:
    new_bodies = {
        "the body that was left out": (ROUND.message(BODY), [ROUND.message(b"")], ROUND),
        "both bodies that were left out": (WHOLE, [STRIPPED], TWO_GROUPS),
        "two bodies of which the second is new": (WHOLE, [FIRST], TWO_GROUPS),
        "two bodies of which the first is new": (WHOLE, [SECOND], TWO_GROUPS),
        "the first body after the second": (FIRST, [SECOND], TWO_GROUPS),
        "a body after a part without any": (FIRST, [STRIPPED, SECOND], TWO_GROUPS),
    }
    for name, (data, earlier, content) in new_bodies.items():
        yield passes(name, "REP-1", data, content, earlier=earlier)
    yield passes("the last of sixteen bodies after the others", "REP-1", LAST, SIXTEEN, earlier=[ALL_BUT_LAST])
    short = Round((group(b"\0"),))
    yield passes("a new body of one byte", "REP-1", short.message(b"\0"), short, earlier=[short.message(b"")])
    resigned = message(AGAIN, [b"", OTHER_BODY])
    yield passes("a new body under another signature", "ENV-8", resigned, TWO_GROUPS, earlier=[FIRST])
    equal = replace(ROUND, groups=ROUND.groups * 2)
    note = "A body belongs to its place: two groups may have equal ones."
    first, second = equal.message(BODY, b""), equal.message(b"", BODY)
    yield passes("the second of two equal bodies", "REP-1", second, equal, earlier=[first], note=note)


def _invalid_new_bodies() -> Iterator[Case]:
    note = "The id was accepted before, but not this signature: what brings news is verified anew."
    broken = flipped(AGAIN)
    unsigned = message(broken, [b"", OTHER_BODY])
    yield refused("a new body under a broken signature", "ENV-7", "signature", unsigned, earlier=[FIRST], note=note)
    invalid = TWO_GROUPS.message(b"", OTHER_BODY + b"\x00")
    yield refused("a new body that is wrong", "BODY-1", "body", invalid, earlier=[FIRST])
    mixed = TWO_GROUPS.message(OTHER_BODY, OTHER_BODY)
    yield refused("a new body beside a wrong one", "BODY-1", "body", mixed, earlier=[FIRST])


def _equivocations() -> Iterator[Case]:
    reclaimed = Round((sorted_table(GROUP_FIELDS | {"claims": bstr(bytes([1, 1]))}),))
    redigested = Round((sorted_table(GROUP_FIELDS | {"digest": bstr(bytes(32))}),))
    others = {
        "other claims": reclaimed.message(BODY),
        "another digest": redigested.message(BODY),
        "another body": Round(TWO_GROUPS.groups[1:]).message(OTHER_BODY),
        "a group more": TWO_GROUPS.message(BODY, OTHER_BODY),
        "an x more": Round(x=table(("a", uint(0)))).message(BODY),
        "an empty x more": Round(x=table()).message(BODY),
        "another content without its body": reclaimed.message(b""),
    }
    for name, data in others.items():
        yield refused(f"one round twice with {name}", "REP-2", "equivocation", data, earlier=[ROUND.message(BODY)])
    stripped = ROUND.message(b"")
    note = "The first came without its body. It was accepted all the same."
    second = reclaimed.message(BODY)
    yield refused(
        "another content after one without its body", "REP-2", "equivocation", second, earlier=[stripped], note=note
    )
    swapped = replace(TWO_GROUPS, groups=TWO_GROUPS.groups[::-1])
    backwards = swapped.message(OTHER_BODY, BODY)
    yield refused("the same groups in another order", "REP-2", "equivocation", backwards, earlier=[WHOLE])
    between = [ROUND.message(BODY), Round(counter=COUNTER + 1).message(BODY), Round(key=BOB).message(BODY)]
    yield refused("another content after other rounds", "REP-2", "equivocation", second, earlier=between)


def _other_rounds() -> Iterator[Case]:
    rounds = {
        "the same counter in another epoch": Round(epoch=EPOCH - 1),
        "another counter in the same epoch": Round(counter=COUNTER + 1),
        "a lower counter after a higher": Round(counter=0),
        "the same counter of another issuer": Round(key=BOB),
    }
    for name, content in rounds.items():
        yield passes(name, "REP-2", content.message(BODY), content, earlier=[ROUND.message(BODY)])
