"""Confidence intervals, against published examples and by what must hold of all of them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.stats import clustered_interval, mean_of_intervals, wilson_interval

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
            prompts = [rng.betavariate(chance, 1 - chance) for _ in range(64)]
            right = [sum(rng.random() < prompt for _ in range(samples)) for prompt in prompts]
            parts.append(clustered_interval(right, samples))
        mean = mean_of_intervals(parts)
        held += mean.low <= sum(chances) / len(chances) <= mean.high
    assert 0.92 < held / 400 < 0.98
