"""Attacks on the network: real libp2p on loopback, attackers in a process of their own, on real time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

from sapo_adversary.attacks.gossip.peer import LinkLost, Peer, running
from sapo_adversary.scenarios.play import play
from sapo_adversary.scenarios.scenario import SHARE, load_scenario, scenario_names
from sapo_adversary.simulator.engine import ThisMachine
from sapo_adversary.simulator.libp2p.realtime import simulate_realtime
from sapo_adversary.simulator.libp2p.watch import Seen
from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec, Simulation
from sapo_adversary.simulator.swarm import simulate
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.addresses import CLAIMED
from sapo_node.net.interface import Channel
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.storage.keys import create_key
from sapo_protocol import LocalError

NETWORK = "ab" * 32
TOPIC = f"/sapo/2/{NETWORK}/rollouts/0"
SHORT = Simulation(
    "short",
    (NodeSpec(count=2, round_seconds=2.0),),
    seconds=4,
    learner="bandit",
    audited=True,
    network="libp2p",
    attackers=(AttackerSpec("false-addresses", 1),),
)


async def accept(_sender: str, _data: bytes) -> Verdict:
    return Verdict.ACCEPT


async def wait_until(condition: Any) -> None:
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await trio.sleep(0.02)


@pytest.fixture
async def node(nursery: trio.Nursery, tmp_path: Path) -> Libp2pNetwork:
    identity = create_key(tmp_path / "key.pem")
    settings = NetworkSettings(identity.seed, NETWORK, listen=("/ip4/127.0.0.1/tcp/0",), discover=False)
    network = Libp2pNetwork(
        settings, identity.peer_id, {TOPIC: Channel(accept, 1000)}, admit=lambda _: True, notify=lambda _: None
    )
    await nursery.start(network.run)
    return network


async def ignore(_sender: str, _rpc: Any) -> None: ...


async def test_a_host_of_the_kit_is_a_peer_like_any_other(node: Libp2pNetwork) -> None:
    async with running(bytes([1]) * 32, ("127.0.0.7", 0), ignore) as mallory:
        link = await mallory.dial(node.addresses[0])
        await link.subscribe(TOPIC)
        await wait_until(node.peers)
        assert [peer.peer_id for peer in node.peers()] == [str(mallory.host.get_id())]


async def test_it_hears_what_a_node_publishes_and_who_wrote_it(node: Libp2pNetwork) -> None:
    heard: list[tuple[str, bytes]] = []

    async def hear(sender: str, rpc: Any) -> None:
        assert sender == node.peer_id
        heard.extend((Peer.author(message), message.data) for message in rpc.publish)

    async with running(bytes([1]) * 32, ("127.0.0.7", 0), hear) as mallory:
        await (await mallory.dial(node.addresses[0])).subscribe(TOPIC)
        await wait_until(node.peers)
        await node.publish(TOPIC, b"to all")
        await wait_until(lambda: heard)
    assert heard == [(node.peer_id, b"to all")]


async def test_it_learns_that_a_link_is_lost(node: Libp2pNetwork) -> None:
    async with running(bytes([1]) * 32, ("127.0.0.7", 0), ignore) as mallory:
        link = await mallory.dial(node.addresses[0])
        await link.write(b"\x02\xff\xff")  # no RPC: it costs the connection
        await wait_until(lambda: not link.open)
        with pytest.raises(LinkLost):
            await link.graft(TOPIC)


async def test_a_record_that_names_other_places_sends_nobody_there(node: Libp2pNetwork) -> None:
    async with running(bytes([1]) * 32, ("127.0.0.7", 0), ignore) as mallory:
        here = mallory.address.partition("/p2p/")[0]
        link = await mallory.dial(node.addresses[0])
        await link.say_where(["/ip4/127.0.0.9/tcp/4001", here])
        await link.subscribe(TOPIC)
        await wait_until(lambda: [peer.addresses for peer in node.peers()] == [(here,)])


def dials(record: Any) -> tuple[int, int]:
    """Of all honest nodes: all, and those to nowhere."""
    seen = [node["gossip"] for node in record["nodes"]]
    return sum(each["dials"] for each in seen), sum(each["strange_dials"] for each in seen)


def test_nodes_find_each_other_and_dial_what_an_attacker_names_once() -> None:
    record = simulate_realtime(SHORT)
    assert dials(record)[0] > 0
    assert dials(record)[1] <= CLAIMED * len(record["nodes"])
    assert {len(node["rounds"]["reward"]) for node in record["nodes"]} == {2}


@pytest.mark.slow
def test_without_the_defence_they_dial_nowhere_most_of_the_time() -> None:
    record = simulate_realtime(replace(SHORT, without=("records where they are",)))
    assert dials(record)[1] > 0.5 * dials(record)[0]


def test_a_node_is_owed_only_what_was_sent_while_it_ran() -> None:
    seen = Seen(up=[(0.0, 10.0), (15.0, 30.0)])
    assert seen.covers(1, 9)
    assert seen.covers(15, 30)
    assert not seen.covers(9, 16)


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(LocalError, match="learner = 'bandit'"):
        simulate_realtime(replace(SHORT, learner="model"))
    with pytest.raises(LocalError, match="no attack 'sybil' on libp2p"):
        simulate_realtime(replace(SHORT, attackers=(AttackerSpec("sybil"),)))
    with pytest.raises(LocalError, match="options of false-addresses"):
        simulate_realtime(replace(SHORT, attackers=(AttackerSpec("false-addresses", options={"nonsense": 1}),)))
    with pytest.raises(LocalError, match="no attack 'false-addresses'"):
        simulate(replace(SHORT, network="memory"))


REALTIME = [name for name in scenario_names() if load_scenario(name).realtime]


@pytest.mark.parametrize("name", REALTIME)
def test_who_is_alone_needs_no_network(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.simulation("alone").network == "memory"
    assert scenario.simulation("control").network == "libp2p"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REALTIME)
def test_an_undefended_network_is_harmed_and_a_defended_one_is_not(name: str, tmp_path: Path) -> None:
    [outcome] = play(
        [(load_scenario(name), SHARE)],
        [1],
        tmp_path,
        policies=tmp_path,
        engine=ThisMachine(jobs=1),
        console=Console(quiet=True),
    )
    assert outcome.harmful or not outcome.scenario.harm, [each for each in outcome.verdicts() if not each.met]
    assert outcome.held, [each for each in outcome.verdicts() if not each.met]
