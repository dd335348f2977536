"""Sends to peers and asks them, beside the rounds. All but `share` and `resend` run until they are cancelled."""

import logging
from collections.abc import Awaitable, Callable

import trio

from sapo_node.app.node import Node
from sapo_node.ingest.sync import Synchroniser
from sapo_node.net.address_book import Anchors, KnownPeers
from sapo_node.net.interface import ConnectedPeers, Network, NotRunningError
from sapo_protocol import Rollout, encode_message, evidence_topic, open_message, rollouts_topics, topic_of

logger = logging.getLogger(__name__)

Publish = Callable[[str, bytes], Awaitable[None]]
"""`publish(topic, message)`. Raises NotRunningError."""

_EVIDENCE_INTERVAL = 1.0
_SHARDS_INTERVAL = 1.0
_ADMISSION_INTERVAL = 1.0
_PEERS_INTERVAL = 10.0
"""Seconds between two iterations of the loops."""


async def share(node: Node, publish: Publish, message: bytes) -> None:
    """Publish a new message of this node, and store it for peers that request it."""
    rollout = open_message(message, node.swarm.manifest)
    node.message_store.put(rollout)
    await _publish_rollout(node, publish, rollout, message)


async def resend(node: Node, publish: Publish) -> None:
    """Publish this node's envelopes of this epoch and the last once more, unchanged."""
    for message in node.counters.recent():
        await _publish_rollout(node, publish, open_message(message, node.swarm.manifest), message)


async def pull(node: Node, network: ConnectedPeers) -> None:
    """Request messages that gossip did not deliver, bodies of drawn groups, and the addresses of other peers."""
    synchroniser = Synchroniser(
        node.swarm,
        network,
        ingest=node.ingest,
        ledger=node.ledger,
        counters=node.counters,
        subscriptions=node.subscriptions,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.fetcher.run, network)
        nursery.start_soon(synchroniser.run)


async def follow_shards(node: Node, network: Network) -> None:
    """Subscribe to as many shards as the node can process. Returns at once if the swarm has one shard."""
    topics = rollouts_topics(node.swarm.manifest)
    followed = node.subscriptions.shards
    while len(topics) > 1:
        now = node.swarm.clock.now()
        shards = node.subscriptions.at(now, node.counters.epoch(now), node.ingest.gossiped)
        if shards != followed:
            logger.info("subscribed to %d of %d shards: %s", len(shards), len(topics), sorted(shards))
            await network.follow([topics[shard] for shard in sorted(shards)])
            followed = shards
        await trio.sleep(_SHARDS_INTERVAL)


async def broadcast_evidence(node: Node, publish: Publish) -> None:
    """Publish the evidence against equivocators that this node has found."""
    topic = evidence_topic(node.swarm.manifest)
    while True:
        for evidence in node.equivocation_handler.take_announcements():
            await _send(publish, topic, evidence)
        await trio.sleep(_EVIDENCE_INTERVAL)


async def follow_decisions(node: Node) -> None:
    """Take over what the operator decides about peers by commands."""
    while True:
        node.refresh_decisions()
        await trio.sleep(_ADMISSION_INTERVAL)


async def disconnect_banned(node: Node, network: Network) -> None:
    """Close the connections of peers that were banned while they were connected."""
    while True:
        for peer in network.peers():
            if not node.admits(peer.peer_id):
                await network.disconnect(peer.peer_id, "it is banned")
        await trio.sleep(_ADMISSION_INTERVAL)


async def note_peers(anchors: Anchors, known: KnownPeers, network: Network) -> None:
    """Store which peers to dial after a restart."""
    while True:
        await trio.sleep(_PEERS_INTERVAL)
        anchors.note(network.peers())
        known.note(network.answered())


async def _publish_rollout(node: Node, publish: Publish, rollout: Rollout, message: bytes) -> None:
    """Publish a rollout. In a large swarm leave out the bodies of one that is longer than `inline_bytes`: peers request
    those that they draw (DUTY-12).
    """
    manifest = node.swarm.manifest
    whole = len(message) <= manifest.inline_bytes or node.ingest.is_small_swarm()
    node.publication.published(len(rollout.bodies), whole=whole)
    if not whole:
        message = encode_message(rollout.opened.envelope, (None,) * len(rollout.bodies))
    await _send(publish, topic_of(manifest, rollout.opened.issuer, rollout.header.epoch), message)


async def _send(publish: Publish, topic: str, message: bytes) -> None:
    """Publish a message. While the network restarts, drop the message with a warning: gossip may lose messages."""
    try:
        await publish(topic, message)
    except NotRunningError as error:
        logger.warning("a message was not sent: %s", error)
