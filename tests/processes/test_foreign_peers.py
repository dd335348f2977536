"""A real node beside peers of a later minor version, of another major version, and one that equivocates."""

import hashlib
import shutil
import signal
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from processes import PATIENCE, RunningProcess, sapo_node
from sapo_node.app.state import StateFolder, read_database
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.observability.overview import overview
from sapo_node.storage.keys import Identity
from sapo_node.tasks import build_task, task_digest
from sapo_protocol import (
    ROLLOUT_DOMAIN,
    Manifest,
    assign,
    encode_message,
    load_manifest,
    render_manifest,
    rollouts_topic,
    seal,
)
from sapo_protocol.cbor import encode

MIXED = (1, 0) * 4
FROM_LATER = {"example.org/entropy": [1, {"deep": True}], "since-2.1": "new"}


@pytest.fixture
def swarm():
    return load_manifest("interop").restarted(
        name="live", genesis=int(time.time()), epoch_seconds=600, max_rounds=10_000
    )


@pytest.fixture
def swarm_file(swarm, tmp_path):
    path = tmp_path / "live.toml"
    path.write_text(render_manifest(swarm))
    return path


@dataclass
class Peer:
    """Speaks libp2p and whatever else it is told to."""

    swarm: Manifest
    topic: str
    domain: str = ROLLOUT_DOMAIN
    number: int = 77

    def __post_init__(self) -> None:
        self.identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes([self.number]) * 32))
        self.heard: list[bytes] = []

    def message(self, counter, *, x=None, text=""):
        """A round of one group, half of it right and all of it claimed truly."""
        extension = {"x": x} if x else {}
        task = assign(self.swarm, self.identity.public_key, 0, counter, 0)
        item = build_task(task.spec.dataset, task.spec.config, task.seed)
        answers = [item.answer if right else "no" for right in MIXED]
        completions = [{"finish": "stop", "turns": [f"{text}<answer>{answer}</answer>"]} for answer in answers]
        body = encode({"completions": completions, **extension})
        group = {
            "body": hashlib.sha256(body).digest(),
            "claims": bytes(MIXED),
            "digest": task_digest(item.prompt, item.answer),
        }
        payload = encode({"epoch": 0, "counter": counter, "groups": [group], **extension})
        signed = seal(
            payload,
            issuer=self.identity.public_key,
            sign=self.identity.sign,
            network_id=self.swarm.network_id,
            domain=self.domain,
        )
        return encode_message(signed, (body,))

    async def speak(self, address, messages, *, task_status=trio.TASK_STATUS_IGNORED):
        """Dial a node and publish the messages until cancelled, ten a second, again and again."""

        async def hear(_sender, data):
            self.heard.append(data)
            return Verdict.ACCEPT

        settings = NetworkSettings(
            seed=self.identity.seed,
            network_id=self.swarm.network_id.hex(),
            listen=("/ip4/127.0.0.1/tcp/0",),
            bootstrap=(address,),
            discover=False,
        )
        network = Libp2pNetwork(
            settings,
            self.identity.peer_id,
            {self.topic: Channel(hear, 1_000_000)},
            admit=lambda _: True,
            notify=lambda _: None,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            task_status.started()
            while True:
                for message in messages:
                    await network.publish(self.topic, message)
                    await trio.sleep(0.1)


async def until(node, condition):
    return await trio.to_thread.run_sync(partial(node.until, condition))


async def until_known(node, condition):
    """What a relay knows, as its database tells, once `condition` holds for it: it prints nothing as it works."""

    def wait():
        (database,) = (node.folder / "state").rglob("node.sqlite")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with closing(read_database(StateFolder(database.parent))) as opened:
                if condition(known := overview(opened)):
                    return known
            time.sleep(0.2)
        raise AssertionError(f"not within {PATIENCE} s; the last: {known}")

    return await trio.to_thread.run_sync(wait)


async def started(node):
    return (await until(node, lambda event: event["event"] == "started"))["addresses"][0]


@pytest.mark.slow
async def test_a_peer_of_a_later_minor_version_is_understood_and_trained_on(tmp_path, swarm, swarm_file, nursery):
    peer = Peer(swarm, rollouts_topic(swarm, 0))
    messages = [peer.message(counter, x=FROM_LATER) for counter in range(200)]
    # The peer answers without work. Whether filters let that teach hangs on the key, and so the tasks, of the node.
    (tmp_path / "node.toml").write_text("filters = []\nexternal = 4\neval_every = 0\n")
    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--config", tmp_path / "node.toml") as node:
        nursery.start_soon(peer.speak, await started(node), messages)
        event = await until(node, lambda event: event["event"] == "round" and event["external"] > 0)
        counts = {name for name, count in event["counts"].items() if count}
        assert counts <= {"accepted", "verified groups", "duplicate"}
        assert peer.heard


async def test_a_peer_of_another_major_version_is_told_apart_by_its_topic_and_nothing_of_it_is_read(
    tmp_path, swarm, swarm_file, nursery
):
    peer = Peer(swarm, f"/sapo/3/{'ab' * 32}/rollouts/0", domain="sapo/rollout/3")
    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--no-train") as node:
        nursery.start_soon(peer.speak, await started(node), [peer.message(0)])
        await until(node, lambda event: event["event"] == "notice" and "another swarm" in event["text"])
        await trio.sleep(1)  # ten messages
        node.process.terminate()
        event = await until(node, lambda event: event["event"] == "stopped")
        assert not any(event["counts"].values())
        assert not peer.heard


async def test_what_another_major_version_signs_is_refused_by_its_signature(tmp_path, swarm, swarm_file, nursery):
    peer = Peer(swarm, rollouts_topic(swarm, 0), domain="sapo/rollout/3")
    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--no-train") as node:
        nursery.start_soon(peer.speak, await started(node), [peer.message(0)])
        known = await until_known(node, lambda known: any(known.counts.values()))
        assert {name for name, count in known.counts.items() if count} == {"signature"}


@pytest.mark.slow
async def test_a_node_whose_operator_names_no_peer_dials_and_prints_those_beside_its_manifest(
    tmp_path, swarm, swarm_file
):
    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--no-train", "--network", "manual") as met:
        address = await started(met)
        hinted = tmp_path / "hinted.toml"
        hinted.write_text(render_manifest(replace(swarm, bootstrap=(address,))))
        with RunningProcess(tmp_path / "b", "--swarm", hinted, "--no-train", "--network", "manual") as node:
            await until(node, lambda event: event["event"] == "notice" and f"names: {address}" in event["text"])
            await until(node, lambda event: event["event"] == "notice" and "connected to" in event["text"])


@pytest.mark.slow
async def test_an_equivocator_is_banned_by_a_node_that_only_saw_the_evidence(tmp_path, swarm, swarm_file, nursery):
    peer = Peer(swarm, rollouts_topic(swarm, 0))
    name = peer.identity.peer_id

    def bans(known):
        return any(each.peer == name and each.state == "banned" for each in known.peers)

    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--no-train") as met:
        address = await started(met)
        with RunningProcess(tmp_path / "b", "--swarm", swarm_file, "--no-train", "--bootstrap", address) as other:
            await until(met, lambda event: event["event"] == "notice" and "connected to" in event["text"])
            nursery.start_soon(peer.speak, address, [peer.message(0, text="one"), peer.message(0, text="two")])
            await until_known(met, bans)
            await until_known(other, bans)
            other.process.terminate()
            assert not (await until(other, lambda event: event["event"] == "stopped"))["counts"].get("equivocation")
            where = ("--swarm", swarm_file, "--key", other.folder / "node.key", "--state", other.folder / "state")
            shown = sapo_node("peers", name, *where, "--evidence", "--output", tmp_path / "proof")
            assert shown.returncode == 0
            assert f"{name} signed two contents for its round 0 of epoch 0" in shown.stdout
            assert sapo_node("verify", "--evidence", tmp_path / "proof", "--swarm", swarm_file).stdout == shown.stdout
            assert sapo_node("verify", "--evidence", tmp_path / "proof").returncode == 1


@pytest.mark.slow
def test_a_backup_put_back_is_noticed_and_the_node_listens_first(tmp_path, swarm_file):
    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--local", 1) as node:
        assert node.until_round(2)["published"]
        node.process.send_signal(signal.SIGSTOP)
        shutil.copytree(tmp_path / "a" / "state", tmp_path / "backup")
        node.process.send_signal(signal.SIGCONT)
        assert node.until_round(2)["published"]
        node.process.terminate()
        node.until_event("stopped")
    shutil.copytree(tmp_path / "backup", tmp_path / "a" / "state", dirs_exist_ok=True)
    with RunningProcess(tmp_path / "a", "--swarm", swarm_file, "--local", 1, "--rounds", 2) as node:
        node.until(lambda event: event["event"] == "notice" and "in use elsewhere" in event["text"])
        assert node.until_round(1)["published"] is False
