"""What a node's verdict does to a message, over real connections."""

from typing import TYPE_CHECKING

import pytest

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import MessageTooLargeError, NotRunningError

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Probe, Start, Until


async def in_a_row(start: "Start", until: "Until", verdict: Verdict) -> "tuple[Probe, Probe, Probe]":
    """Three nodes of which the ends are connected with the middle only."""
    middle = await start(2, verdict=verdict)
    left = await start(1, bootstrap=(middle.address,))
    right = await start(3, bootstrap=(middle.address,))
    await until(lambda: middle.sees(left, right) and left.sees(middle) and right.sees(middle))
    return left, middle, right


async def test_an_accepted_message_is_forwarded_to_a_third_node(start: "Start", until: "Until") -> None:
    left, _, right = await in_a_row(start, until, Verdict.ACCEPT)
    await left.publish(b"m")
    await until(lambda: right.heard == [b"m"])


@pytest.mark.parametrize("verdict", [Verdict.IGNORE, Verdict.REJECT])
async def test_a_message_that_is_not_accepted_stops_at_the_node(
    verdict: Verdict, start: "Start", until: "Until"
) -> None:
    left, middle, right = await in_a_row(start, until, verdict)
    await left.publish(b"stops")
    await until(lambda: middle.heard == [b"stops"])
    # What follows on the same path arrives, so the first one is not merely late.
    middle.verdict = Verdict.ACCEPT
    await left.publish(b"passes")
    await until(lambda: right.heard)
    assert right.heard == [b"passes"]


async def test_a_handler_that_raises_neither_forwards_nor_ends_anything(start: "Start", until: "Until") -> None:
    left, middle, right = await in_a_row(start, until, Verdict.ACCEPT)
    middle.fault = ValueError("a fault of the node")
    await left.publish(b"stops")
    await until(lambda: middle.heard == [b"stops"])
    middle.fault = None
    await left.publish(b"passes")
    await until(lambda: right.heard)
    assert right.heard == [b"passes"]


async def test_a_content_refused_on_one_topic_is_not_kept_out_of_the_one_where_it_belongs(
    start: "Start", until: "Until"
) -> None:
    left, middle, right = await in_a_row(start, until, Verdict.ACCEPT)
    await left.network.publish(left.refusing, b"m")
    await until(lambda: middle.refused == [b"m"])
    await left.publish(b"m")
    await until(lambda: right.heard == [b"m"])


async def test_a_replayed_content_is_handled_once(start: "Start", until: "Until", attacker: "Attack") -> None:
    node = await start(1)
    async with attacker(node.address) as mallory:
        for seqno in range(1, 6):
            await mallory.send_rpc(mallory.rpc(mallory.message(b"again", seqno=seqno)))
        await mallory.send_rpc(mallory.rpc(mallory.message(b"last", seqno=9)))
        await until(lambda: b"last" in node.heard)
    assert node.heard == [b"again", b"last"]


async def test_a_node_does_not_handle_its_own_message(start: "Start", until: "Until") -> None:
    left, _, right = await in_a_row(start, until, Verdict.ACCEPT)
    await left.publish(b"m")
    await until(lambda: right.heard == [b"m"])
    await right.publish(b"answer")
    await until(lambda: left.heard)
    assert left.heard == [b"answer"]


async def test_a_message_published_again_reaches_who_came_later(start: "Start", until: "Until") -> None:
    early = await start(1)
    await early.publish(b"m")
    early.router.mcache.msgs.clear()  # as after a few heartbeats: nothing recent is replayed to a new peer
    late = await start(2, bootstrap=(early.address,))
    await until(lambda: early.sees(late) and late.sees(early))
    await early.publish(b"m")
    await until(lambda: late.heard == [b"m"])


async def test_a_message_names_who_sent_it(start: "Start", until: "Until") -> None:
    left, middle, right = await in_a_row(start, until, Verdict.ACCEPT)
    await left.publish(b"m")
    await until(lambda: right.heard)
    assert (middle.senders, right.senders) == ([left.network.peer_id], [middle.network.peer_id])


async def test_the_largest_message_passes(start: "Start", until: "Until") -> None:
    left, middle, _ = await in_a_row(start, until, Verdict.ACCEPT)
    message = bytes(900_000)
    await left.publish(message)
    await until(lambda: middle.heard == [message])


async def test_a_message_above_the_limit_is_not_published(start: "Start") -> None:
    node = await start(1)
    with pytest.raises(MessageTooLargeError):
        await node.publish(bytes(900_001))


async def test_publishing_without_peers_is_no_error(start: "Start") -> None:
    node = await start(1)
    await node.publish(b"m")


async def test_publishing_before_the_start_is_refused(probe: "type[Probe]") -> None:
    with pytest.raises(NotRunningError):
        await probe(1).publish(b"m")
