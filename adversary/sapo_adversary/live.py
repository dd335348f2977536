"""One polluter over real libp2p, for `sapo-node demo`: it joins the nodes it is told to, on loopback, until it is
ended.
"""

import json
import random
import time
from functools import partial
from pathlib import Path

import click
import trio

from sapo_adversary.attacks.polluter import Polluter
from sapo_node.keyfile import Identity, create_key
from sapo_node.net.interface import Channel, NetworkNotice, Verdict
from sapo_node.net.libp2p import Libp2pNetwork, NetworkSettings
from sapo_node.tasks import build_task, task_digest
from sapo_protocol import Assignment, Manifest, epoch_at, load_manifest, rollouts_topic


def digest(assignment: Assignment) -> bytes:
    """The digest an honest header would carry."""
    task = build_task(assignment.spec.dataset, assignment.spec.config, assignment.seed)
    return task_digest(task.question, task.answer)


async def pollute(manifest: Manifest, identity: Identity, bootstrap: tuple[str, ...], interval: float) -> None:
    """Send a message every `interval` seconds until cancelled."""
    polluter = Polluter(manifest, identity.public_key, identity.sign, digest, random.Random(0))  # noqa: S311

    async def handle(_sender: str, data: bytes) -> Verdict:
        polluter.hear(data)
        return Verdict.ACCEPT

    def ignore(_notice: NetworkNotice) -> None:
        pass

    topic = rollouts_topic(manifest)
    settings = NetworkSettings(
        seed=identity.seed,
        network_id=manifest.network_id.hex(),
        listen=("/ip4/127.0.0.1/tcp/0",),
        bootstrap=bootstrap,
        discover=False,
    )
    channels = {topic: Channel(handle, manifest.max_message_bytes)}
    network = Libp2pNetwork(settings, identity.peer_id, channels, admit=lambda _: True, notify=ignore)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        click.echo(json.dumps({"event": "started", "peer_id": identity.peer_id}))
        epoch, counter = 0, 0
        while True:
            now = epoch_at(manifest, time.time())
            epoch, counter = now, counter + 1 if now == epoch else 0
            if counter < manifest.max_rounds:
                await network.publish(topic, polluter.message(epoch, counter))
            await trio.sleep(interval)


@click.command()
@click.option("--swarm", required=True)
@click.option("--key", required=True, type=click.Path(path_type=Path))
@click.option("--bootstrap", multiple=True, required=True)
@click.option("--interval", type=float, default=2.0)
def main(swarm: str, key: Path, bootstrap: tuple[str, ...], interval: float) -> None:
    """Pollute a swarm on this machine."""
    if any(not address.startswith("/ip4/127.") for address in bootstrap):
        raise click.UsageError("attacks go to loopback only: --bootstrap must begin with /ip4/127.")
    trio.run(partial(pollute, load_manifest(swarm), create_key(key), bootstrap, interval))


if __name__ == "__main__":
    main()
