"""Which peers a node dials to learn whether they can be dialled, on a virtual clock and a network of one function."""

from dataclasses import dataclass, field
from math import inf

import pytest
import trio
from trio.testing import MockClock

from sapo_node.net import feelers
from sapo_node.net.feelers import Announced, Feelers


@dataclass
class World:
    """Connected peers by what they announce. An address that starts with `open` answers, others are silent."""

    announced: dict[str, Announced] = field(default_factory=dict)
    dialled: list[tuple[str, float]] = field(default_factory=list)
    results: list[tuple[str, str, str]] = field(default_factory=list)
    open_dials: int = 0
    most_dials: int = 0

    def __post_init__(self) -> None:
        self.probe = Feelers(self.dial, self.announced.__getitem__, lambda *result: self.results.append(result))

    def meet(self, peer: str, *addresses: str, network: str = "net", claimed: bool = False) -> None:
        self.announced[peer] = Announced(addresses, claimed, network)
        self.probe.met(peer)

    async def dial(self, _peer: str, address: str) -> None:
        self.dialled.append((address, trio.current_time()))
        self.open_dials += 1
        self.most_dials = max(self.most_dials, self.open_dials)
        try:
            await trio.sleep(0.01 if address.startswith("open") else inf)
        finally:
            self.open_dials -= 1


@pytest.fixture
def world(nursery: trio.Nursery) -> World:
    """A world whose feelers run."""
    world = World()
    nursery.start_soon(world.probe.run)
    return world


async def test_a_peer_that_joins_is_dialled_within_a_second_and_once(world: World, autojump_clock: MockClock) -> None:
    world.meet("peer", "closed", "open")
    await trio.sleep(feelers.DIAL_SECONDS + 1)
    assert world.results == [("peer", "open", "net")]
    await trio.sleep(10 * feelers.AGAIN_SECONDS)
    assert [address for address, _ in world.dialled] == ["closed", "open"]


async def test_a_peer_that_does_not_answer_is_dialled_again_until_it_leaves(
    world: World, autojump_clock: MockClock
) -> None:
    world.meet("peer", "closed")
    await trio.sleep(2.5 * feelers.AGAIN_SECONDS)
    assert world.results == [("peer", "", "net")] * 3
    world.probe.left("peer")
    await trio.sleep(10 * feelers.AGAIN_SECONDS)
    assert len(world.dialled) == 3


async def test_silent_peers_of_some_networks_make_another_network_wait_for_their_first_dials_only(
    world: World, autojump_clock: MockClock
) -> None:
    for number in range(40):
        world.meet(f"silent {number}", "closed", network=f"attacker {number % (feelers.AT_ONCE - 1)}")
    await trio.sleep(1)
    world.meet("honest", "open", network="home")
    await trio.sleep(feelers.AT_ONCE * feelers.DIAL_SECONDS)
    assert ("honest", "open", "home") in world.results
    world.meet("another", "open", network="home")
    await trio.sleep(1)
    assert ("another", "open", "home") in world.results
    await trio.sleep(60)
    assert world.most_dials <= feelers.AT_ONCE


async def test_a_network_whose_peers_name_a_victim_causes_one_dial_in_ten_minutes(
    world: World, autojump_clock: MockClock
) -> None:
    for number in range(40):
        world.meet(f"liar {number}", f"victim {number}", claimed=True)
    world.meet("honest", "open", network="home", claimed=True)
    await trio.sleep(feelers.FAILED_SECONDS)
    assert ("honest", "open", "home") in world.results
    assert len([address for address, _ in world.dialled if address.startswith("victim")]) == 1


async def test_a_peer_without_an_address_makes_no_other_of_its_network_wait(
    world: World, autojump_clock: MockClock
) -> None:
    world.meet("behind a router")
    await trio.sleep(1)
    world.meet("open", "open", claimed=True)
    await trio.sleep(1)
    assert ("open", "open", "net") in world.results


async def test_an_attacker_that_leaves_and_comes_back_with_another_claim_causes_no_further_dial(
    world: World, autojump_clock: MockClock
) -> None:
    for number in range(40):
        world.meet(f"liar {number}", f"victim {number}", claimed=True)
        await trio.sleep(1)
        world.probe.left(f"liar {number}")
    assert len(world.dialled) == 1


async def test_at_most_ten_dials_begin_in_a_second(world: World, autojump_clock: MockClock) -> None:
    for number in range(40):
        world.meet(f"peer {number}", "open", network=f"network {number}")
    await trio.sleep(5)
    assert len(world.dialled) <= 5 / feelers.PAUSE_SECONDS + 1


async def test_peers_of_one_network_are_dialled_at_one_time_until_one_does_not_answer(
    world: World, autojump_clock: MockClock
) -> None:
    for number in range(8):
        world.meet(f"peer {number}", "closed")
    await trio.sleep(feelers.DIAL_SECONDS + 0.5)
    assert world.most_dials == feelers.AT_ONCE
    await trio.sleep(feelers.DIAL_SECONDS)
    assert world.open_dials == 1
