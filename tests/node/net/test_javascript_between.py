"""Two nodes that are connected only through a js-libp2p peer, and a third behind the second of them."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from javascript import JavaScriptPeer, javascript
from sapo_node.gossip.mesh import BACK_OFF
from sapo_protocol import load_manifest

if TYPE_CHECKING:
    from tests.node.net.conftest import Probe, Start, Until


@dataclass
class Chain:
    """`one`, the JavaScript peer, `two` and `three`, each connected to the next."""

    one: "Probe"
    two: "Probe"
    three: "Probe"
    between: str
    """The peer id of the JavaScript peer."""
    author: Any

    def round(self, counter: int) -> bytes:
        """A valid message: the JavaScript peer forwards no other."""
        return bytes(self.author.message(counter=counter))


@pytest.fixture
async def chain(start: "Start", until: "Until", author: Any, tmp_path: Path) -> AsyncIterator[Chain]:
    javascript("peer.mjs")  # skips the test, or installs the peer, before any node starts
    manifest = replace(load_manifest("interop"), genesis=int(time.time()), epoch_seconds=600)
    (tmp_path / "live.cbor").write_bytes(manifest.encoded)
    swarm = manifest.network_id.hex()
    one, two = await start(1, network_id=swarm), await start(2, network_id=swarm)
    three = await start(3, network_id=swarm, bootstrap=(two.address,))
    way_in = ("--dial", one.address, "--dial", two.address)
    with JavaScriptPeer(tmp_path / "peer", "--manifest", tmp_path / "live.cbor", *way_in) as peer:
        await until(lambda: peer.events("connected"), within=60)
        between = peer.events("connected")[0]["self"]
        await until(lambda: between in one.mesh and between in two.mesh and two.sees(three))
        yield Chain(one, two, three, between, replace(author, manifest=manifest))


async def test_a_javascript_peer_forwards_between_two_nodes_that_are_not_connected(
    chain: Chain, until: "Until"
) -> None:
    there, back = chain.round(0), chain.round(1)
    await chain.one.publish(there)
    await until(lambda: chain.three.heard == [there])
    await chain.three.publish(back)
    await until(lambda: chain.one.heard == [back])
    assert (chain.two.heard, chain.two.senders) == ([there, back], [chain.between, chain.three.network.peer_id])
    assert chain.one.senders == [chain.between]
    assert chain.one.links() == {chain.between}


@pytest.mark.slow
async def test_a_javascript_peer_in_back_off_stays_out_of_the_mesh_and_repairs_by_offers(
    chain: Chain, until: "Until"
) -> None:
    two = chain.two.session.machine
    (topic,) = (topic for topic in two.topics.values() if chain.between in topic.mesh and b"rollouts" in topic.name)
    topic._dismiss(chain.between, BACK_OFF, trio.current_time())
    await trio.sleep(3)
    there, back = chain.round(0), chain.round(1)
    await chain.one.publish(there)
    await until(lambda: chain.three.heard == [there])
    await chain.three.publish(back)
    await until(lambda: chain.one.heard == [back])
    assert chain.between not in chain.two.mesh
    assert two.scores.of(trio.current_time(), chain.between).offences == 0
