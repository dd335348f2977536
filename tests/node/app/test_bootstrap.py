"""Where the addresses of bootstrap peers come from."""

from dataclasses import replace

import pytest

from sapo_node.app.bootstrap import bootstrap_of
from sapo_protocol import LocalError, Manifest, load_manifest

FIRST = "/ip4/192.0.2.7/tcp/4001/p2p/12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"


def hinting(*addresses: str) -> Manifest:
    return replace(load_manifest("starter"), bootstrap=addresses)


def test_a_node_whose_operator_names_no_peer_dials_those_of_the_manifest() -> None:
    assert bootstrap_of((), hinting(FIRST, "/dnsaddr/seed.example")) == (FIRST, "/dnsaddr/seed.example")


def test_a_node_whose_operator_names_a_peer_dials_no_peer_of_the_manifest() -> None:
    assert bootstrap_of(("/dnsaddr/mine.example",), hinting(FIRST)) == ("/dnsaddr/mine.example",)


def test_a_shipped_swarm_names_no_peers() -> None:
    assert bootstrap_of((), load_manifest("starter")) == ()


@pytest.mark.parametrize("address", ["nonsense", "/ip4/127.0.0.1/tcp/1", "", "/dnsaddr/a/tcp/1"])
def test_an_address_of_the_manifest_that_cannot_be_dialled_is_named(address: str) -> None:
    with pytest.raises(LocalError, match=f"manifest 'starter', bootstrap: .*'{address}'"):
        bootstrap_of((), hinting(FIRST, address))
