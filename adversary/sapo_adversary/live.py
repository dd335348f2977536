"""One attacker over real libp2p, for `sapo-node demo` and the soak test.

It joins the nodes that `--bootstrap` names, on loopback only, and attacks until it is killed:

    python -m sapo_adversary.live --attack false-claim --swarm starter --key KEY --keys 64 --bootstrap MULTIADDR

With `--keys` it is a band: one libp2p host, and as many signing keys, which act in turn.
"""

import hashlib
import json
import random
import time
from functools import partial
from itertools import cycle
from pathlib import Path

import click
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.kit import Attack, Key, Kit
from sapo_adversary.scoring import SharedScorer
from sapo_node.cli.commands.options import PATH, Number
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel, NetworkNotice
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.storage.keys import Identity, create_key
from sapo_protocol import Manifest, epoch_at, evidence_topic, load_manifest, rollouts_topics, topic_of


def band_of(identity: Identity, count: int) -> list[Key]:
    """Make `count` signing keys. A single key is the key of the host. Several keys are derived from it, and the key of
    the host then signs no message: a node that bans a derived key keeps the link to the host.
    """
    if count == 1:
        return [Key(identity.public_key, identity.sign)]
    seeds = [hashlib.sha256(identity.seed + number.to_bytes(4, "big")).digest() for number in range(count)]
    members = [Identity(Ed25519PrivateKey.from_private_bytes(seed)) for seed in seeds]
    return [Key(member.public_key, member.sign) for member in members]


async def play(
    kind: type[Attack],
    manifest: Manifest,
    identity: Identity,
    bootstrap: tuple[str, ...],
    *,
    keys: int,
    interval: float,
) -> None:
    """Let one key act every `interval` seconds, each in turn, until cancelled."""
    band = band_of(identity, keys)
    attack = kind(Kit(manifest, band, SharedScorer().solve, random.Random(0)))  # noqa: S311

    async def handle(_sender: str, data: bytes) -> Verdict:
        attack.hear(data)
        return Verdict.ACCEPT

    def ignore(_notice: NetworkNotice) -> None:
        pass

    settings = NetworkSettings(
        seed=identity.seed,
        network_id=manifest.network_id.hex(),
        listen=("/ip4/127.0.0.1/tcp/0",),
        bootstrap=bootstrap,
        discover=False,
    )
    topics = (*rollouts_topics(manifest), evidence_topic(manifest))
    channels = dict.fromkeys(topics, Channel(handle, manifest.max_message_bytes))
    network = Libp2pNetwork(settings, identity.peer_id, channels, admit=lambda _: True, notify=ignore)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        click.echo(json.dumps({"event": "started", "peers": [key.peer for key in band]}))
        for key in cycle(band):
            epoch = epoch_at(manifest, time.time())
            for packet in attack.act(key, epoch):
                await network.publish(topic_of(manifest, key.issuer, epoch), packet.data)
            await trio.sleep(interval)


@click.command()
@click.option("--attack", type=click.Choice(list(ATTACKS)), default="false-claim")
@click.option("--swarm", required=True)
@click.option("--key", required=True, type=PATH)
@click.option("--keys", type=click.IntRange(1), default=1)
@click.option("--bootstrap", multiple=True, required=True)
@click.option("--interval", type=Number(0.01), default=2.0)
def main(*, attack: str, swarm: str, key: Path, keys: int, bootstrap: tuple[str, ...], interval: float) -> None:
    """Attack a swarm on this machine."""
    if any(not address.startswith("/ip4/127.") for address in bootstrap):
        raise click.UsageError("attacks go to loopback only: --bootstrap must begin with /ip4/127.")
    attacker = partial(play, ATTACKS[attack], load_manifest(swarm), create_key(key), bootstrap)
    trio.run(partial(attacker, keys=keys, interval=interval))


if __name__ == "__main__":
    main()
