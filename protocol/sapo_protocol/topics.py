"""The gossip topics of a swarm (spec: topics and validation). What is on another topic is never parsed."""

from enum import StrEnum

from .errors import Layer, RemoteError
from .manifest import Manifest


class Topic(StrEnum):
    """What a topic carries."""

    ROLLOUTS = "rollouts"
    EVIDENCE = "evidence"


def rollouts_topic(manifest: Manifest, shard: int = 0) -> str:
    """The topic of one shard of rollouts; TOP-1."""
    return f"{_prefix(manifest)}/{Topic.ROLLOUTS}/{shard}"


def evidence_topic(manifest: Manifest) -> str:
    """The topic of evidence; TOP-2."""
    return f"{_prefix(manifest)}/{Topic.EVIDENCE}"


def pull_protocol(manifest: Manifest) -> str:
    """The protocol of the streams on which peers of a swarm are asked for what gossip did not bring (spec: pull)."""
    return f"{_prefix(manifest)}/pull"


def carried_by(topic: str, manifest: Manifest) -> Topic:
    """What a topic of this swarm carries. Raises RemoteError (topic) for any other name."""
    if topic == evidence_topic(manifest):
        return Topic.EVIDENCE
    if topic in (rollouts_topic(manifest, shard) for shard in range(manifest.shards)):
        return Topic.ROLLOUTS
    raise RemoteError(Layer.TOPIC, f"{topic!r} is no topic of swarm {manifest.name!r}")


def _prefix(manifest: Manifest) -> str:
    return f"/sapo/{manifest.version}/{manifest.network_id.hex()}"
