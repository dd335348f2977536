"""Multiaddresses: what is taken, what is refused, and what others are told."""

import socket

import pytest

from sapo_node.net import addresses
from sapo_node.net.discovery import Beacon, read_record

PEER = "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"
SWARM = "ab" * 32


@pytest.mark.parametrize("host", ["/ip4/192.0.2.1", "/ip6/2001:db8::1", "/dns4/node.example", "/dns/node.example"])
def test_a_bootstrap_address_splits_into_peer_and_place(host: str) -> None:
    assert addresses.parse_dial(f"{host}/tcp/4001/p2p/{PEER}") == (PEER, f"{host}/tcp/4001")


@pytest.mark.parametrize(
    "text",
    [
        "/ip4/0.0.0.0/tcp/4001",
        "/ip4/192.0.2.1/tcp/0",
        "/ip4/192.0.2.1/udp/4001",
        "/ip4/192.0.2.1/tcp/4001/ws",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}/p2p-circuit",
        "",
        "\x00",
    ],
)
def test_an_address_that_cannot_be_dialled_is_not_kept(text: str) -> None:
    assert not addresses.is_dialable(text)


def test_a_long_address_is_refused_in_a_short_line_before_it_is_decoded() -> None:
    text = "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooW" + "a" * 1_000_000  # decoding it takes minutes
    with pytest.raises(addresses.AddressError, match="1000036 characters, and an address at most 512") as refused:
        addresses.parse_dial(text)
    assert len(str(refused.value)) < 300


def test_a_wildcard_becomes_the_addresses_of_this_machine() -> None:
    found = addresses.expand(["/ip4/0.0.0.0/tcp/4001"])
    assert found[-1] == "/ip4/127.0.0.1/tcp/4001"
    assert all(addresses.is_dialable(text) for text in found)


def test_a_concrete_address_stays_as_it_is() -> None:
    assert addresses.expand(["/ip4/127.0.0.1/tcp/4001"]) == ("/ip4/127.0.0.1/tcp/4001",)


def as_heard(beacon: Beacon) -> dict[bytes, bytes | None]:
    return {key.encode(): value.encode() for key, value in beacon.record().items()}


BEACON = Beacon(SWARM, PEER, ("/ip4/192.0.2.1/tcp/4001", "/ip4/127.0.0.1/tcp/4001"))


def test_an_announcement_is_read_back() -> None:
    assert read_record(as_heard(BEACON), SWARM) == (PEER, BEACON.addresses)


def test_an_announcement_of_another_swarm_is_passed_over() -> None:
    assert read_record(as_heard(BEACON), "cd" * 32) is None


@pytest.mark.parametrize("place", [b"nonsense", b"/ip4/0.0.0.0/tcp/1", b"\xff\xfe", b"", None])
def test_an_announcement_without_a_dialable_address_is_passed_over(place: bytes | None) -> None:
    record = as_heard(Beacon(SWARM, PEER, ())) | {b"a0": place}
    assert read_record(record, SWARM) is None


def test_each_entry_of_an_announcement_fits_its_length_byte() -> None:
    long = Beacon(SWARM, PEER, tuple(f"/ip6/2001:db8:1111:2222:3333:4444:5555:{n:04x}/tcp/65535" for n in range(20)))
    assert all(len(f"{key}={value}") < 256 for key, value in long.record().items())


