"""A node and a peer written in JavaScript from the text of the standard alone exchange over libp2p on loopback."""

import time
from dataclasses import replace

import pytest

from javascript import JavaScriptPeer
from processes import RunningProcess
from sapo_node.observability.history import TAKEN
from sapo_protocol import load_manifest, render_manifest


@pytest.fixture(scope="module")
def swarm(tmp_path_factory):
    """A node in a swarm of tasks that both can build, on several topics, and how a peer finds it."""
    folder = tmp_path_factory.mktemp("swarm")
    manifest = load_manifest("interop").restarted(
        name="live", genesis=int(time.time()), epoch_seconds=600, max_rounds=10_000
    )
    manifest = replace(manifest, shards=3)
    (folder / "live.toml").write_text(render_manifest(manifest))
    (folder / "live.cbor").write_bytes(manifest.encoded)
    # The peer answers without work, from which a node with filters learns nothing.
    (folder / "node.toml").write_text("filters = []\neval_every = 0\n")
    with RunningProcess(folder / "node", "--swarm", folder / "live.toml", "--config", folder / "node.toml") as node:
        address = node.until_event("started")["addresses"][0]
        yield node, ("--manifest", folder / "live.cbor", "--dial", address)


@pytest.fixture
def exchange(swarm, tmp_path):
    """That node and a JavaScript peer that publishes."""
    node, way_in = swarm
    with JavaScriptPeer(tmp_path / "peer", *way_in, "--rounds", 100, "--interval", 500) as peer:
        yield node, peer


@pytest.mark.slow
def test_a_javascript_peer_pulls_what_was_published_before_it_came(swarm, tmp_path):
    node, way_in = swarm
    node.until(lambda event: event["event"] == "round" and event["step"] == 3)
    with JavaScriptPeer(tmp_path / "peer", *way_in, "--pull") as peer:
        (pulled,) = peer.until("pulled")
        verified_or_unusable = peer.events("message")
    assert pulled["listed"] >= 3
    accepted = [each for each in verified_or_unusable if each["verdict"] == "accept"]
    assert {0, 1, 2} <= {each["counter"] for each in accepted}
    assert {each["verification"] for each in accepted} == {"accept"}
    # What the node published meanwhile may have come by gossip, too.
    assert {each["verdict"] for each in verified_or_unusable} <= {"accept", "replay"}


def test_a_node_and_a_javascript_peer_verify_each_others_groups_and_the_node_trains_on_them(exchange):
    node, peer = exchange
    name = peer.until("connected")[0]["self"]

    trained = node.until(lambda event: event["event"] == "round" and event["external"] > 0)
    assert [each["peer"] for each in trained["peers"]] == [name]
    assert trained["peers"][0]["trained_groups"] > 0
    refused = {what: count for what, count in trained["counts"].items() if what not in TAKEN}
    assert not any(refused.values())

    verified_or_unusable = peer.until("message", 10)
    assert {(each["verdict"], each.get("verification")) for each in verified_or_unusable} == {("accept", "accept")}
    assert {(each["verdict"], len(each["levels"])) for each in verified_or_unusable} == {("accept", 4)}
