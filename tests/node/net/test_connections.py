"""Finding, losing and finding again: bootstrap, reconnection, other swarms, restart and stop."""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.node.net.conftest import free_port

from sapo_node.net import addresses
from sapo_node.net.addresses import AddressError, PortBusyError
from sapo_node.net.gossip_streams import GossipStreams
from sapo_node.net.interface import (
    BootstrapReached,
    BootstrapUnreachable,
    KnownPeer,
    OtherSwarm,
    PeerConnected,
    PeerGone,
    ServiceRestarted,
)

if TYPE_CHECKING:
    from tests.node.net.conftest import Probe, Spawn, Start, Until


async def test_addresses_are_complete_and_dialable_and_a_node_knows_who_dialled_and_who_brought_what(
    start: "Start", until: "Until"
) -> None:
    one = await start(1)
    assert one.address.startswith("/ip4/127.0.0.1/tcp/")
    assert one.address.endswith(f"/p2p/{one.network.peer_id}")
    two = await start(2, bootstrap=(one.address,))
    await until(lambda: one.sees(two) and two.sees(one))
    assert [peer.outbound for peer in (*one.network.peers(), *two.network.peers())] == [False, True]
    await one.publish(b"first")
    await one.publish(b"second")
    await until(lambda: len(two.heard) == 2)
    assert [(peer.peer_id, peer.brought) for peer in two.network.peers()] == [(one.network.peer_id, 2)]
    assert [peer.brought for peer in one.network.peers()] == [0]


async def test_a_bootstrap_may_be_given_by_name(start: "Start", until: "Until") -> None:
    one = await start(1)
    two = await start(2, bootstrap=(one.address.replace("ip4/127.0.0.1", "dns/localhost"),))
    await until(lambda: one.sees(two) and two.sees(one))


async def test_a_node_may_listen_on_ipv6(start: "Start", until: "Until") -> None:
    one = await start(1, listen="/ip6/::1/tcp/0")
    two = await start(2, bootstrap=(one.address,))
    await until(lambda: one.sees(two) and two.sees(one))
    assert one.session.sources(two.network.peer_id) == two.session.sources(one.network.peer_id) == ["::1"]


async def test_announced_addresses_replace_found_ones(start: "Start") -> None:
    node = await start(1, announce=("/ip4/203.0.113.7/tcp/4001",))
    assert node.network.addresses == (f"/ip4/203.0.113.7/tcp/4001/p2p/{node.network.peer_id}",)


