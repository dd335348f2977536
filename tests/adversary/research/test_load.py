"""What publishers of a load test send."""

import random

import pytest

from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.research.load.keys import identity_of
from sapo_adversary.research.load.messages import BAD, Messages
from sapo_adversary.scoring import SharedScorer
from sapo_protocol import Layer, RemoteError, decode_body, load_manifest, open_message

MANIFEST = load_manifest("starter")


def publisher(user=0):
    identity = identity_of("test", user)
    return Key(identity.public_key, identity.sign)


@pytest.fixture
def messages():
    return Messages(MANIFEST, Kit(MANIFEST, [], SharedScorer().solve, random.Random(1)))


@pytest.mark.parametrize("size", [4_096, 32_768, 131_072])
def test_a_valid_message_has_about_the_size_that_was_asked_for(messages, size):
    data = messages.make("valid", publisher(), 10, size)
    rollout = open_message(data, MANIFEST)
    assert 0.75 * size < len(data) < 1.1 * size
    assert all(decode_body(body, MANIFEST) for body in rollout.bodies)


def test_each_message_of_a_key_has_a_counter_of_its_own(messages):
    counters = [open_message(messages.make("valid", publisher(), 10, 4_096), MANIFEST).header.counter for _ in range(4)]
    assert counters == [0, 1, 2, 3]


@pytest.mark.parametrize(("kind", "layer"), [("forged", Layer.SIGNATURE), ("garbage", Layer.FRAME)])
def test_a_bad_message_is_refused_for_what_is_wrong_with_it(messages, kind, layer):
    with pytest.raises(RemoteError) as refused:
        open_message(messages.make(kind, publisher(), 10, 4_096), MANIFEST)
    assert refused.value.layer is layer


def test_a_stale_message_is_whole_and_of_an_epoch_long_over(messages):
    assert open_message(messages.make("stale", publisher(), 10, 4_096), MANIFEST).header.epoch == 5


def test_a_key_that_has_no_more_rounds_says_so(messages):
    few = MANIFEST.restarted(name="few", genesis=0, epoch_seconds=600, max_rounds=1)
    few_messages = Messages(few, Kit(few, [], SharedScorer().solve, random.Random(1)))
    few_messages.make("valid", publisher(), 10, 4_096)
    with pytest.raises(ValueError, match="no more rounds"):
        few_messages.make("valid", publisher(), 10, 4_096)


def test_keys_follow_from_the_words_and_the_number_alone():
    assert identity_of("a", 1).peer_id == identity_of("a", 1).peer_id
    assert len({identity_of(words, user).peer_id for words in "ab" for user in range(3)}) == 6
    assert set(BAD) == {"forged", "stale", "garbage"}
