"""Intervals of means by Student's t, against a published example and by what must hold of all of them."""

from statistics import StatisticsError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_adversary.experiments.summary import mean_interval, paired_interval

LEVELS = st.floats(0.5, 0.999)
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)
SLEEP = (
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
)
"""Hours of sleep won with two drugs (Student 1908)."""


def test_paired_gives_the_values_for_students_sleep():
    interval = paired_interval(*SLEEP, 0.95)
    assert interval.point == pytest.approx(1.58)
    assert (interval.low, interval.high) == pytest.approx((0.7001, 2.4599), abs=5e-5)


def test_pairing_narrows_what_two_means_leave_open():
    gained = paired_interval(*SLEEP, 0.95)
    first, second = (mean_interval(each, 0.95) for each in SLEEP)
    assert gained.low > 0 > second.low - first.high


@given(VALUES, LEVELS)
def test_a_mean_lies_in_the_middle_of_its_interval(values, level):
    interval = mean_interval(values, level)
    assert interval.low <= interval.point <= interval.high
    assert interval.point - interval.low == pytest.approx(interval.high - interval.point, abs=1e-3)


@given(VALUES, st.integers(2, 5))
def test_more_of_the_same_values_make_a_mean_surer(values, times):
    few, many = mean_interval(values, 0.95), mean_interval(times * values, 0.95)
    assert many.high - many.low <= few.high - few.low + 1e-9


def test_one_value_has_no_interval():
    with pytest.raises(StatisticsError):
        mean_interval([0.5], 0.95)


def test_values_without_a_partner_are_refused():
    with pytest.raises(ValueError, match="zip"):
        paired_interval([0.1, 0.2], [0.1, 0.2, 0.3], 0.95)