async def test_a_node_knows_the_address_block_of_a_peer_that_dialled_it(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bootstrap peer it asks for none. The test takes loopback for the Internet."""
    monkeypatch.setattr(addresses, "public_block_of", addresses.block_of)
    one = await start(1)
    two = await start(2, bootstrap=(one.address,))
    await until(lambda: one.sees(two) and two.sees(one))
    assert [each.block for each in (*one.noticed(PeerConnected), *two.noticed(PeerConnected))] == ["127.0.0.0/24", ""]


async def dialled_back(node: "Probe", spawn: "Spawn", until: "Until") -> None:
    """A peer dials the node and is killed. It starts again without a bootstrap, so that the node dials it."""
    listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
    peer = await spawn(9, listen=listen, bootstrap=[node.address])
    await until(node.network.answered)
    await peer.kill()
    await until(lambda: node.noticed(PeerGone))
    await spawn(9, listen=listen)
    await until(node.network.peers, within=30)


@pytest.mark.slow
async def test_a_node_knows_the_address_block_of_a_peer_that_it_dialled_back(
    start: "Start", spawn: "Spawn", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else four connections of one machine would have turns of their own. The test takes loopback for the Internet."""
    monkeypatch.setattr(addresses, "public_block_of", addresses.block_of)
    node = await start(1)
    await dialled_back(node, spawn, until)
    assert [known.outbound for known in node.network.peers()] == [True]
    assert [each.block for each in node.noticed(PeerConnected)] == ["127.0.0.0/24"] * 2


@pytest.mark.slow
async def test_a_bootstrap_that_is_killed_is_found_when_it_returns(
    start: "Start", spawn: "Spawn", until: "Until"
) -> None:
    listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
    bootstrap = await spawn(9, listen=listen)
    node = await start(1, bootstrap=(bootstrap.address,))
    await until(node.network.peers)
    await bootstrap.kill()
    await until(lambda: node.noticed(PeerGone))
    await spawn(9, listen=listen)
    await until(node.network.peers, within=30)


async def test_an_unreachable_bootstrap_is_noticed_once_and_found_later(start: "Start", until: "Until") -> None:
    listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
    absent = await start(8)
    address = f"{listen}/p2p/{absent.network.peer_id}"
    await absent.stop()
    node = await start(1, bootstrap=(address,))
    await until(lambda: node.noticed(BootstrapUnreachable))
    late = await start(8, listen=listen)
    await until(lambda: node.sees(late))
    await until(lambda: node.noticed(BootstrapReached))
    assert [notice.address for notice in node.noticed(BootstrapUnreachable)] == [address]


async def test_an_impostor_at_a_bootstrap_address_is_not_taken_for_it(start: "Start", until: "Until") -> None:
    impostor, expected = await start(8), await start(9)
    address = impostor.address.replace(impostor.network.peer_id, expected.network.peer_id)
    node = await start(1, bootstrap=(address,))
    await until(lambda: node.noticed(BootstrapUnreachable))
    assert node.network.peers() == ()


async def test_an_anchor_is_dialled_by_who_was_told_of_nobody(start: "Start", until: "Until") -> None:
    one = await start(1)
    two = await start(2, anchors=(one.address,))
    await until(lambda: one.sees(two) and two.sees(one))


async def test_a_restarted_node_whose_bootstrap_is_gone_finds_its_known_peers(start: "Start", until: "Until") -> None:
    one, bootstrap = await start(1), await start(8)
    two = await start(2, bootstrap=(one.address, bootstrap.address))
    await until(lambda: two.sees(one, bootstrap))
    known = two.network.answered()
    assert {each.address for each in known} == {one.address, bootstrap.address}
    await two.stop()
    await bootstrap.stop()
    again = await start(2, bootstrap=(bootstrap.address,), known=known)
    await until(lambda: again.sees(one))


async def test_a_peer_that_dialled_us_is_dialled_once_to_learn_its_address_and_stays_as_it_is(
    start: "Start", until: "Until"
) -> None:
    one = await start(1)
    two = await start(2, bootstrap=(one.address,))
    await until(lambda: one.network.answered() == (KnownPeer(two.address, "127.0.0.0/16", inbound=True),))
    await trio.sleep(1)
    assert one.sees(two)
    assert two.sees(one)
    assert [peer.outbound for peer in one.network.peers()] == [False]
    assert one.noticed(PeerGone) == two.noticed(PeerGone) == []
    await one.publish(b"m")
    await until(lambda: two.heard == [b"m"])


async def test_two_swarms_do_not_mix(start: "Start", until: "Until") -> None:
    one = await start(1)
    other = await start(2, network_id="cd" * 32, bootstrap=(one.address,))
    friend = await start(3, bootstrap=(one.address,))
    await until(lambda: one.noticed(OtherSwarm) and other.noticed(OtherSwarm) and one.sees(friend))
    await other.publish(b"theirs")
    await friend.publish(b"ours")
    await until(lambda: one.heard)
    assert (one.heard, other.heard) == ([b"ours"], [])
    assert one.noticed(OtherSwarm) == [OtherSwarm(other.network.peer_id, "cd" * 32)]


async def test_a_peer_that_is_not_admitted_gets_no_connection(start: "Start", until: "Until") -> None:
    one, two = await start(1), await start(2)
    one.banned.add(two.network.peer_id)
    three = await start(3, bootstrap=(one.address,))
    four = await start(4, bootstrap=(one.address,))
    await until(lambda: one.sees(three, four))
    two.network._dialer.want(one.network.peer_id, [one.address.partition("/p2p/")[0]])
    await until(lambda: two.network._dialer._book.get(one.network.peer_id).due > 0)
    assert not one.sees(two)


async def test_a_disconnected_peer_may_come_back(start: "Start", until: "Until") -> None:
    one = await start(1)
    two = await start(2, bootstrap=(one.address,))
    await until(lambda: one.sees(two))
    await one.network.disconnect(two.network.peer_id, "the operator asked for it")
    await until(lambda: len(one.noticed(PeerConnected)) == 2)
    assert [notice.why for notice in one.noticed(PeerGone)] == ["the operator asked for it"]


async def test_a_busy_port_is_one_clear_line(start: "Start", probe: "type[Probe]") -> None:
    one = await start(1)
    taken = one.address.partition("/p2p/")[0]
    with pytest.raises(PortBusyError, match=r"already in use.*--listen"):
        await probe(2, listen=taken).network.run()


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "/ip4/127.0.0.1/tcp/4001",
        "/ip4/127.0.0.1/udp/4001/quic-v1/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5",
        "/ip4/300.0.0.1/tcp/4001/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5",
        "/ip4/127.0.0.1/tcp/4001/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWnonsense",
        "/dnsaddr",
        "/dnsaddr/example.org/tcp/4001",
        "/dnsaddr/example.org/p2p/12D3KooWnonsense",
    ],
)
def test_a_malformed_bootstrap_is_refused_before_the_start(address: str, probe: "type[Probe]") -> None:
    with pytest.raises(AddressError, match=r"/p2p/<peer id>"):
        probe(1, bootstrap=(address,))


