"""What publishers of a load test send."""

import random

import pytest

from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.research.load.keys import identity_of
from sapo_adversary.research.load.messages import BAD, Messages
from sapo_adversary.scoring import SharedScorer
from sapo_protocol import Layer, RemoteError, decode_body, load_manifest, open_message

MANIFEST = load_manifest("starter")
EPOCH = 10
BEGAN = MANIFEST.genesis + EPOCH * MANIFEST.epoch_seconds + 60
"""When the load tests of these tests begin."""
NOW = BEGAN + 30


def publisher(user=0):
    identity = identity_of("test", user)
    return Key(identity.public_key, identity.sign)


def messages_from(began, manifest=MANIFEST):
    return Messages(manifest, Kit(manifest, [], SharedScorer().solve, random.Random(1)), began)


@pytest.fixture
def messages():
    return messages_from(BEGAN)


def counter(messages, now, manifest=MANIFEST):
    return open_message(messages.make("valid", publisher(), now, 4_096), manifest).header.counter


def all_counters(messages, now, manifest=MANIFEST):
    """Those of a user that sends as fast as it can."""
    found = []
    with pytest.raises(ValueError, match="give more users, or a lower rate"):
        while True:
            found.append(counter(messages, now, manifest))
    return found


@pytest.mark.parametrize("size", [4_096, 32_768, 131_072])
def test_a_valid_message_has_about_the_size_that_was_asked_for(messages, size):
    data = messages.make("valid", publisher(), NOW, size)
    rollout = open_message(data, MANIFEST)
    assert 0.75 * size < len(data) < 1.1 * size
    assert all(decode_body(body, MANIFEST) for body in rollout.bodies)


def test_each_message_of_a_key_has_a_counter_of_its_own(messages):
    first, *others = [counter(messages, NOW) for _ in range(4)]
    assert others == [first + 1, first + 2, first + 3]


@pytest.mark.parametrize(("kind", "layer"), [("forged", Layer.SIGNATURE), ("garbage", Layer.FRAME)])
def test_a_bad_message_is_refused_for_what_is_wrong_with_it(messages, kind, layer):
    with pytest.raises(RemoteError) as refused:
        open_message(messages.make(kind, publisher(), NOW, 4_096), MANIFEST)
    assert refused.value.layer is layer


def test_a_stale_message_is_whole_and_of_an_epoch_long_over(messages):
    assert open_message(messages.make("stale", publisher(), NOW, 4_096), MANIFEST).header.epoch == EPOCH - 5


def test_a_second_load_test_in_an_epoch_uses_no_counter_of_the_first(messages):
    first = all_counters(messages, NOW)
    assert not {*first} & {*all_counters(messages_from(NOW), NOW + 30)}


def test_a_load_test_begins_with_the_first_counter_of_the_next_epoch(messages):
    counter(messages, NOW)
    assert all_counters(messages, BEGAN - 60 + MANIFEST.epoch_seconds) == [0]


def test_a_user_has_no_more_messages_in_an_epoch_than_a_stranger_may_have():
    few = MANIFEST.restarted(name="few", genesis=0, epoch_seconds=600, max_rounds=8)
    assert all_counters(messages_from(-1, few), 599, few) == [0, 1, 2, 3]


def test_keys_follow_from_the_words_and_the_number_alone():
    assert identity_of("a", 1).peer_id == identity_of("a", 1).peer_id
    assert len({identity_of(words, user).peer_id for words in "ab" for user in range(3)}) == 6
    assert set(BAD) == {"forged", "stale", "garbage"}
