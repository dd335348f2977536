"""Attacks on state and resources: chosen questions, blame, goodwill, made-up evidence, full disks."""

import pytest

from attacked import attacked, exchanged, poison, refused, state, stored, violations


def test_who_picks_questions_is_refused_other_epochs_and_other_counters():
    record = attacked("cherry-pick")
    assert refused(record, "outside the epoch window") > 0
    assert refused(record, "issuer over its quota") > 0
    assert poison(record, "cherry-pick") <= 0.15


@pytest.mark.slow
def test_without_a_window_picked_questions_take_the_place_of_others():
    record = attacked("cherry-pick", without=("epoch window", "untrusted class"))
    assert poison(record, "cherry-pick") >= 0.3


BEARERS = {"honest": 5, "count": 3, "degree": 2}


def test_who_passes_on_what_fails_at_verification_is_not_to_blame():
    record = attacked("slander", **BEARERS)
    assert state(record, "honest", "banned") == state(record, "honest", "probation") == 0
    assert state(record, "slander", "banned") == 1


@pytest.mark.slow
def test_where_the_bearer_is_blamed_honest_peers_are_banned():
    assert state(attacked("slander", without=("blame to the author",), **BEARERS), "honest", "banned") >= 0.1


def test_lies_between_good_groups_are_never_trained_on_and_end_standing():
    record = attacked("on-off", seconds=60.0, options={"good": 16, "lies": 8})
    assert violations(record) == 0
    assert state(record, "on-off", "healthy") == 0


@pytest.mark.slow
def test_where_lies_cost_nothing_liars_are_in_good_standing():
    record = attacked("on-off", seconds=140.0, options={"good": 16, "lies": 8}, without=("costly lies",))
    assert state(record, "on-off", "healthy") > 0


def test_a_ring_that_makes_up_evidence_harms_nobody_but_itself():
    record = attacked("collusion")
    assert state(record, "honest", "banned") == state(record, "honest", "probation") == 0
    assert state(record, "collusion", "healthy") == 0
    assert refused(record, "evidence") > 0
    assert refused(record, "signature") > 0


@pytest.mark.slow
def test_where_accusers_are_believed_honest_peers_are_banned():
    assert state(attacked("collusion", without=("proof of equivocation",)), "honest", "banned") >= 0.5


FLOOD = {"honest": 2, "count": 8, "acts_every": 1.0, "seconds": 12.0}
"""More than a node verifies and so drops again."""


@pytest.mark.slow
def test_a_flood_of_large_flawless_messages_fills_nobodys_disk():
    record = attacked("exhaustion", **FLOOD)
    assert refused(record, "outside the epoch window") > 0
    assert stored(record) <= 25_000_000


@pytest.mark.slow
def test_without_bounds_the_same_flood_is_kept():
    without = ("epoch window", "envelope quota", "link rate", "inbox bounds")
    assert stored(attacked("exhaustion", **FLOOD, without=without)) >= 50_000_000


@pytest.mark.slow
def test_rollouts_of_which_nothing_comes_do_not_keep_honest_newcomers_from_their_turns():
    """With the strangers' share of a round open, since it bounds what they exchange by itself."""
    crowd = {"count": 400, "links": 1, "acts_every": 10.0, "seconds": 40.0, "trusted": False}
    heard, drowned = (
        exchanged(attacked("hollow", **crowd, without=("untrusted class", *without)))
        for without in ((), ("link lottery",))
    )
    assert heard > 4 * drowned
