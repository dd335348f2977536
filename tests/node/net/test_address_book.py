"""Whom a node dials first after a restart."""

from pathlib import Path

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.net.address_book import BOOK, BUCKET, KEPT, KNOWN_PER_NETWORK, PER_NETWORK, Anchors, KnownPeers
from sapo_node.net.interface import KnownPeer, PeerInfo
from sapo_node.storage.database import Database


def peer(number: int, *, outbound: bool = True, brought: int = 1, network: int | None = None) -> PeerInfo:
    """A peer that connected in the second of its number, by default in a network of its own."""
    address = f"/ip4/10.{number if network is None else network}.0.{number}/tcp/4001"
    return PeerInfo(f"peer{number}", (address,), outbound=outbound, connected_at=number, brought=brought)


def kept(anchors: Anchors) -> list[str]:
    return [address.rpartition("/")[2] for address in anchors.addresses]


@pytest.fixture
def anchors() -> Anchors:
    return Anchors(Database(None, SCHEMA))


def test_those_that_served_longest_are_kept(anchors: Anchors) -> None:
    anchors.note([peer(number) for number in (7, 3, 5, 1, 9)])
    assert kept(anchors) == ["peer1", "peer3", "peer5", "peer7"]
    assert anchors.addresses[0] == "/ip4/10.1.0.1/tcp/4001/p2p/peer1"


def test_who_dialled_us_or_brought_nothing_is_no_anchor(anchors: Anchors) -> None:
    anchors.note([peer(1, outbound=False), peer(2, brought=0), peer(3)])
    assert kept(anchors) == ["peer3"]


def test_one_network_cannot_be_all_of_them(anchors: Anchors) -> None:
    anchors.note([*(peer(number, network=1) for number in range(5)), peer(6)])
    assert kept(anchors) == [*(f"peer{number}" for number in range(PER_NETWORK)), "peer6"]


def test_earlier_ones_stay_while_there_is_room(anchors: Anchors) -> None:
    anchors.note([peer(1), peer(2)])
    anchors.note([peer(number) for number in range(3, 2 + KEPT)])
    assert kept(anchors) == ["peer3", "peer4", "peer5", "peer1"]
    anchors.note([])
    assert kept(anchors) == ["peer3", "peer4", "peer5", "peer1"]


def test_they_survive_the_process(tmp_path: Path) -> None:
    database = Database(tmp_path / "node.sqlite", SCHEMA)
    Anchors(database).note([peer(1)])
    database.close()
    assert kept(Anchors(Database(tmp_path / "node.sqlite", SCHEMA))) == ["peer1"]


def known_peer(network: int, number: int, source: str = "", port: int = 4001) -> KnownPeer:
    """A peer that answered. By default its own network is its source."""
    address = f"/ip4/10.{network}.0.{number}/tcp/{port}/p2p/peer{network}-{number}"
    return KnownPeer(address, source or f"10.{network}.0.0/16", inbound=not source)


def test_the_address_book_is_bounded_on_disk_and_one_network_cannot_fill_it() -> None:
    known = KnownPeers(Database(None, SCHEMA))
    known.note([known_peer(network, number, f"source {number}") for network in range(20) for number in range(100)])
    networks = [each.address.split(".")[1] for each in known.peers]
    assert len(networks) == BOOK
    assert max(map(networks.count, networks)) == KNOWN_PER_NETWORK


def test_one_source_cannot_fill_the_book_on_disk_over_time() -> None:
    known = KnownPeers(Database(None, SCHEMA))
    honest = known_peer(1, 1, "honest")
    known.note([honest])
    for number in range(50):
        known.note([known_peer(network, number, "liar") for network in range(2, 12)])
    assert honest in known.peers
    assert len(known.peers) == 1 + BUCKET


def test_an_earlier_proven_peer_stays_and_its_newest_address_counts(tmp_path: Path) -> None:
    """The book of a node that is offline runs empty."""
    database = Database(tmp_path / "node.sqlite", SCHEMA)
    KnownPeers(database).note([known_peer(1, 1), known_peer(2, 2)])
    KnownPeers(database).note([])
    KnownPeers(database).note([known_peer(1, 1, port=4002)])
    database.close()
    known = KnownPeers(Database(tmp_path / "node.sqlite", SCHEMA))
    assert known.peers == (known_peer(1, 1, port=4002), known_peer(2, 2))
