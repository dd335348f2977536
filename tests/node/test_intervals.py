"""Confidence intervals, against published examples and by what must hold of all of them."""

import random
from statistics import StatisticsError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.stats import clustered_interval, mean_of_intervals, wilson_interval
from sapo_node.student import mean_interval, paired_interval

LEVELS = st.floats(0.5, 0.999)


@st.composite
def counts(draw):
    """Successes and trials."""
    trials = draw(st.integers(1, 2_000))
    return draw(st.integers(0, trials)), trials


@st.composite
def clusters(draw):
    """Successes of each cluster, and how many samples each has."""
    samples = draw(st.integers(1, 16))
    return draw(st.lists(st.integers(0, samples), min_size=1, max_size=60)), samples


def bounds(interval):
    return interval.low, interval.high


def near(expected):
    return pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_gives_the_values_of_newcombe_1998(successes, trials, expected):
    assert bounds(wilson_interval(successes, trials)) == near(expected)


def test_the_mean_of_two_gives_newcombes_difference_of_two():
    """56/70 - 48/80 is 0.0524 to 0.3339 (Newcombe 1998, method 10); a difference is a mean with one side reversed."""
    mean = mean_of_intervals([wilson_interval(56, 70), wilson_interval(80 - 48, 80)])
    assert (2 * mean.low - 1, 2 * mean.high - 1) == pytest.approx((0.0524, 0.3339), abs=1e-4)


SLEEP = (
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
)
"""Hours of sleep won with two drugs (Student 1908)."""


def test_paired_gives_the_values_for_students_sleep():
    interval = paired_interval(*SLEEP)
    assert interval.point == pytest.approx(1.58)
    assert bounds(interval) == near((0.7001, 2.4599))


def test_pairing_narrows_what_two_means_leave_open():
    gained = paired_interval(*SLEEP)
    first, second = map(mean_interval, SLEEP)
    assert gained.low > 0 > second.low - first.high


@given(counts(), LEVELS)
def test_wilson_contains_its_point_and_stays_a_share(count, level):
    interval = wilson_interval(*count, level)
    assert 0 <= interval.low <= interval.point <= interval.high <= 1


@given(counts(), st.integers(2, 50))
def test_wilson_shrinks_with_more_trials(count, times):
    successes, trials = count
    few, many = wilson_interval(successes, trials), wilson_interval(times * successes, times * trials)
    assert many.high - many.low < few.high - few.low


@given(counts(), LEVELS, LEVELS)
def test_a_higher_level_is_wider(count, one, other):
    narrow, wide = (wilson_interval(*count, level) for level in sorted((one, other)))
    assert wide.low <= narrow.low + 1e-12
    assert narrow.high <= wide.high + 1e-12


@given(st.lists(st.integers(0, 1), min_size=1, max_size=200))
def test_clusters_of_one_are_plain_trials(successes):
    plain = wilson_interval(sum(successes), len(successes))
    assert bounds(clustered_interval(successes, 1)) == near(bounds(plain))


@given(clusters())
def test_clusters_are_as_sure_as_one_to_all_of_their_trials(cluster):
    successes, samples = cluster
    interval = clustered_interval(successes, samples)
    loose = wilson_interval(sum(successes) / samples, len(successes))
    tight = wilson_interval(sum(successes), samples * len(successes))
    assert loose.low - 1e-9 <= interval.low <= tight.low + 1e-9
    assert tight.high - 1e-9 <= interval.high <= loose.high + 1e-9


def test_samples_that_all_agree_within_a_question_add_nothing():
    successes = [0, 0, 1, 0, 1, 1, 0, 0, 0, 1]
    once, often = clustered_interval(successes, 1), clustered_interval([8 * each for each in successes], 8)
    assert bounds(often) == near(bounds(once))


@given(st.lists(counts(), min_size=1, max_size=10))
def test_a_mean_of_shares_lies_in_its_interval_and_within_the_widest_of_them(measured):
    parts = [wilson_interval(*count) for count in measured]
    mean = mean_of_intervals(parts)
    assert -1e-12 <= mean.low <= mean.point <= mean.high <= 1 + 1e-12
    assert mean.high - mean.low <= max(part.high - part.low for part in parts) + 1e-9


@pytest.mark.parametrize("samples", [1, 4])
def test_intervals_hold_the_truth_about_as_often_as_they_say(samples):
    """Sixty-four questions of unlike difficulty for each of three tasks, measured again and again."""
    rng = random.Random(5)
    chances = (0.05, 0.2, 0.45)
    held = 0
    for _ in range(400):
        parts = []
        for chance in chances:
            questions = [rng.betavariate(chance, 1 - chance) for _ in range(64)]
            right = [sum(rng.random() < question for _ in range(samples)) for question in questions]
            parts.append(clustered_interval(right, samples))
        mean = mean_of_intervals(parts)
        held += mean.low <= sum(chances) / len(chances) <= mean.high
    assert 0.92 < held / 400 < 0.98


VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


@given(VALUES, LEVELS)
def test_a_mean_lies_in_the_middle_of_its_interval(values, level):
    interval = mean_interval(values, level)
    assert interval.low <= interval.point <= interval.high
    assert interval.point - interval.low == pytest.approx(interval.high - interval.point, abs=1e-3)


@given(VALUES, st.integers(2, 5))
def test_more_of_the_same_values_make_a_mean_surer(values, times):
    few, many = mean_interval(values), mean_interval(times * values)
    assert many.high - many.low <= few.high - few.low + 1e-9


def test_one_value_has_no_interval():
    with pytest.raises(StatisticsError):
        mean_interval([0.5])


def test_values_without_a_partner_are_refused():
    with pytest.raises(ValueError, match="zip"):
        paired_interval([0.1, 0.2], [0.1, 0.2, 0.3])