@pytest.mark.parametrize(
    ("named", "met", "followed"),
    [
        ("/ip4/8.8.8.8/tcp/4001", "/ip4/9.9.9.9/tcp/4001", True),
        ("/ip4/8.8.8.8/tcp/4001", "/ip4/192.168.0.7/tcp/4001", True),
        ("/ip4/192.168.0.7/tcp/4001", "/ip4/10.0.0.1/tcp/4001", True),
        ("/ip4/127.0.0.1/tcp/4001", "/ip4/127.0.0.1/tcp/4002", True),
        ("/ip4/192.168.0.1/tcp/80", "/ip4/9.9.9.9/tcp/4001", False),
        ("/ip4/127.0.0.1/tcp/80", "/ip4/9.9.9.9/tcp/4001", False),
        ("/ip4/127.0.0.1/tcp/80", "/ip4/192.168.0.7/tcp/4001", False),
        ("/ip4/169.254.169.254/tcp/80", "/ip4/192.168.0.7/tcp/4001", False),
        ("/ip6/::1/tcp/80", "/ip6/2606:4700::1/tcp/4001", False),
        ("/ip6/fd00::1/tcp/80", "/ip6/2606:4700::1/tcp/4001", False),
        ("/ip4/8.8.8.8/tcp/0", "/ip4/9.9.9.9/tcp/4001", False),
        ("/dns/router.local/tcp/80", "/ip4/9.9.9.9/tcp/4001", False),
        ("/ip4/8.8.8.8/udp/4001", "/ip4/9.9.9.9/tcp/4001", False),
        ("nowhere", "/ip4/9.9.9.9/tcp/4001", False),
        ("/ip6zone/\u0664\u0664\u0664", "/ip4/9.9.9.9/tcp/4001", False),
        ("/ip6/::ffff:127.0.0.1/tcp/80", "/ip4/192.168.0.7/tcp/4001", False),
        ("/ip6/::ffff:169.254.169.254/tcp/80", "/ip4/192.168.0.7/tcp/4001", False),
        ("/ip6/::ffff:8.8.8.8/tcp/4001", "/ip4/9.9.9.9/tcp/4001", True),
        ("/ip6/::7f00:1/tcp/80", "/ip6/2606:4700::1/tcp/4001", False),
        ("/ip6/64:ff9b::7f00:1/tcp/80", "/ip6/2606:4700::1/tcp/4001", False),
        ("/ip6/2002:7f00:1::/tcp/80", "/ip6/2606:4700::1/tcp/4001", False),
    ],
)
def test_hearsay_leads_to_no_more_private_a_network_than_its_author(named, met, followed):
    assert addresses.may_be_followed(named, met) is followed


@pytest.mark.parametrize("text", ["nonsense", "/ip4/0.0.0.0/tcp/4001", "/ip6/::/tcp/4001", "/ip4/192.0.2.1/tcp/0"])
def test_the_advice_for_an_address_to_announce_is_one_that_others_can_dial(text: str) -> None:
    with pytest.raises(addresses.AddressError) as refused:
        addresses.parse_announce(text)
    advised = [word for word in str(refused.value).replace(text, "").split() if word.startswith("/")]
    assert advised
    assert all(addresses.is_dialable(each) for each in advised)


def test_the_advice_for_an_address_to_listen_on_is_one_to_listen_on() -> None:
    with pytest.raises(addresses.AddressError) as refused:
        addresses.parse_listen("nonsense")
    assert addresses.parse_listen(str(refused.value).split()[-1])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4001", "/ip4/127.0.0.1/tcp/4001"),
        ("localhost:4001", "/ip4/127.0.0.1/tcp/4001"),
        ("[::1]:4001", "/ip6/::1/tcp/4001"),
        (":4001", "/ip4/0.0.0.0/tcp/4001"),
        ("4001", "/ip4/0.0.0.0/tcp/4001"),
        ("0.0.0.0:0", "/ip4/0.0.0.0/tcp/0"),
        ("/ip6/::/tcp/4001", "/ip6/::/tcp/4001"),
    ],
)
def test_an_address_to_listen_on_may_be_a_host_and_a_port(text: str, address: str) -> None:
    assert addresses.parse_listen(text) == address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("203.0.113.5:4001", "/ip4/203.0.113.5/tcp/4001"),
        ("[2001:db8::1]:4001", "/ip6/2001:db8::1/tcp/4001"),
        ("node.example.org:4001", "/dns/node.example.org/tcp/4001"),
    ],
)
def test_an_address_to_announce_may_be_a_host_and_a_port(text: str, address: str) -> None:
    assert addresses.parse_announce(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:+1", "::1:4001", "[127.0.0.1]:4001", ""),
        *("999.0.0.1:4001", "example.org:4001", "/ip4/127.0.0.1/tcp/x", "tcp://127.0.0.1:4001", "4 001", "\uff11"),
    ],
)
def test_any_other_address_to_listen_on_is_refused_and_said_once(text: str) -> None:
    with pytest.raises(addresses.AddressError) as refused:
        addresses.parse_listen(text)
    assert str(refused.value).count(repr(text)) == 1


BOTH = ("/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0")


