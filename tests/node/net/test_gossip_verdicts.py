"""What a node's verdict does to a message, over real connections."""

from typing import TYPE_CHECKING

import pytest

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import MessageTooLargeError, NotRunningError

if TYPE_CHECKING:
    from tests.node.net.conftest import Probe, Start, Until


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


async def test_a_handler_that_raises_neither_forwards_nor_ends_anything(start: "Start", until: "Until") -> None:
    left, middle, right = await in_a_row(start, until, Verdict.ACCEPT)
    middle.fault = ValueError("a fault of the node")
    await left.publish(b"stops")
    await until(lambda: middle.heard == [b"stops"])
    middle.fault = None
    await left.publish(b"passes")
    await until(lambda: right.heard)
    assert right.heard == [b"passes"]


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
