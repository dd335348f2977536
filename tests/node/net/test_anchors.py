"""Whom a node dials first after a restart."""

from pathlib import Path

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.net.anchors import KEPT, PER_NETWORK, Anchors
from sapo_node.net.interface import PeerInfo
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
