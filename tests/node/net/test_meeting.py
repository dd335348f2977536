"""Peers that know one address find each other by it, over real libp2p on loopback, and stay when it is gone."""

import pytest

from acquainted import answering, asking
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


async def test_two_that_know_a_third_meet_through_it_and_stay_when_it_leaves(member, until):
    way_in = await member(1)
    one = await member(2, bootstrap=(way_in.address,))
    other = await member(3, bootstrap=(way_in.address,))
    await until(lambda: way_in.sees(one, other))
    assert not one.sees(other)
    await asking(MANIFEST, one.network).meet(way_in.network.peer_id)
    await until(lambda: one.sees(other) and other.sees(one))
    await way_in.stop()
    await one.publish(b"without it")
    await until(lambda: b"without it" in other.heard)


async def test_a_place_where_nobody_is_costs_one_dial(member, until):
    way_in = await member(1)
    one = await member(2, bootstrap=(way_in.address,))
    await until(lambda: one.sees(way_in))
    gone = "12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    one.network.introduce(way_in.network.peer_id, gone, "/ip4/127.0.0.1/tcp/9")
    assert gone in one.network._dialer.wanted()
    await until(lambda: gone not in one.network._dialer.wanted())


async def test_what_somebody_says_who_is_not_connected_is_not_followed(member):
    one = await member(2)
    stranger = "12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    one.network.introduce(stranger, stranger, "/ip4/127.0.0.1/tcp/9")
    assert one.network._dialer.wanted() == ()
