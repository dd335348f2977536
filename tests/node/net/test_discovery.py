"""Bootstrap peers that a name stands for, over a name server on loopback."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import dns.message
import dns.resolver
import dns.rrset
import pytest
import trio
from dns import asyncresolver

from sapo_node.net import discovery
from sapo_node.net.addresses import seed_of
from sapo_node.net.discovery import NAMES, PEERS, peers_of
from sapo_node.net.interface import BootstrapReached, BootstrapUnreachable

if TYPE_CHECKING:
    from tests.node.net.conftest import Start, Until

ONE, TWO = (
    "12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT",
    "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5",
)
Records = dict[str, list[str]]


@pytest.fixture
async def records(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Records]:
    """What the name server knows: the TXT records by name."""
    found: Records = {}
    server = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
    await server.bind(("127.0.0.1", 0))

    async def serve() -> None:
        while True:
            data, peer = await server.recvfrom(4_096)
            question = dns.message.from_wire(data)
            answer = dns.message.make_response(question)
            name = question.question[0].name
            if texts := found.get(name.to_text(omit_final_dot=True)):
                quoted = [
                    " ".join(f'"{text[start : start + 200]}"' for start in range(0, len(text), 200)) for text in texts
                ]
                answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *quoted))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            await server.sendto(answer.to_wire(), peer)

    resolver = asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], server.getsockname()[1]
    monkeypatch.setattr(asyncresolver, "default_resolver", resolver)
    nursery.start_soon(serve)
    yield found
    nursery.cancel_scope.cancel()
    server.close()


def place(number: int, peer: str = ONE) -> str:
    return f"dnsaddr=/ip4/192.0.2.{number}/tcp/4001/p2p/{peer}"


async def test_a_name_stands_for_the_peers_in_its_records_and_in_those_of_further_names(records: Records) -> None:
    records["_dnsaddr.a.example"] = [
        place(1),
        "dnsaddr=/dnsaddr/gone",
        "dnsaddr=/dnsaddr/b.example",
        "v=spf1 -all",
        "dnsaddr=nonsense",
    ]
    records["_dnsaddr.b.example"] = [place(2, TWO), "dnsaddr=/dnsaddr/a.example"]
    expected = [(ONE, "/ip4/192.0.2.1/tcp/4001"), (TWO, "/ip4/192.0.2.2/tcp/4001")]
    assert await peers_of(("a.example", "")) == expected
    assert await peers_of(("a.example", TWO)) == expected[1:]


@pytest.mark.parametrize(
    "record", ["dnsaddr=/ip4/192.0.2.1/tcp/4001", "dnsaddr=/ip4/0.0.0.0/tcp/4001/p2p/" + ONE, "dnsaddr=/dnsaddr/none"]
)
async def test_a_name_that_stands_for_nobody_is_an_error(record: str, records: Records) -> None:
    records["_dnsaddr.a.example"] = [record]
    with pytest.raises(OSError, match=r"example|none"):
        await peers_of(("a.example", ""))


async def test_names_and_peers_of_a_name_are_bounded(records: Records) -> None:
    asked = [f"{number}.example" for number in range(3 * NAMES)]
    records["_dnsaddr.0.example"] = [f"dnsaddr=/dnsaddr/{name}" for name in asked]
    for name in asked[1:]:
        records[f"_dnsaddr.{name}"] = [place(number).replace("4001", name.split(".")[0]) for number in range(1, 11)]
    assert len(await peers_of(("0.example", ""))) == PEERS


async def test_a_bootstrap_may_be_a_name_of_peers_which_is_looked_up_until_it_has_some(
    start: "Start", until: "Until", records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "FIRST_PAUSE", 0.2)
    one = await start(1)
    two = await start(2, bootstrap=("/dnsaddr/swarm.example",))
    await until(lambda: two.noticed(BootstrapUnreachable))
    records["_dnsaddr.swarm.example"] = [f"dnsaddr={one.address}"]
    await until(lambda: two.sees(one))
    assert [each.address for each in two.noticed(BootstrapReached)] == ["/dnsaddr/swarm.example"]


def test_only_a_dnsaddr_is_a_name_of_peers() -> None:
    assert seed_of(f"/dnsaddr/a.example/p2p/{ONE}") == ("a.example", ONE)
    assert seed_of(f"/dns4/a.example/tcp/4001/p2p/{ONE}") is None