@pytest.mark.parametrize(("listen", "left"), [(BOTH, BOTH[:1]), (BOTH[1:], BOTH[1:])])
def test_on_a_machine_without_ipv6_its_wildcard_is_left_out_if_another_address_is_left(
    listen: tuple[str, ...], left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert addresses.listening(listen) == listen
    monkeypatch.setattr("socket.AF_INET6", socket.AF_APPLETALK)  # a family that no socket has here
    assert addresses.listening(listen) == left


def test_an_address_of_another_machine_is_not_said_to_be_busy() -> None:
    with pytest.raises(addresses.AddressError, match="cannot listen on"):
        addresses.check_port_free(["/ip4/203.0.113.7/tcp/4001"])


@pytest.mark.parametrize(
    ("host", "block"),
    [
        ("8.8.4.4", "8.8.4.0/24"),
        ("2606:4700:1:2::3", "2606:4700:1::/48"),
        ("::ffff:8.8.4.4", "8.8.4.0/24"),
        ("127.0.0.1", ""),
        ("10.1.2.3", ""),
        ("fe80::1", ""),
        ("", ""),
    ],
)
def test_only_an_address_of_the_internet_is_in_a_block_of_one_owner(host: str, block: str) -> None:
    assert addresses.public_block_of(host) == block


@pytest.mark.parametrize(
    ("told", "sources", "places", "claimed"),
    [
        (["/ip4/8.8.8.8/tcp/1", "/ip4/9.9.9.9/tcp/1"], ["9.9.9.9"], ["/ip4/9.9.9.9/tcp/1"], False),
        (["/ip6/2606:4700:0::1/tcp/1"], ["2606:4700::1"], ["/ip6/2606:4700:0::1/tcp/1"], False),
        (["/dns4/a.example/tcp/1"], ["9.9.9.9"], ["/ip4/9.9.9.9/tcp/1"], False),
        (["/dns/a.example/tcp/1"], ["2606:4700::1"], ["/ip6/2606:4700::1/tcp/1"], False),
        (["/dns6/a.example/tcp/1"], ["9.9.9.9"], [], False),
        (["/dns4/a.example/tcp/0"], ["9.9.9.9"], [], False),
        (["/ip4/8.8.8.8/tcp/1"], ["9.9.9.9"], ["/ip4/8.8.8.8/tcp/1"], True),
        (
            [f"/ip4/8.8.8.{number}/tcp/1" for number in range(1, 9)],
            ["9.9.9.9"],
            ["/ip4/8.8.8.1/tcp/1", "/ip4/8.8.8.2/tcp/1"],
            True,
        ),
        (["/ip6/2606:4700::1/tcp/1"], ["9.9.9.9"], ["/ip6/2606:4700::1/tcp/1"], True),
        (["/ip4/10.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/1"], ["9.9.9.9"], [], False),
        (["/ip4/127.0.0.1/tcp/1", "/ip4/9.9.9.9/tcp/1"], ["10.0.0.2"], ["/ip4/9.9.9.9/tcp/1"], True),
        (["/ip4/8.8.8.8/tcp/1"], [], [], False),
        (["/ip4/0.0.0.0/tcp/1", "nonsense", ""], ["9.9.9.9"], [], False),
    ],
)
def test_where_a_connected_peer_can_be_dialled(
    told: list[str], sources: list[str], places: list[str], *, claimed: bool
) -> None:
    """Where it is connected from, a name standing for that; else what it claims, unless that is more private."""
    assert addresses.places_of(told, sources) == (tuple(places), claimed)


@pytest.mark.parametrize(
    ("remote", "source"),
    [("9.9.9.9", "9.9.9.9"), ("::ffff:9.9.9.9", "9.9.9.9"), ("FE80::1%eth0", "fe80::1"), ("", "")],
)
def test_a_peer_is_connected_from_one_address_however_it_is_written(remote: str, source: str) -> None:
    assert addresses.canonical(remote) == source


@pytest.mark.parametrize(
    ("bound", "ports"),
    [
        (
            ("/ip4/127.0.0.1/tcp/1", "/ip4/0.0.0.0/tcp/2", "/ip6/::1/tcp/3", "/ip6/fe80::1/tcp/4", "/ip6/::/tcp/5"),
            (2, 5),
        ),
        (("/ip4/127.0.0.1/tcp/1",), (0, 0)),
    ],
)
def test_the_listening_port_is_one_that_other_machines_reach(bound: tuple[str, ...], ports: tuple[int, int]) -> None:
    assert (addresses.listening_port(bound, 4), addresses.listening_port(bound, 6)) == ports
