"""The strangers' share follows rounds without an alarm, and not time or keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.sampling.alarm import Exposure
from sapo_node.trust.constants import SHARE_LEAST, STRANGERS_SHARE


def test_strangers_are_heard_in_the_first_round():
    assert Exposure().share == STRANGERS_SHARE > 0


def test_clean_rounds_with_strangers_open_the_whole_round_to_them():
    exposure = Exposure()
    for _ in range(10):
        exposure.observe(strangers=1, alarm=False)
    assert exposure.share == 1


def test_a_round_without_strangers_proves_nothing_of_them():
    exposure = Exposure()
    for _ in range(10):
        exposure.observe(strangers=0, alarm=False)
    assert exposure.share == STRANGERS_SHARE


def test_an_alarm_halves_the_share():
    exposure = Exposure()
    exposure.observe(strangers=4, alarm=True)
    assert exposure.share == STRANGERS_SHARE / 2


@given(st.lists(st.tuples(st.integers(0, 16), st.booleans()), max_size=60))
def test_no_history_leaves_the_bounds(history):
    exposure = Exposure()
    for strangers, alarm in history:
        exposure.observe(strangers=strangers, alarm=alarm)
        assert SHARE_LEAST <= exposure.share <= 1


@pytest.mark.parametrize("alarms", [0, 1, 3])
def test_the_share_outlives_a_restart(alarms):
    before, after = Exposure(), Exposure()
    for _ in range(alarms):
        before.observe(strangers=1, alarm=True)
    after.load_state_dict(before.state_dict())
    assert after.share == before.share
