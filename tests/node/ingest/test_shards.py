"""Which shards a node follows: all of them until they are too much, then those where its acquaintances publish."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sapo_node.app.state import SCHEMA
from sapo_node.ingest.shards import MEASURED_SECONDS, MESSAGES_PER_SECOND, ShardSubscriptions
from sapo_node.storage.database import Database
from sapo_node.trust.ledger import Ledger
from sapo_protocol import load_manifest, peer_id, shard_of

MANIFEST = replace(load_manifest("starter"), shards=8)
KEYS = [bytes([number]) * 32 for number in range(40)]
WINDOW = MEASURED_SECONDS
BEARABLE = MESSAGES_PER_SECOND * WINDOW
"""Messages in one window."""


def subscriptions(*friends):
    rng = random.Random(0)
    ledger = Ledger(Database(None, SCHEMA), trusted=[peer_id(key) for key in friends])
    return ShardSubscriptions(MANIFEST, ledger, rng)


def evenly(messages, shards=8):
    """So many messages, as many of each shard."""
    return dict.fromkeys(range(shards), messages / shards)


def test_a_node_follows_all_shards_while_they_are_bearable():
    ear = subscriptions()
    heard = 0
    for epoch in range(5):
        heard += BEARABLE
        assert len(ear.at((epoch + 1) * WINDOW, epoch, evenly(heard))) == 8


def test_twice_what_is_bearable_leaves_half_of_them_at_once():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    assert len(ear.at(WINDOW, 5, evenly(2 * BEARABLE))) == 4


def test_a_short_while_says_nothing():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    assert len(ear.at(WINDOW - 1, 5, evenly(100 * BEARABLE))) == 8


def test_one_shard_is_followed_however_much_it_brings():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    assert len(ear.at(WINDOW, 5, evenly(1_000 * BEARABLE))) == 1


def test_what_is_left_is_measured_anew():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    ear.at(WINDOW, 5, evenly(2 * BEARABLE))
    assert len(ear.at(2 * WINDOW, 5, evenly(3 * BEARABLE))) == 4


def test_more_are_followed_when_it_is_quieter_but_only_from_the_next_epoch_on():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    ear.at(WINDOW, 5, evenly(4 * BEARABLE))
    assert len(ear.at(2 * WINDOW, 5, evenly(4 * BEARABLE))) == 2
    assert len(ear.at(2 * WINDOW, 6, evenly(4 * BEARABLE))) == 8


def test_whom_a_node_knows_it_hears_in_every_epoch():
    friend = KEYS[7]
    ear = subscriptions(friend)
    ear.at(0.0, 0, {})
    heard = Counter()
    for epoch in range(1, 20):
        heard.update(dict.fromkeys(ear.shards, BEARABLE))
        assert shard_of(MANIFEST, friend, epoch) in ear.at(epoch * WINDOW, epoch, heard)
        assert len(ear.shards) == 1


def test_where_most_acquaintances_publish_comes_first():
    ear = subscriptions(*KEYS)
    ear.at(0.0, 5, {})
    followed = ear.at(WINDOW, 5, evenly(4 * BEARABLE))
    count = {shard: sum(shard_of(MANIFEST, key, 5) == shard for key in KEYS) for shard in range(8)}
    assert min(count[shard] for shard in followed) >= max(count[shard] for shard in count.keys() - followed)


CROWDED, CROWD = 3, 20 * BEARABLE
"""A shard on which an attacker has thousands of keys publish, and what they send in a window."""


def crowded(windows):
    """What a quiet swarm and the attacker have sent in so many windows."""
    return {shard: windows * (BEARABLE / 10 + CROWD * (shard == CROWDED)) for shard in range(8)}


def test_keys_that_crowd_a_shard_have_a_node_drop_that_shard_and_no_other():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    assert ear.at(WINDOW, 5, crowded(1)) == frozenset(range(8)) - {CROWDED}


def test_after_an_epoch_with_a_crowded_shard_a_node_follows_all_shards_again():
    ear = subscriptions()
    ear.at(0.0, 5, {})
    assert len(ear.at(WINDOW, 6, crowded(1))) == 8


def test_where_two_shards_bring_as_much_the_one_with_the_healthy_peer_is_kept():
    friend = next(key for key in KEYS if shard_of(MANIFEST, key, 5) == 0)
    ear = subscriptions(friend)
    ear.at(0.0, 5, {})
    assert ear.at(WINDOW, 5, {0: BEARABLE, 1: BEARABLE}) == frozenset(range(8)) - {1}


def test_who_knows_nobody_follows_each_shard_at_some_time():
    ear = subscriptions()
    ear.at(0.0, 0, {})
    followed = {ear.at(epoch * WINDOW, epoch, evenly(8 * BEARABLE * epoch)) for epoch in range(1, 30)}
    assert frozenset.union(*followed) == frozenset(range(8))


@given(
    st.sampled_from([1, 3, 32]),
    st.lists(st.tuples(st.floats(0, 100), st.booleans(), st.integers(0, 100_000)), max_size=30),
)
def test_there_is_always_a_shard_that_is_followed_and_all_of_them_are_the_swarms(shards, steps):
    rng = random.Random(0)
    ear = ShardSubscriptions(replace(MANIFEST, shards=shards), Ledger(Database(None, SCHEMA)), rng)
    now, epoch, heard = 0.0, 0, 0
    for seconds, turns, messages in steps:
        now, epoch, heard = now + seconds, epoch + turns, heard + messages
        followed = ear.at(now, epoch, evenly(heard, shards))
        assert followed
        assert followed <= frozenset(range(shards))
