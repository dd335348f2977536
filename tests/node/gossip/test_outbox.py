"""What waits for one peer shares RPCs, within the limits of one RPC, and what waits for all is bounded."""

import pytest

from sapo_node.gossip import outbox
from sapo_node.gossip.outbox import QUEUED_BYTES, QUEUED_MESSAGES, SHARED_BYTES, Outbox, Outboxes
from sapo_node.gossip.rpc import PUBLISHES, Frames, Message, decode, published


@pytest.fixture
def box():
    opened = Outbox("peer", Outboxes())
    opened.open()
    return opened


def message(size, data=0):
    return published(Message(data=bytes([data]) * size))


def pulled(box):
    """All RPCs that wait."""
    found = []
    while frame := box.next_frame():
        found += map(decode, Frames().feed(frame))
    return found


def test_messages_that_wait_share_an_rpc_in_their_order(box):
    for number in range(100):
        box.send(message(10, number))
    rpcs = pulled(box)
    assert [len(rpc.publish) for rpc in rpcs] == [PUBLISHES, 100 - PUBLISHES]
    assert [each.data[0] for rpc in rpcs for each in rpc.publish] == list(range(100))


def test_messages_share_an_rpc_up_to_a_size_and_a_large_one_has_its_own(box):
    box.tell_topic(b"t", follows=True)
    for size in (9_000, 9_000, 500_000, 10):
        box.send(message(size))
    rpcs = pulled(box)
    assert [[len(each.data) for each in rpc.publish] for rpc in rpcs] == [[9_000], [9_000], [500_000], [10]]
    assert all(len(rpc.publish) == 1 or rpc.ByteSize() <= SHARED_BYTES for rpc in rpcs)


def test_a_large_message_comes_behind_the_control_messages_that_it_has_no_room_for(box):
    box.offer(b"t", [bytes(32)] * 500)
    box.send(message(800_000))
    first, second = pulled(box)
    assert (len(first.publish), len(second.publish)) == (0, 1)
    assert second.ByteSize() < 800_000 + 2_000


def test_of_a_topic_the_last_control_message_is_sent(box):
    box.graft(b"t")
    box.prune(b"t", 60)
    box.prune(b"u", 10)
    box.graft(b"u")
    box.offer(b"t", [b"old"])
    box.offer(b"t", [b"new"])
    (rpc,) = pulled(box)
    assert [(each.topic, each.backoff) for each in rpc.control.prune] == [(b"t", 60)]
    assert [each.topic for each in rpc.control.graft] == [b"u"]
    assert [list(each.ids) for each in rpc.control.ihave] == [[b"new"]]


def test_our_record_goes_once_a_stream_and_when_it_changes(box):
    for record in (b"one", b"one", b"two"):
        box.tell_record(record)
        box.send(message(1))
    box.tell_record(b"two")
    assert [rpc.record for rpc in pulled(box)] == [b"two"]
    box.send(message(1))
    assert [rpc.record for rpc in pulled(box)] == [b""]
    box.open()
    box.send(message(1))
    assert [rpc.record for rpc in pulled(box)] == [b"two"]


def test_a_closed_outbox_takes_nothing_and_a_full_one_takes_no_more(box):
    size = len(message(1_000_000))
    for _ in range(20):
        box.send(message(1_000_000))
    assert box.bytes == QUEUED_BYTES // size * size
    box.close()
    box.send(message(1))
    box.graft(b"t")
    box.open()
    assert pulled(box) == []
    for _ in range(QUEUED_MESSAGES + 1):
        box.send(message(1))
    assert sum(len(rpc.publish) for rpc in pulled(box)) == QUEUED_MESSAGES


def test_what_is_sent_or_dropped_leaves_the_common_budget(monkeypatch):
    monkeypatch.setattr(outbox, "ALL_QUEUED_BYTES", 3 * len(message(1_000)))
    shared = Outboxes()
    one, two = Outbox("one", shared), Outbox("two", shared)
    for box in (one, two):
        box.open()
        box.send(message(1_000))
        box.send(message(1_000))
    assert shared.is_full
    pulled(one)
    assert shared.bytes == two.bytes == 2 * len(message(1_000))
    two.close()
    assert (shared.bytes, shared.is_full) == (0, False)
