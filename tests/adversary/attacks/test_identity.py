"""Attacks by who signs: replays, equivocation, and keys that come back, change or come in numbers."""

import pytest

from attacked import attacked, poison, refused, state, violations


def test_a_replayer_gets_nothing_trained_on_twice():
    assert violations(attacked("replay")) == 0


@pytest.mark.slow
def test_without_a_replay_window_groups_are_trained_on_twice():
    assert violations(attacked("replay", without=("replay window",))) >= 10


@pytest.mark.slow
def test_what_the_network_has_forgotten_is_still_not_taken_twice():
    record = attacked("replay", honest=2, count=1, seconds=640, acts_every=20.0, epoch_seconds=600, round_seconds=20.0)
    assert violations(record) == 0
    assert refused(record, "duplicate") > 0


def test_equivocators_are_banned_by_all_within_two_rounds():
    record = attacked("equivocation")
    assert state(record, "equivocation", "banned") == 1
    assert all(step <= 2 for node in record["nodes"] for step in node["states"]["banned"].values())
    assert state(record, "honest", "banned") == 0


@pytest.mark.slow
def test_without_one_content_a_counter_equivocators_are_trained_on_twice():
    record = attacked("equivocation", without=("one content a counter", "untrusted class"))
    assert violations(record) > 0
    assert state(record, "equivocation", "banned") == 0


def test_a_liar_that_comes_back_is_still_banned():
    record = attacked("reconnect")
    assert state(record, "reconnect", "banned") == 1
    assert refused(record, "false claim") <= 4 * 2 * 8


@pytest.mark.slow
def test_a_liar_that_is_forgotten_when_it_goes_lies_on():
    record = attacked("reconnect", without=("durable ledger",))
    assert state(record, "reconnect", "banned") == 0
    assert refused(record, "false claim") >= 200


NEW_KEYS = {"count": 12, "seconds": 24.0, "options": {"alive": 2, "turns": 2}}


def test_nothing_false_of_new_keys_is_trained_on():
    record = attacked("new-keys", **NEW_KEYS)
    assert violations(record) == 0
    assert refused(record, "false claim") >= 30


@pytest.mark.slow
def test_without_reverification_the_false_claims_of_new_keys_are_trained_on():
    assert violations(attacked("new-keys", without=("re-verification",), **NEW_KEYS)) >= 30


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("padding", [0, 32, 960])
@pytest.mark.slow
def test_sybils_do_not_take_most_of_a_swarm_however_long_their_texts(padding, heavy):
    options = {"padding": padding, "heavy": heavy}
    assert poison(attacked("sybil", count=4, seconds=38.0, options=options), "sybil") <= 0.5


@pytest.mark.slow
def test_sixteen_times_as_many_keys_give_sybils_no_more():
    few = poison(attacked("sybil", count=4, seconds=38.0), "sybil")
    many = poison(attacked("sybil", count=64, seconds=38.0, links=4, acts_every=32.0), "sybil")
    assert abs(many - few) <= 0.1


@pytest.mark.slow
def test_where_everybody_measures_sybils_with_long_texts_take_most():
    without = ("untrusted class", "measured by the healthy")
    record = attacked("sybil", count=4, seconds=38.0, without=without, options={"padding": 960})
    assert poison(record, "sybil") >= 0.7
