"""The gossip topics of a swarm (spec: topics and validation). A node subscribes to no other topic."""

import hashlib
from enum import StrEnum

from .cbor import encode
from .errors import Layer, RemoteError
from .manifest import Manifest

SHARD_DOMAIN = "sapo/shard/2"


class Topic(StrEnum):
    """The kind of messages of a topic."""

    ROLLOUTS = "rollouts"
    EVIDENCE = "evidence"


def rollouts_topic(manifest: Manifest, shard: int) -> str:
    """The topic of one shard of rollouts; TOP-1."""
    return f"{_prefix(manifest)}/{Topic.ROLLOUTS}/{shard}"


def rollouts_topics(manifest: Manifest) -> tuple[str, ...]:
    """The topics of all shards, by shard."""
    return tuple(rollouts_topic(manifest, shard) for shard in range(manifest.shards))


def shard_of(manifest: Manifest, issuer: bytes, epoch: int) -> int:
    """The shard on which `issuer` (32-byte public key) publishes in an epoch; TOP-3.

    The shard is drawn anew for each epoch. So no issuer stays on a topic with few subscribers, or floods one topic for
    long.
    """
    digest = hashlib.sha256(encode([SHARD_DOMAIN, manifest.network_id, issuer, epoch])).digest()
    return int.from_bytes(digest[:8], "big") % manifest.shards


def topic_of(manifest: Manifest, issuer: bytes, epoch: int) -> str:
    """The topic of an issuer's rollouts of an epoch."""
    return rollouts_topic(manifest, shard_of(manifest, issuer, epoch))


def require_shard(manifest: Manifest, shard: int, issuer: bytes, epoch: int) -> None:
    """Raise RemoteError (topic) for a rollout on a topic other than that of its issuer's shard; TOP-3."""
    if shard != shard_of(manifest, issuer, epoch):
        raise RemoteError(Layer.TOPIC, f"shard {shard} is not the shard of its issuer in epoch {epoch}")


def evidence_topic(manifest: Manifest) -> str:
    """The topic of evidence; TOP-2."""
    return f"{_prefix(manifest)}/{Topic.EVIDENCE}"


def pull_protocol(manifest: Manifest) -> str:
    """The libp2p protocol id of request/response streams (spec: pull)."""
    return f"{_prefix(manifest)}/pull"


def carried_by(topic: str, manifest: Manifest) -> Topic:
    """Return the kind of messages of a topic of this swarm. Raises RemoteError (topic) for any other name."""
    if topic == evidence_topic(manifest):
        return Topic.EVIDENCE
    if topic in rollouts_topics(manifest):
        return Topic.ROLLOUTS
    raise RemoteError(Layer.TOPIC, f"{topic!r} is not a topic of swarm {manifest.name!r}")


def _prefix(manifest: Manifest) -> str:
    return f"/sapo/{manifest.version}/{manifest.network_id.hex()}"
