"""The address book and its loop, on a virtual clock and a network of one function."""

from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from sapo_node.net import address_book, dialer
from sapo_node.net.dialer import Dialer
from sapo_node.net.interface import BootstrapReached, BootstrapUnreachable, KnownPeer, NetworkNotice
from sapo_node.net.settings import NAMED, WRONG


@dataclass
class World:
    """Peers that answer at some addresses, and what the dialer did and said about it."""

    answering: set[str] = field(default_factory=set)
    linked: set[str] = field(default_factory=set)
    below_target: bool = False
    silent: bool = False
    """No address answers."""
    banned: set[str] = field(default_factory=set)
    dialled: list[tuple[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    notices: list[NetworkNotice] = field(default_factory=list)
    asked: int = 0
    """How often the dialer asked who is connected."""

    def connected(self) -> frozenset[str]:
        self.asked += 1
        return frozenset(self.linked)

    def dialer(self) -> Dialer:
        return Dialer(
            self.dial,
            self.connected,
            below_target=lambda: self.below_target,
            admit=lambda peer: peer not in self.banned,
            notify=self.notices.append,
        )

    async def dial(self, peer_id: str, address: str) -> None:
        self.dialled.append((peer_id, address))
        self.times.append(trio.current_time())
        if self.silent or address.startswith("silent"):
            await trio.sleep_forever()
        if address not in self.answering:
            raise ConnectionRefusedError(111, "Connection refused")
        self.linked.add(peer_id)


async def test_the_second_address_is_tried_when_the_first_fails(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"b"})
    book = world.dialer()
    book.want("peer", ["a", "b"])
    nursery.start_soon(book.run)
    await trio.sleep(0.1)
    assert world.dialled == [("peer", "a"), ("peer", "b")]


async def test_the_address_that_answered_is_remembered_and_no_other(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"b"}, linked={"inbound"})
    book = world.dialer()
    book.remember(KnownPeer("gone/p2p/earlier", "a network"))
    book.want("peer", ["a", "b"])
    book.want("inbound", ["c"])
    book.want("named", ["d"], by="peer")
    nursery.start_soon(book.run)
    await trio.sleep(1)
    assert book.all_answered() == (KnownPeer("gone/p2p/earlier", "a network"), KnownPeer("b/p2p/peer"))
    assert ("earlier", "gone") in world.dialled


async def test_a_peer_that_answers_no_feeler_any_more_is_not_remembered() -> None:
    book = World().dialer()
    book.felt("peer", "a", "a network")
    assert book.all_answered() == (KnownPeer("a/p2p/peer", "a network", inbound=True),)
    book.felt("peer", "", "a network")
    assert book.all_answered() == ()


