"""A topic belongs to one swarm, one major version and one kind of message."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapo_protocol import (
    Layer,
    RemoteError,
    Topic,
    carried_by,
    evidence_topic,
    require_shard,
    rollouts_topic,
    rollouts_topics,
    shard_of,
    topic_of,
)


def test_each_topic_of_a_swarm_carries_its_kind(manifest):
    assert carried_by(rollouts_topic(manifest, 0), manifest) is Topic.ROLLOUTS
    assert carried_by(evidence_topic(manifest), manifest) is Topic.EVIDENCE


def test_another_swarms_topic_is_none_of_ours(manifest):
    with pytest.raises(RemoteError) as refusal:
        carried_by(rollouts_topic(replace(manifest, genesis=1), 0), manifest)
    assert refusal.value.layer is Layer.TOPIC


def test_a_topic_of_another_major_version_is_none_of_ours(manifest):
    with pytest.raises(RemoteError):
        carried_by(rollouts_topic(manifest, 0).replace("/sapo/2/", "/sapo/1/"), manifest)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(issuer=st.binary(min_size=32, max_size=32), epoch=st.integers(0, 2**53), shards=st.integers(1, 32))
def test_an_issuer_has_one_topic_in_an_epoch_and_every_other_is_refused(manifest, issuer, epoch, shards):
    swarm = replace(manifest, shards=shards)
    own = shard_of(swarm, issuer, epoch)
    assert topic_of(swarm, issuer, epoch) == rollouts_topics(swarm)[own]
    require_shard(swarm, own, issuer, epoch)
    for shard in set(range(shards)) - {own}:
        with pytest.raises(RemoteError) as refusal:
            require_shard(swarm, shard, issuer, epoch)
        assert refusal.value.layer is Layer.TOPIC


def test_issuers_are_spread_evenly(manifest):
    swarm = replace(manifest, shards=4)
    counts = [0] * 4
    for number in range(4_000):
        counts[shard_of(swarm, number.to_bytes(32), 5)] += 1
    assert all(900 < count < 1_100 for count in counts)
