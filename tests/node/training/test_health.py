"""The alarms about this node's own learning: what raises them, what does not, and what is kept of them."""

import random
from io import StringIO

import pytest
from rich.console import Console

from sapo_node.cli.tables import Screen
from sapo_node.groups.levels import Levels
from sapo_node.groups.stats import Interval
from sapo_node.observability.overview import at_rest, overview
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.health import (
    CALM,
    LEAST_SCALE,
    LOW_PASS_RATE,
    MAX_ALARMS,
    NO_CHANCE,
    WINDOW,
    Health,
    health_alarms,
)


@pytest.fixture
def health(database):
    return Health(database, lambda: 7.0)


def play(health, rounds=WINDOW, *, first=1, pass_rate=0.2, informative=0.5, entropy=0.6):
    for step in range(first, first + rounds):
        health.observe(step, pass_rate=pass_rate, informative=informative, groups=4, entropy=entropy)


def kinds(database):
    return [alarm.kind for alarm in health_alarms(database)]


def test_a_run_that_collapsed_raises_the_alarm(health, database):
    """A language model at a rate that was too high: reward .27 -> .20, informative .52 -> .10, entropy .54 -> .12."""
    play(health, pass_rate=0.27, informative=0.52, entropy=0.54)
    play(health, first=21, informative=0.1, entropy=0.12)
    assert kinds(database) == ["informative"]
    assert health.rate_scale == 0.5


def test_a_run_that_learnt_raises_none(health, database):
    """The same at a lower rate: informative .50 -> .45, entropy .63 -> .30."""
    play(health, pass_rate=0.1, informative=0.5, entropy=0.63)
    play(health, first=21, informative=0.45, entropy=0.3)
    assert kinds(database) == []
    assert health.rate_scale == 1


def test_entropy_that_is_lost_while_the_reward_is_low_raises_the_alarm(health, database):
    play(health)
    play(health, first=21, entropy=0.1)
    assert kinds(database) == ["entropy"]


@pytest.mark.parametrize(("pass_rate", "raised"), [(LOW_PASS_RATE, []), (LOW_PASS_RATE - 0.01, ["informative"])])
def test_a_policy_that_is_often_correct_is_no_collapse(health, database, pass_rate, raised):
    play(health, pass_rate=pass_rate)
    play(health, first=21, pass_rate=pass_rate, informative=0.05)
    assert kinds(database) == raised


def test_the_status_of_a_node_that_has_stopped_shows_the_alarm(health, database):
    play(health)
    play(health, first=21, entropy=0.1)
    [alarm] = health_alarms(database)
    console = Console(width=120, record=True, file=StringIO())
    console.print(Screen(at_rest(overview(database))))
    assert str(alarm)[:80] in console.export_text()


def test_one_bad_round_raises_none(health, database):
    play(health)
    play(health, 1, first=21, pass_rate=0.0, informative=0.0, entropy=0.0)
    play(health, first=22)
    assert kinds(database) == []


def test_tasks_that_were_never_within_reach_raise_none(health, database):
    play(health, informative=0.08, pass_rate=0.01)
    play(health, first=21, informative=0.0, pass_rate=0.0, entropy=None)
    assert kinds(database) == []


def test_chance_alone_raises_hardly_any(health, database):
    """A policy that stays as it is, with an informative group in one of twelve."""
    rng = random.Random(1)
    for step in range(500):
        informative = sum(rng.random() < 0.08 for _ in range(4)) / 4
        health.observe(step, pass_rate=0.02, informative=informative, groups=4, entropy=0.6)
    assert kinds(database) == []


def test_after_an_alarm_the_figures_are_measured_anew(health, database):
    play(health)
    play(health, 3 * WINDOW, first=21, informative=0.05, entropy=0.05)
    assert kinds(database) == ["informative"]


def held_out(point, half=0.05):
    return Interval(point, point - half, point + half)


def evaluations(share, seed=1):
    """Of a policy that stays as it is: six tasks with 16 prompts each."""
    rng = random.Random(seed)
    while True:
        right = {str(task): tuple(Levels((int(rng.random() < share),)) for _ in range(16)) for task in range(6)}
        yield HeldOut(right).mean(NO_CHANCE)