async def test_a_silent_address_is_left_after_the_deadline(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    world = World(answering={"b"})
    book = world.dialer()
    book.want("peer", ["silent", "b"])
    nursery.start_soon(book.run)
    await trio.sleep(dialer.DIAL_SECONDS + 1)
    assert world.linked == {"peer"}


async def test_a_peer_with_many_silent_addresses_is_left_after_one_deadline_and_each_address_is_tried(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World()
    book = world.dialer()
    addresses = [f"silent {number}" for number in range(address_book.ADDRESSES)]
    book.want("peer", addresses)
    nursery.start_soon(book.run)
    await trio.sleep(dialer.ATTEMPT_SECONDS + 1.5)
    assert [address for _, address in world.dialled] == [*addresses, addresses[0]]


@pytest.mark.parametrize("sources", [1, address_book.BUCKET - 1])
async def test_a_crowd_that_never_answers_keeps_no_honest_peer_waiting_for_an_hour(
    nursery: trio.Nursery, autojump_clock: MockClock, sources: int
) -> None:
    """Each of the crowd has eight silent addresses, and answered once before."""
    world = World(answering={"home"})
    book = world.dialer()
    for number in range(address_book.BOOK):
        book.remember(KnownPeer(f"silent {number}/p2p/crowd {number}", f"source {number % sources}"))
        book.want(f"crowd {number}", [f"silent {number} {each}" for each in range(address_book.ADDRESSES)])
    nursery.start_soon(book.run)
    await trio.sleep(120)
    book.want("honest", ["home"])
    with trio.fail_after(3600):
        while "honest" not in world.linked:  # noqa: ASYNC110 - a dial has no event
            await trio.sleep(1)


def crowd_of(networks: int) -> list[str]:
    """Addresses of an attacker, sixteen in each of its networks."""
    return [f"/ip4/10.{network}.{number}.1/tcp/1" for network in range(networks) for number in range(16)]


@pytest.mark.parametrize("inbound", [False, True])
async def test_many_that_one_source_named_and_many_that_dialled_us_are_dialled_no_more_than_others(
    nursery: trio.Nursery, autojump_clock: MockClock, *, inbound: bool
) -> None:
    """The attacker's peers answer, and were known before the restart, as were three honest peers of three sources."""
    honest = [f"/ip4/3.{number}.0.1/tcp/1" for number in range(3)]
    world = World(answering={*honest, *crowd_of(networks=15)})
    book = world.dialer()
    for address in crowd_of(networks=15):
        source = ".".join(address.split(".")[:2]) if inbound else "liar"
        book.remember(KnownPeer(f"{address}/p2p/{address}", source, inbound))
    for address in honest:
        book.remember(KnownPeer(f"{address}/p2p/{address}", f"namer of {address}"))
    nursery.start_soon(book.run)
    await trio.sleep(60)
    assert len(world.linked) == dialer.ENOUGH
    assert set(honest) < world.linked


async def test_a_look_at_a_full_book_reads_no_address_and_asks_twice_who_is_connected(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We dialled four peers of a network, which are connected. The other peers of the book are in the same network."""
    read: list[str] = []
    world = World(linked={f"peer {number}" for number in range(dialer.PER_NETWORK)})
    book = world.dialer()
    for number in range(address_book.BUCKET):
        book.want(f"peer {number}", [f"/ip4/10.1.{number}.1/tcp/{port}" for port in range(1, 9)])
    for entry in book._book:
        entry.ours = entry.peer_id in world.linked
    world.asked = 0
    monkeypatch.setattr(address_book, "network_of", read.append)
    nursery.start_soon(book.run)
    await trio.sleep(dialer.LOOK_AGAIN_SECONDS * 10.5)
    assert (world.asked, read, world.dialled) == (2 * 11, [], [])


async def test_waits_grow_up_to_a_minute(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["a"], bootstrap=True)
    nursery.start_soon(book.run)
    await trio.sleep(3600)
    waits = [later - earlier for earlier, later in zip(world.times, world.times[1:], strict=False)]
    assert waits[0] <= 1.0
    assert all(30.0 <= wait <= 60.0 for wait in waits[8:])
    assert len(set(waits[8:])) > 1, "without jitter all nodes would dial at once"


async def test_a_bootstrap_is_reported_once_when_it_fails_and_once_when_it_returns(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["a"], bootstrap=True)
    nursery.start_soon(book.run)
    await trio.sleep(600)
    world.answering.add("a")
    await trio.sleep(120)
    assert world.notices == [
        BootstrapUnreachable("a/p2p/peer", "Connection refused"),
        BootstrapReached("a/p2p/peer"),
    ]


async def test_each_cause_for_which_a_bootstrap_is_unreachable_is_reported_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["a"], bootstrap=True)
    nursery.start_soon(book.run)
    await trio.sleep(600)
    world.silent = True
    await trio.sleep(600)
    world.silent = False
    await trio.sleep(600)
    assert world.notices == [
        BootstrapUnreachable("a/p2p/peer", "Connection refused"),
        BootstrapUnreachable("a/p2p/peer", "no answer in time"),
    ]


async def test_a_bootstrap_that_dials_us_is_reported_as_reachable(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["a"], bootstrap=True)
    nursery.start_soon(book.run)
    await trio.sleep(10)
    world.linked.add("peer")
    await trio.sleep(10)
    assert world.notices[-1] == BootstrapReached("a/p2p/peer")


async def test_a_peer_whose_connection_is_being_closed_is_not_dialled_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"a"}, linked={"peer"})
    book = world.dialer()
    book.want("peer", ["a"])
    nursery.start_soon(book.run)
    await trio.sleep(60)
    world.linked.clear()
    book.wake()
    await trio.sleep(0.2)
    assert world.dialled == []
    await trio.sleep(0.4)
    assert world.dialled == [("peer", "a")]


async def test_a_peer_that_leaves_as_soon_as_it_is_known_is_not_dialled_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"a"}, linked={"peer"})
    book = world.dialer()
    nursery.start_soon(book.run)
    await trio.sleep(60)
    book.want("peer", ["a"])
    world.linked.clear()
    await trio.sleep(0.2)
    assert world.dialled == []


async def test_an_ordinary_peer_that_stays_silent_is_forgotten(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["a"])
    nursery.start_soon(book.run)
    await trio.sleep(3600)
    assert (len(world.dialled), book.wanted(), world.notices) == (dialer.GIVE_UP, (), [])


async def test_a_lost_peer_is_dialled_again_within_a_second(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    world = World(answering={"a"})
    book = world.dialer()
    book.want("peer", ["a"])
    nursery.start_soon(book.run)
    await trio.sleep(1)
    world.linked.clear()
    book.lost("peer")
    await trio.sleep(1)
    assert world.linked == {"peer"}


async def test_a_peer_that_is_not_admitted_is_not_dialled(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    world = World(answering={"a"}, banned={"peer"})
    book = world.dialer()
    book.want("peer", ["a"])
    nursery.start_soon(book.run)
    await trio.sleep(60)
    assert world.dialled == []


async def with_enough(nursery: trio.Nursery) -> tuple[World, Dialer]:
    """A dialer that has dialled as many peers as it wants to."""
    world = World(answering={str(number) for number in range(dialer.ENOUGH)})
    book = world.dialer()
    for number in range(dialer.ENOUGH):
        book.want(f"peer {number}", [str(number)])
    nursery.start_soon(book.run)
    await trio.sleep(60)
    world.dialled.clear()
    world.answering.add("a")
    return world, book


async def test_who_dialled_enough_dials_only_bootstrap_peers_and_anchors(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world, book = await with_enough(nursery)
    book.want("ordinary", ["a"])
    book.want("bootstrap", ["a"], bootstrap=True)
    book.want("anchor", ["a"], anchor=True)
    await trio.sleep(60)
    assert sorted(world.dialled) == [("anchor", "a"), ("bootstrap", "a")]


async def test_one_that_was_lost_makes_room_for_another(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    world, book = await with_enough(nursery)
    book.want("ordinary", ["a"])
    world.answering.discard("0")
    world.linked.discard("peer 0")
    book.lost("peer 0")
    await trio.sleep(60)
    assert "ordinary" in world.linked


async def test_strangers_who_dial_us_do_not_keep_us_from_dialling(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"a"}, linked={f"stranger {number}" for number in range(50)})
    book = world.dialer()
    book.want("ordinary", ["a"])
    nursery.start_soon(book.run)
    await trio.sleep(60)
    assert world.dialled == [("ordinary", "a")]


async def test_one_network_is_not_all_that_is_dialled(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    crowd = [f"/ip4/10.1.{number}.1/tcp/1" for number in range(20)]
    world = World(answering={*crowd, "/ip4/10.2.0.1/tcp/1"})
    book = world.dialer()
    for address in (*crowd, "/ip4/10.2.0.1/tcp/1"):
        book.want(address, [address])
    nursery.start_soon(book.run)
    await trio.sleep(60)
    assert len(world.linked & set(crowd)) == dialer.PER_NETWORK
    assert "/ip4/10.2.0.1/tcp/1" in world.linked


@pytest.mark.parametrize("strangers", [3, 4])
async def test_strangers_of_a_network_who_dial_us_do_not_keep_us_from_dialling_honest_peers_there(
    nursery: trio.Nursery, autojump_clock: MockClock, strangers: int
) -> None:
    honest = [f"/ip4/3.64.{number}.1/tcp/1" for number in range(8)]
    world = World(answering=set(honest), linked={f"stranger {number}" for number in range(strangers)})
    book = world.dialer()
    for number in range(strangers):
        book.want(f"stranger {number}", [f"/ip4/3.64.250.9/tcp/{number}"])
    for address in honest:
        book.want(address, [address])
    nursery.start_soon(book.run)
    await trio.sleep(3600)
    assert len(world.linked & set(honest)) == dialer.PER_NETWORK


def places(count: int) -> list[str]:
    return [f"/ip4/10.{number}.0.1/tcp/1" for number in range(count)]


def named(book: Dialer, addresses: list[str]) -> None:
    for address in addresses:
        book.want(address, [address], by=f"namer of {address}", source=f"network of {address}")


async def test_who_lacks_company_dials_more_of_those_named_but_not_without_end(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering=set(places(40)), below_target=True)
    book = world.dialer()
    named(book, places(40))
    nursery.start_soon(book.run)
    await trio.sleep(60)
    assert len(world.linked) == dialer.MOST


async def test_who_lacks_company_dials_nobody_for_it_who_was_not_named(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering=set(places(40)), below_target=True)
    book = world.dialer()
    for address in places(40):
        book.want(address, [address])
    nursery.start_soon(book.run)
    await trio.sleep(60)
    assert len(world.linked) == dialer.ENOUGH


async def test_with_other_topics_those_are_left_who_were_dialled_for_the_old_ones(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={*places(20), "way in"}, below_target=True)
    book = world.dialer()
    book.want("bootstrap", ["way in"], bootstrap=True)
    named(book, places(20))
    nursery.start_soon(book.run)
    await trio.sleep(60)
    useful = set(places(20)[:3])
    left = book.seek_anew(useful.__contains__)
    assert len(world.linked) - len(left) == dialer.ENOUGH
    assert not {"bootstrap", *useful} & set(left)
    world.linked -= set(left)
    await trio.sleep(600)
    assert len(world.linked) == dialer.ENOUGH


async def test_who_knows_enough_keeps_them_whatever_they_follow(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    _, book = await with_enough(nursery)
    assert book.seek_anew(lambda _: False) == []


async def test_an_anchor_that_stays_silent_is_forgotten_without_a_word(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World()
    book = world.dialer()
    book.want("anchor", ["a"], anchor=True)
    nursery.start_soon(book.run)
    await trio.sleep(3600)
    assert (book.wanted(), world.notices) == ((), [])


async def test_the_book_is_bounded_and_keeps_bootstrap_peers_and_anchors() -> None:
    book = World().dialer()
    book.want("bootstrap", ["a"], bootstrap=True)
    book.want("anchor", ["a"], anchor=True)
    for number in range(address_book.BOOK * 2):
        book.want(f"peer {number}", ["a"], source=f"source {number}")
    assert len(book.wanted()) == address_book.BOOK
    assert {"bootstrap", "anchor"} < set(book.wanted())


@pytest.mark.parametrize("networks", [1, 20])
async def test_a_crowd_displaces_no_peer_of_another_bucket_that_is_no_larger(networks: int) -> None:
    """A thousand peers of the attacker answer feelers. Other peers named three honest ones, which nobody dialled."""
    book = World().dialer()
    honest = [f"honest {number}" for number in range(3)]
    for peer in honest:
        book.want(peer, ["home"], by=f"namer of {peer}", source=f"network of {peer}")
    for number in range(1_000):
        book.felt(f"crowd {number}", f"place {number}", f"network {number % networks}")
    assert set(honest) < set(book.wanted())
    assert len(book.wanted()) <= min(address_book.BOOK, len(honest) + networks * address_book.BUCKET)


async def test_a_peer_that_never_answered_leaves_a_full_bucket_first() -> None:
    book = World().dialer()
    book.want("silent", ["a"], source="one")
    for number in range(address_book.BUCKET):
        book.remember(KnownPeer(f"b/p2p/peer {number}", "one"))
    assert set(book.wanted()) == {f"peer {number}" for number in range(address_book.BUCKET)}


async def test_the_book_and_its_peers_survive_a_restart_of_the_loop(autojump_clock: MockClock) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["silent"], bootstrap=True)
    with trio.move_on_after(1):
        await book.run()
    world.answering.add("silent")
    with trio.move_on_after(1):
        await book.run()
    assert len(world.dialled) == 2


async def test_a_peer_that_broke_the_protocol_is_no_longer_sought() -> None:
    book = World().dialer()
    book.want("peer", ["a"])
    book.want("bootstrap", ["a"], bootstrap=True)
    book.forget("peer")
    book.forget("bootstrap")
    assert book.wanted() == ("bootstrap",)


async def test_who_was_named_and_is_there_is_kept_like_any_other(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"a"})
    book = world.dialer()
    book.want("peer", ["a"], by="namer")
    nursery.start_soon(book.run)
    await trio.sleep(0.1)
    assert world.linked == {"peer"}
    world.linked.clear()
    world.answering.clear()
    book.lost("peer")
    await trio.sleep(60)
    assert len(world.dialled) > 2


async def test_who_was_named_and_is_not_there_is_dialled_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    world = World()
    book = world.dialer()
    book.want("peer", ["a"], by="namer")
    nursery.start_soon(book.run)
    await trio.sleep(600)
    assert world.dialled == [("peer", "a")]
    assert book.wanted() == ()


async def test_who_named_three_that_are_not_there_is_heeded_no_more_for_a_while(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"b"})
    book = world.dialer()
    nursery.start_soon(book.run)
    for number in range(20):
        book.want(f"peer {number}", ["a"], by="liar")
        await trio.sleep(1)
    assert len(world.dialled) == WRONG
    book.want("other", ["b"], by="namer")
    await trio.sleep(1)
    assert world.linked == {"other"}
    await trio.sleep(address_book.IGNORED_SOURCE_SECONDS)
    book.want("another", ["b"], by="liar")
    await trio.sleep(1)
    assert world.linked == {"other", "another"}


async def test_one_peer_fills_no_more_than_its_part_of_the_book() -> None:
    book = World().dialer()
    for number in range(20):
        book.want(f"peer {number}", ["a"], by="namer")
    assert len(book.wanted()) == NAMED


async def test_what_is_said_of_a_peer_that_is_known_changes_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(answering={"a"})
    book = world.dialer()
    book.want("peer", ["a"])
    book.want("peer", ["elsewhere"], by="liar")
    nursery.start_soon(book.run)
    await trio.sleep(1)
    assert world.dialled == [("peer", "a")]
