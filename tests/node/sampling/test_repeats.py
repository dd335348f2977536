"""Each alarm of a phrase doubles the rounds until the next one, and a phrase without an alarm for long is forgotten."""

from sapo_node.sampling.filters.ngram import QUIET, REMEMBERED_ROUNDS, Repeats, runs

PHRASE = ("hail", "the", "swarm")


def pass_rounds(repeats, rounds):
    for _ in range(rounds):
        repeats.pass_round()


def test_a_phrase_waits_from_its_alarm_on():
    repeats = Repeats()
    repeats.raised([PHRASE])
    pass_rounds(repeats, QUIET - 1)
    assert repeats.waiting == {("hail", "the"), ("the", "swarm")}
    repeats.pass_round()
    assert repeats.waiting == set()


def test_the_wait_is_never_longer_than_a_phrase_is_remembered():
    repeats = Repeats()
    for _ in range(20):
        repeats.raised([PHRASE])
    pass_rounds(repeats, REMEMBERED_ROUNDS)
    assert repeats.waiting == set()


def test_a_phrase_without_an_alarm_for_long_begins_with_the_first_wait_again():
    repeats = Repeats()
    for _ in range(3):
        repeats.raised([PHRASE])
    pass_rounds(repeats, REMEMBERED_ROUNDS)
    assert repeats.state() == ()
    repeats.raised([PHRASE])
    pass_rounds(repeats, QUIET)
    assert repeats.waiting == set()


def test_a_phrase_with_two_words_in_a_row_of_one_that_waits_waits_too_and_its_wait_doubles():
    repeats = Repeats()
    repeats.raised([PHRASE])
    overlapping, other = ("the", "swarm", "grows"), ("the", "hail", "swarm")
    assert not repeats.waiting.isdisjoint(runs(overlapping))
    assert repeats.waiting.isdisjoint(runs(other))
    pass_rounds(repeats, QUIET)
    repeats.raised([overlapping])
    pass_rounds(repeats, 2 * QUIET - 1)
    assert not repeats.waiting.isdisjoint(runs(overlapping))