def evaluate(health, policy, rounds):
    for step, figures in zip(rounds, policy, strict=False):
        health.evaluated(step, figures)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_chance_alone_raises_no_alarm_of_evaluations(health, database, share):
    """The highest of many evaluations is high by chance, and some later one is low by chance."""
    evaluate(health, evaluations(share), range(0, 10_000, 50))
    assert kinds(database) == []


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.15), (0.6, 0.4), (0.6, 0.3), (0.9, 0.7)])
def test_a_fall_is_found_within_three_evaluations(health, database, before, after):
    evaluate(health, evaluations(before), range(0, 1_000, 50))
    assert kinds(database) == []
    evaluate(health, evaluations(after, seed=2), range(1_000, 1_150, 50))
    assert "held-out" in kinds(database)


def test_a_mean_below_the_highest_one_and_the_best_beyond_both_intervals_goes_back_to_its_weights(health, database):
    for step, point in ((50, 0.7), (100, 0.7), (150, 0.5)):
        health.evaluated(step, held_out(point))
    assert kinds(database) == ["held-out"]
    assert health.rate_scale == 0.5
    assert health.take_restart() == 100
    assert health.take_restart() is None


def test_a_mean_whose_interval_meets_that_of_the_highest_raises_none(health, database):
    for step, point in ((50, 0.7), (100, 0.7), (150, 0.57)):
        health.evaluated(step, held_out(point))
    assert kinds(database) == []
    assert health.take_restart() is None


def test_a_fall_whose_interval_meets_that_of_the_best_evaluation_keeps_the_weights(health, database):
    for step, point in ((50, 0.7), (100, 0.7), (150, 0.55)):
        health.evaluated(step, held_out(point))
    assert kinds(database) == ["held-out"]
    assert health.take_restart() is None


def test_after_going_back_the_next_evaluation_is_compared_alone(health, database):
    for step, point in ((50, 0.9), (100, 0.1), (150, 0.9)):
        health.evaluated(step, held_out(point))
    assert kinds(database) == ["held-out"]


def test_the_best_evaluation_is_that_with_the_highest_point_estimate(health):
    health.evaluated(50, held_out(0.7))
    assert health.is_best(held_out(0.701, 0.3))
    assert not health.is_best(held_out(0.699, 0.001))


def test_of_two_equal_evaluations_the_newer_is_the_best(health):
    for step in (50, 100):
        health.evaluated(step, held_out(0.7))
    assert health.needed == {100}


def test_alarms_leave_a_part_of_the_rate_however_often_they_are_raised(health):
    health.evaluated(50, held_out(0.9))
    for step in range(100, 1000, 50):
        health.evaluated(step, held_out(0.1))
    assert health.rate_scale == LEAST_SCALE


def test_a_new_best_evaluation_takes_one_halving_back(health):
    for step, point in enumerate((0.7, 0.1, 0.1, 0.8, 0.85, 0.9)):
        health.evaluated(step, held_out(point, 0.01))
        if step == 3:
            assert health.rate_scale == 0.5
    assert health.rate_scale == 1


def test_evaluations_without_an_alarm_take_one_halving_back_after_another(health):
    """Though none of them reaches the highest one again."""
    health.evaluated(0, Interval(0.5, 0.4, 0.6))
    health.evaluated(50, Interval(0.1, 0.05, 0.15))
    health.evaluated(100, Interval(0.1, 0.05, 0.15))
    assert health.rate_scale == 0.25
    scales = []
    for number in range(2 * CALM):
        health.evaluated(150 + 50 * number, Interval(0.49, 0.4, 0.58))
        scales.append(health.rate_scale)
    assert scales == [*[0.25] * (CALM - 1), *[0.5] * CALM, 1]


def test_an_alarm_in_between_begins_the_count_anew(health):
    health.evaluated(0, Interval(0.5, 0.4, 0.6))
    fall, calm = Interval(0.1, 0.05, 0.15), Interval(0.49, 0.4, 0.58)
    for number, held_out in enumerate([fall, *[calm] * (CALM - 1), fall, fall, *[calm] * (CALM - 1)]):
        health.evaluated(50 + 50 * number, held_out)
    assert health.rate_scale < 0.5


def test_a_restart_of_the_node_forgets_nothing(health, database):
    for step, point in ((50, 0.9), (100, 0.1)):
        health.evaluated(step, held_out(point))
    play(health)
    again = Health(database, lambda: 7.0)
    play(again, first=21, informative=0.05)
    assert again.rate_scale == 0.25
    assert again.take_restart() == 50
    assert kinds(database) == ["informative", "held-out"]


def test_the_best_weights_of_steps_that_were_taken_back_are_no_longer_the_best(health):
    health.evaluated(50, held_out(0.9))
    health.evaluated(100, held_out(0.1))
    health.forget_after(49)
    assert health.is_best(held_out(0.1))
    assert health.needed == set()
    assert health.take_restart() is None