@pytest.mark.parametrize("address", ["nonsense", "/dns4/localhost/tcp/4001", "/ip4/127.0.0.1/udp/4001"])
def test_a_malformed_listen_address_is_refused_before_the_start(address: str, probe: "type[Probe]") -> None:
    with pytest.raises(AddressError, match="--listen"):
        probe(1, listen=address)


async def test_an_exception_out_of_the_library_restarts_the_service(start: "Start", until: "Until") -> None:
    one = await start(1)
    two = await start(2, bootstrap=(one.address,))
    three = await start(3, bootstrap=(two.address,))
    await until(lambda: two.sees(one, three))
    before = two.network.addresses
    two.break_service()
    await until(lambda: two.noticed(ServiceRestarted))
    # It redials whom it had dialled and whoever had dialled it, or is redialled by them at its old port.
    await until(lambda: two.sees(one, three), within=30)
    assert two.network.addresses == before
    await one.publish(b"m")
    await until(lambda: three.heard == [b"m"])


async def test_a_peer_that_is_back_before_its_old_connection_ends_is_told_our_topics(
    start: "Start", until: "Until"
) -> None:
    node = await start(1)
    old = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(old) and old.sees(node))
    back = await start(2, bootstrap=(node.address,))  # the same key, so the same peer
    await until(back.links)
    await old.stop()
    await until(lambda: back.sees(node))
    await node.publish(b"m")
    await until(lambda: back.heard == [b"m"])


async def test_a_peer_that_tells_its_topics_while_the_node_starts_is_seen(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start(1)
    peer = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(peer))
    await node.stop()
    run = GossipStreams.run

    async def run_late(streams: GossipStreams, **status: Any) -> None:
        await until(lambda: any(known.follows for known in streams._machine.peers.values()))
        await run(streams, **status)

    monkeypatch.setattr(GossipStreams, "run", run_late)
    again = await start(1, listen=node.address.partition("/p2p/")[0])
    await until(lambda: again.sees(peer) and peer.follows(again), within=3)


async def chatter(node: "Probe") -> None:
    for number in range(10_000):
        await node.publish(b"%d from %d" % (number, node.number) + bytes(20_000))
        await trio.sleep(0.005)


async def test_a_stop_under_traffic_is_quick_and_clean(start: "Start", until: "Until", nursery: trio.Nursery) -> None:
    one = await start(1)
    two = await start(2, bootstrap=(one.address,))
    three = await start(3, bootstrap=(one.address, two.address))
    await until(lambda: one.sees(two, three) and two.sees(three))
    for node in (two, three):
        nursery.start_soon(chatter, node)
    await until(lambda: len(one.heard) > 20)
    with trio.fail_after(5):
        await one.stop()
    before = len(two.heard)
    await until(lambda: len(two.heard) > before + 5)
    assert one.noticed(ServiceRestarted) + two.noticed(ServiceRestarted) + three.noticed(ServiceRestarted) == []
    nursery.cancel_scope.cancel()


async def found_each_other(start: "Start", until: "Until", **settings: Any) -> None:
    one = await start(1, discover=True, **settings)
    two = await start(2, discover=True, **settings)
    stranger = await start(3, discover=True, network_id="cd" * 32, **settings)
    await until(lambda: one.sees(two) and two.sees(one), within=30)
    assert one.links() == {two.network.peer_id}
    assert not stranger.links()


@pytest.mark.slow
async def test_nodes_of_one_swarm_find_each_other_without_options(start: "Start", until: "Until") -> None:
    await found_each_other(start, until, listen="/ip4/0.0.0.0/tcp/0")


@pytest.mark.slow
async def test_a_node_in_another_process_is_found_without_options(
    start: "Start", spawn: "Spawn", until: "Until"
) -> None:
    node = await start(1, discover=True, listen="/ip4/0.0.0.0/tcp/0")
    peer = await spawn(9, listen="/ip4/0.0.0.0/tcp/0")
    await until(lambda: [known.peer_id for known in node.network.peers()] == [peer.peer_id], within=30)
