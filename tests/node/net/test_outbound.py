"""A peer that stops reading loses its connection when the queues are full, and the others are served."""

from functools import partial
from signal import SIGSTOP
from typing import TYPE_CHECKING

import pytest

from sapo_node.gossip import outbox

if TYPE_CHECKING:
    from conftest import Spawn, Start, Until


async def test_a_node_drops_the_peer_that_stops_reading_and_serves_the_others(
    start: "Start", spawn: "Spawn", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ALL_QUEUED_BYTES", 2_000_000)
    node = await start(1)
    stopped = await spawn(9, bootstrap=[node.address])
    reader = await start(2, bootstrap=(node.address,))
    await until(lambda: stopped.peer_id in node.mesh and bool(node.follows(reader)), within=30)
    stopped.process.send_signal(SIGSTOP)
    for number in range(100):
        message = b"%d" % number + bytes(100_000)
        await node.publish(message)
        await until(partial(reader.heard.__contains__, message), within=60)
        if stopped.peer_id not in node.links():
            break
    assert stopped.peer_id not in node.links()
    assert node.sees(reader)