def test_a_policy_decays_and_is_seen_though_steps_are_taken_back_after_each_evaluation(health, database):
    """The weights of the best evaluation are gone, so the node does not go back to them."""
    for number in range(12):
        step = 50 * (number + 1)
        health.evaluated(step, held_out(0.8 - 0.06 * number))
        health.forget_after(step - 10)
    alarms = health_alarms(database)
    assert {alarm.kind for alarm in alarms} == {"held-out"}
    assert len(alarms) >= 8
    assert alarms[-1].text == ("mean held-out pass@1 fell to 0.710, from 0.800 after round 50; learning rate times 0.5")
    assert health.take_restart() is None
    assert health.rate_scale == LEAST_SCALE


def test_a_node_goes_back_to_the_best_weights_that_are_left_if_an_evaluation_is_below_theirs(health, database):
    health.evaluated(50, held_out(0.9))
    health.forget_after(40)
    health.evaluated(100, held_out(0.6))
    assert (kinds(database), health.take_restart(), health.needed) == (["held-out"], None, {100})
    health.evaluated(150, held_out(0.3))
    assert (len(kinds(database)), health.take_restart()) == (2, 100)


def test_an_evaluation_below_one_that_was_taken_back_takes_no_halving_back(health):
    health.evaluated(100, held_out(0.8))
    play(health)
    play(health, first=21, entropy=0.1)
    health.forget_after(90)
    health.evaluated(150, held_out(0.75))
    assert health.rate_scale == 0.5
    health.evaluated(200, held_out(0.9))
    assert health.rate_scale == 1


def test_the_best_weights_before_steps_that_were_taken_back_stay(health):
    health.evaluated(50, held_out(0.9))
    health.forget_after(50)
    assert health.needed == {50}


def test_state_of_another_version_is_forgotten_with_a_warning(database, caplog):
    database.execute("INSERT INTO health VALUES (1, ?)", '{"calm": -1}')
    assert Health(database, lambda: 7.0).rate_scale == 1
    assert "is of another version and is forgotten" in caplog.text


def asked(database, way):
    """The watch over a node whose model is asked in a way."""
    return Health(database, lambda: 7.0, way)


def test_rounds_before_the_model_was_asked_in_another_way_are_not_compared(database):
    play(asked(database, "max_tokens=256"))
    play(asked(database, "max_tokens=32"), first=21, informative=0.0)
    assert kinds(database) == []


def test_the_first_evaluation_after_the_model_was_asked_in_another_way_is_the_best(database):
    asked(database, "max_tokens=256").evaluated(50, held_out(0.9))
    again = asked(database, "max_tokens=32")
    assert again.is_best(held_out(0.1))
    again.evaluated(100, held_out(0.1))
    assert again.needed == {100}


def test_a_model_that_is_asked_in_another_way_keeps_what_alarms_decided(database):
    for step, point in ((50, 0.9), (100, 0.1)):
        asked(database, "max_tokens=256").evaluated(step, held_out(point))
    again = asked(database, "max_tokens=32")
    assert (again.rate_scale, again.needed) == (0.5, {50})
    again.evaluated(150, held_out(0.1))
    assert (again.rate_scale, again.take_restart()) == (0.5, 50)


def test_another_way_to_ask_is_told_until_something_was_measured_in_it(database, caplog):
    asked(database, "max_tokens=256").evaluated(50, held_out(0.9))
    asked(database, "max_tokens=32").evaluated(100, held_out(0.1))
    assert "the model is now asked with max_tokens=32, before with max_tokens=256" in caplog.text
    caplog.clear()
    asked(database, "max_tokens=32")
    assert caplog.text == ""


def test_state_of_a_version_that_did_not_note_how_it_asked_goes_on(health, database):
    health.evaluated(50, held_out(0.9))
    asked(database, "max_tokens=32").evaluated(100, held_out(0.1))
    assert kinds(database) == ["held-out"]


def test_the_operator_is_told_in_one_line(health, database, caplog):
    health.evaluated(50, held_out(0.9))
    health.evaluated(100, held_out(0.1))
    [alarm] = health_alarms(database)
    assert str(alarm) == (
        "round 100: mean held-out pass@1 fell to 0.500, from 0.900 after round 50: the node goes back to the weights "
        "of round 50; learning rate times 0.5"
    )
    assert alarm.at == 7.0
    assert str(alarm) in caplog.text


def test_the_record_is_bounded(health, database):
    health.evaluated(0, held_out(0.9))
    for step in range(MAX_ALARMS + 3):
        health.evaluated(step, held_out(0.1))
    assert len(kinds(database)) == MAX_ALARMS
