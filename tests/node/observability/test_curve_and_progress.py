"""The learning curve, and what the terminal makes of it."""

import random
from functools import reduce
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from sapo_node.cli.tables import activity, chart, round_table
from sapo_node.observability.history import MAX_POINTS, WINDOW, Point, added, learning_curve


def points_of(rewards):
    rounds = (
        Point(step, step, 1, reward, {"train": reward}, reward, reward, {"length": 1})
        for step, reward in enumerate(rewards, start=1)
    )
    return reduce(added, rounds, [])


def curve_of(rewards, columns):
    return learning_curve(points_of(rewards), columns)


REWARDS = st.lists(st.floats(0, 1), min_size=1, max_size=200)


def shown(renderable, width=80):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - ends with the test
    console.print(renderable)
    return console.export_text()


def test_no_round_has_no_curve():
    assert learning_curve([], 60) is None


@given(REWARDS, st.integers(1, 60))
def test_a_curve_has_at_most_the_points_asked_for_and_covers_every_round(rewards, points):
    curve = curve_of(rewards, points)
    assert len(curve.means) <= points
    assert curve.rounds * (len(curve.means) - 1) < len(rewards) <= curve.rounds * len(curve.means)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3_000), st.integers(0))
def test_a_curve_keeps_every_round_in_a_bounded_number_of_points(count, seed):
    rng = random.Random(seed)
    rewards = [rng.random() for _ in range(count)]
    points = points_of(rewards)
    assert len(points) <= MAX_POINTS
    assert (points[0].first, points[-1].last) == (1, count)
    assert all(after.first == before.last + 1 for before, after in pairwise(points))
    assert sum(point.rounds for point in points) == count
    assert fmean([point.reward for point in points], [point.rounds for point in points]) == pytest.approx(
        fmean(rewards)
    )
    assert (min(point.low for point in points), max(point.high for point in points)) == (min(rewards), max(rewards))
    assert sum(point.filtered["length"] for point in points) == count
    assert all(point.seconds["train"] == pytest.approx(point.reward) for point in points)
    assert len({point.rounds for point in points[:-1]}) <= 1


def test_ten_thousand_rounds_begin_at_the_first():
    points = points_of([step / 10_000 for step in range(10_000)])
    assert (points[0].first, points[-1].last) == (1, 10_000)
    assert MAX_POINTS / 2 < len(points) <= MAX_POINTS
    assert points[0].reward < 0.01


@given(REWARDS)
def test_the_best_is_no_less_than_the_first_and_the_last(rewards):
    curve = curve_of(rewards, 60)
    assert curve.best >= max(curve.first, curve.now)


def test_one_lucky_round_is_not_the_best_of_a_curve():
    curve = curve_of([0.0] * 20 + [1.0] + [0.2] * 20, 60)
    assert curve.best == pytest.approx(fmean([1.0] + [0.2] * (WINDOW - 1)))
    assert (curve.first, curve.now) == (0.0, 0.2)


def test_a_chart_rises_with_the_curve_and_names_its_ends():
    figures, *rows = shown(chart(curve_of([number / 60 for number in range(1, 61)], 60))).splitlines()
    assert "at first 0.092" in figures
    assert "now 0.925" in figures
    assert rows[0].startswith("1.00 ┤")
    assert rows[-1].startswith("0.00 ┤")
    filled = [len(row.partition("┤" if "┤" in row else "│")[2].replace(" ", "")) for row in rows]
    assert filled == sorted(filled)
    assert filled[0] < filled[-1]


@pytest.mark.parametrize("rewards", [[0.0], [1.0], [0.0, 1.0] * 5_000])
def test_any_curve_fits_eighty_columns(rewards):
    assert max(map(len, shown(chart(curve_of(rewards, 60)), width=1_000).splitlines())) <= 80


def test_activity_names_the_phase_and_its_seconds():
    line = " ".join(shown(activity("verify", 12.4)).split())
    assert line == "this round ✓ generate ✓ share ● verify · train 12 s"


def test_a_look_at_held_out_questions_belongs_to_no_round():
    assert " ".join(shown(activity("evaluate", 2.0)).split()) == "● evaluate answers held-out prompts 2 s"


def test_a_node_between_rounds_says_so():
    assert "between rounds" in shown(activity(None, 0.0))


ROUND = {
    "step": 7,
    "reward": 0.25,
    "informative": 3,
    "local": 4,
    "external": 2,
    "external_weight": 0.7,
    "entropy": 0.41,
    "mean_length": 23.4,
    "truncated": 0.03,
    "grad_norm": 1.25,
    "seconds": {"generate": 1.0, "share": 0.0, "verify": 0.5, "train": 2.0},
}


def test_a_round_is_one_row_of_its_metrics():
    row = shown(round_table([ROUND], width=100)).splitlines()[1].split()
    assert row == ["7", "0.250", "3/4", "2", "3.5", "0.70", "0.41", "23", "3%", "1.25"]


def test_a_figure_that_could_not_be_computed_is_a_dash():
    row = shown(round_table([{**ROUND, "external_weight": None, "grad_norm": None}], width=100)).splitlines()[1].split()
    assert row[5] == row[9] == "-"
