"""Peers that know one address find each other by it, over real libp2p on loopback, and stay when it is gone."""

import pytest
import trio
from tests.node.net.conftest import free_port

from acquainted import answering, asking
from sapo_node.net.interface import TARGET_PEERS
from sapo_protocol import load_manifest

MANIFEST = load_manifest("interop")
PROBES = {}


@pytest.fixture
async def member(start):
    async def of(number, **settings):
        requests = answering(MANIFEST, lambda: PROBES[number].network, seed=number)
        PROBES[number] = await start(number, network_id=MANIFEST.network_id.hex(), requests=requests, **settings)
        return PROBES[number]

    yield of
    PROBES.clear()


def proven(probe):
    """The peers that it may name to others."""
    return {peer.peer_id: peer.addresses[0] for peer in probe.network.peers() if peer.addresses}


async def test_two_that_know_a_third_meet_through_it_and_stay_when_it_leaves(member, until):
    way_in = await member(1)
    one = await member(2, bootstrap=(way_in.address,))
    other = await member(3, bootstrap=(way_in.address,))
    await until(lambda: one.sees(way_in) and len(proven(way_in)) == 2)
    assert not one.sees(other)
    await asking(MANIFEST, one.network).meet(way_in.network.peer_id)
    await until(lambda: one.sees(other) and other.sees(one))
    await way_in.stop()
    await one.publish(b"without it")
    await until(lambda: b"without it" in other.heard)


@pytest.mark.slow
async def test_six_that_know_one_address_are_connected_to_four_peers_each(member, until, nursery):
    first = await member(1)
    others = [await member(number, bootstrap=(first.address,)) for number in range(2, 7)]
    for each in others:
        nursery.start_soon(asking(MANIFEST, each.network).run)
    await until(lambda: all(len(each.network.peers()) >= TARGET_PEERS for each in (first, *others)), within=60)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["leaves by another address than it listens on", "announces a name"])
async def test_peers_meet_through_a_third_although_they_are_connected_from_elsewhere(kind, member, until):
    way_in = await member(1)

    async def joined(number):
        port = free_port()
        listen, announce = f"/ip4/127.0.0.{number}/tcp/{port}", ()
        if "name" in kind:
            listen, announce = f"/ip4/127.0.0.1/tcp/{port}", (f"/dns4/localhost/tcp/{port}",)
        return await member(number, bootstrap=(way_in.address,), listen=listen, announce=announce)

    one, other = await joined(2), await joined(3)
    await until(lambda: one.sees(way_in) and len(proven(way_in)) == 2)
    await asking(MANIFEST, one.network).meet(way_in.network.peer_id)
    await until(lambda: one.sees(other) and other.sees(one))


async def test_peers_that_announce_where_they_do_not_listen_are_named_to_nobody(member, until):
    """Three false names, and a newcomer would ignore the peer that told it of them for ten minutes."""
    way_in = await member(1)
    for number in range(10, 16):
        liar = await member(number, bootstrap=(way_in.address,), announce=("/ip4/127.0.0.1/tcp/9",))
        await until(lambda liar=liar: way_in.sees(liar))
    honest = await member(2, bootstrap=(way_in.address,))
    await until(lambda: way_in.sees(honest))
    newcomer = await member(3, bootstrap=(way_in.address,))
    await until(lambda: newcomer.sees(way_in))

    async def asked():
        while not newcomer.sees(honest):
            await asking(MANIFEST, newcomer.network).meet(way_in.network.peer_id)
            await trio.sleep(0.2)

    with trio.fail_after(15):
        await asked()
    assert honest.network.peer_id in proven(way_in)
    assert proven(way_in).keys() <= {honest.network.peer_id, newcomer.network.peer_id}


async def test_who_is_known_by_a_name_can_name_peers_and_be_an_anchor(member, until):
    port = free_port()
    listen, name = f"/ip4/127.0.0.1/tcp/{port}", f"/dns4/localhost/tcp/{port}"
    way_in = await member(1, listen=listen, announce=(name,))
    one = await member(2, bootstrap=(f"{name}/p2p/{way_in.network.peer_id}",))
    await until(lambda: one.sees(way_in))
    assert [peer.addresses for peer in one.network.peers()] == [(listen,)]
    other = await member(3, bootstrap=(way_in.address,))
    await until(lambda: other.network.peer_id in proven(way_in))
    await asking(MANIFEST, one.network).meet(way_in.network.peer_id)
    await until(lambda: one.sees(other))


async def test_a_place_where_nobody_is_costs_one_dial(member, until):
    way_in = await member(1)
    one = await member(2, bootstrap=(way_in.address,))
    await until(lambda: one.sees(way_in))
    gone = "12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    one.network.try_address(way_in.network.peer_id, gone, "/ip4/127.0.0.1/tcp/9")
    assert gone in one.network._dialer.wanted()
    await until(lambda: gone not in one.network._dialer.wanted())


async def test_what_somebody_says_who_is_not_connected_is_not_followed(member):
    one = await member(2)
    stranger = "12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    one.network.try_address(stranger, stranger, "/ip4/127.0.0.1/tcp/9")
    assert one.network._dialer.wanted() == ()
