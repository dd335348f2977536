"""Attacks by who signs: replays, equivocation, and keys that come back, change or come in numbers."""

import pytest

from attacked import attacked, poison, refused, state, violations


def test_a_replayer_gets_nothing_trained_on_twice():
    assert violations(attacked("replay")) == 0


def test_without_a_replay_window_groups_are_trained_on_twice():
    assert violations(attacked("replay", without=("replay window",))) >= 10


def test_what_the_network_has_forgotten_is_still_not_taken_twice():
    record = attacked("replay", honest=2, count=1, seconds=640, acts_every=20.0, epoch_seconds=600, round_seconds=20.0)
    assert violations(record) == 0
    assert refused(record, "duplicate") > 0


def test_equivocators_are_banned_by_all_within_two_rounds():
    record = attacked("equivocation")
    assert state(record, "equivocation", "banned") == 1
    assert all(step <= 2 for node in record["nodes"] for step in node["states"]["banned"].values())
    assert state(record, "honest", "banned") == 0


def test_without_one_content_a_counter_equivocators_are_trained_on_twice():
    record = attacked("equivocation", without=("one content a counter", "untrusted class"))
    assert violations(record) > 0
    assert state(record, "equivocation", "banned") == 0


def test_a_liar_that_comes_back_is_still_banned():
    record = attacked("reconnect")
    assert state(record, "reconnect", "banned") == 1
    assert refused(record, "false claim") <= 4 * 2 * 8


def test_a_liar_that_is_forgotten_when_it_goes_lies_on():
    record = attacked("reconnect", without=("durable ledger",))
    assert state(record, "reconnect", "banned") == 0
    assert refused(record, "false claim") >= 200


NEW_KEYS = {"count": 20, "options": {"alive": 2, "turns": 2}}


def test_all_keys_of_a_liar_together_get_the_newcomers_share():
    assert poison(attacked("new-keys", **NEW_KEYS), "new-keys") <= 0.1


def test_without_the_newcomers_share_new_keys_take_more():
    assert poison(attacked("new-keys", without=("untrusted class",), **NEW_KEYS), "new-keys") >= 0.15


@pytest.mark.parametrize("padding", [0, 32, 960])
def test_sybils_that_do_not_wait_get_the_newcomers_share_however_long_their_texts(padding):
    record = attacked("sybil", count=4, seconds=38.0, options={"padding": padding})
    assert poison(record, "sybil") <= 0.1


def test_without_the_newcomers_share_sybils_take_most():
    without = ("untrusted class", "measured by the healthy")
    assert poison(attacked("sybil", count=4, seconds=38.0, without=without), "sybil") >= 0.3
