"""The node is asked once about each message, and about some again."""

from hashlib import sha256

import pytest

from sapo_node.gossip.seen import CAPACITY, IGNORED_SECONDS, SETTLED_SECONDS, RecentIds, Seen, message_id
from sapo_node.gossip.verdict import Verdict


@pytest.mark.parametrize(
    ("verdict", "after", "known"),
    [
        (Verdict.IGNORE, IGNORED_SECONDS - 1, True),
        (Verdict.IGNORE, IGNORED_SECONDS + 1, False),
        (Verdict.BUSY, 0, False),
        (Verdict.REJECT, SETTLED_SECONDS - 1, True),
        (Verdict.KEEP, SETTLED_SECONDS - 1, True),
        (Verdict.ACCEPT, SETTLED_SECONDS - 1, True),
        (Verdict.ACCEPT, SETTLED_SECONDS + 1, False),
    ],
)
def test_a_verdict_is_remembered_for_its_time(verdict, after, known):
    seen = Seen()
    seen.ask(b"m", 0.0)
    assert seen.knows(b"m", 1e9)
    seen.settle(b"m", verdict, 5.0)
    assert seen.knows(b"m", 5.0 + after) == known


def test_the_memory_is_bounded_and_what_has_passed_is_not_kept():
    ids = RecentIds()
    for number in range(CAPACITY + 1):
        ids.add(number.to_bytes(4, "big"), 0.0, 1.0)
    assert not ids.has((0).to_bytes(4, "big"), 0.0)
    assert ids.has(CAPACITY.to_bytes(4, "big"), 0.0)
    ids.add(b"later", 2.0, 1.0)
    assert list(ids._until) == [b"later"]


def test_the_id_of_a_message_is_that_of_the_spec_and_differs_by_topic():
    assert message_id(b"/sapo/2/x/evidence", b"m") == sha256(b"/sapo/2/x/evidence\0m").digest()
    assert message_id(b"/sapo/2/x/evidence", b"m") != message_id(b"/sapo/2/x/rollouts/0", b"m")
