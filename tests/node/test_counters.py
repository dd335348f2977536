"""Own counters: none is used twice, whatever is killed, copied or restored."""

import pytest

from sapo_node.counters import Counters, KeyInUseElsewhere, Slot


@pytest.fixture
def counters(database, manifest):
    return Counters(database, manifest, now=1_000, key_is_new=True)


def test_counters_of_an_epoch_are_counted_up_from_zero(counters):
    assert [counters.reserve(1_000) for _ in range(3)] == [Slot(1, 0), Slot(1, 1), Slot(1, 2)]


def test_they_start_again_at_zero_in_the_next_epoch(counters):
    counters.reserve(1_000)
    assert counters.reserve(1_200) == Slot(2, 0)


def test_a_restart_goes_on_where_it_was_even_if_the_round_was_never_played(counters, database, manifest):
    counters.reserve(1_000)
    assert Counters(database, manifest, now=1_000, key_is_new=False).reserve(1_000) == Slot(1, 1)


def test_a_clock_set_back_does_not_reuse_a_counter(counters):
    counters.reserve(1_300)
    assert counters.reserve(700) == Slot(2, 1)


def test_when_an_epochs_counters_are_used_up_there_is_none(counters, manifest):
    for _ in range(manifest.max_rounds):
        counters.reserve(1_000)
    assert counters.reserve(1_000) is None
    assert counters.reserve(1_200) == Slot(2, 0)


def test_a_new_key_publishes_at_once(counters):
    assert counters.listening_epochs(1_000) == 0


def test_a_key_older_than_its_state_listens_for_two_epochs(database, manifest):
    counters = Counters(database, manifest, now=1_000, key_is_new=False)
    assert [counters.listening_epochs(now) for now in (1_000, 1_200, 1_800)] == [2, 1, 0]


def test_restarting_does_not_end_the_listening(database, manifest):
    Counters(database, manifest, now=1_000, key_is_new=False)
    assert Counters(database, manifest, now=1_100, key_is_new=True).listening_epochs(1_100) == 2


def test_what_was_published_is_sent_again_as_it_was(counters):
    counters.keep(Slot(1, 0), b"id", b"the very bytes")
    assert counters.recent() == [b"the very bytes"]


def test_what_the_window_no_longer_takes_is_not_sent_again_but_still_recognised(counters):
    counters.keep(Slot(1, 0), b"id", b"the very bytes")
    counters.reserve(2_400)
    assert counters.recent() == []
    counters.recognise(b"id")


def test_own_envelopes_are_recognised(counters):
    counters.keep(Slot(1, 0), b"id", b"message")
    counters.recognise(b"id")


def test_an_unknown_envelope_of_the_own_key_is_an_alarm(counters):
    with pytest.raises(KeyInUseElsewhere, match="in use elsewhere"):
        counters.recognise(b"unknown")
