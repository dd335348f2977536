"""A topic belongs to one swarm, one major version and one kind of message."""

from dataclasses import replace

import pytest

from sapo_protocol import Layer, RemoteError, Topic, carried_by, evidence_topic, rollouts_topic


def test_each_topic_of_a_swarm_carries_its_kind(manifest):
    assert carried_by(rollouts_topic(manifest), manifest) is Topic.ROLLOUTS
    assert carried_by(evidence_topic(manifest), manifest) is Topic.EVIDENCE


def test_another_swarms_topic_is_none_of_ours(manifest):
    with pytest.raises(RemoteError) as refusal:
        carried_by(rollouts_topic(replace(manifest, genesis=1)), manifest)
    assert refusal.value.layer is Layer.TOPIC


def test_a_topic_of_another_major_version_is_none_of_ours(manifest):
    with pytest.raises(RemoteError):
        carried_by(rollouts_topic(manifest).replace("/sapo/1/", "/sapo/2/"), manifest)
