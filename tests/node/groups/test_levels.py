"""The levels of a group, and the advantages that follow from them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.advantage import EPSILON, external_advantages, local_advantages
from sapo_node.groups.levels import Levels

groups = st.lists(st.integers(0, 4), min_size=2, max_size=8).map(lambda each: Levels(tuple(each), 4))


def test_only_the_highest_level_is_correct():
    levels = Levels((0, 3, 4, 4), 4)
    assert levels.correct == (False, False, True, True)
    assert levels.right == 2


def test_a_reward_is_the_level_as_a_share_of_the_highest():
    levels = Levels((0, 1, 3, 4), 4)
    assert levels.rewards == (0.0, 0.25, 0.75, 1.0)
    assert levels.mean == 0.5


@pytest.mark.parametrize(("each", "is_mixed"), [((3, 0), False), ((4, 4), False), ((4, 3), True)])
def test_a_group_is_mixed_if_it_has_correct_and_incorrect_completions(each, is_mixed):
    assert Levels(each, 4).is_mixed is is_mixed


@pytest.mark.parametrize("level", [-1, 5])
def test_a_level_out_of_bounds_is_refused(level):
    with pytest.raises(ValueError, match="above 4"):
        Levels((0, level), 4)


@given(groups)
def test_local_advantages_are_those_of_the_rewards_over_a_deviation_that_is_never_small(levels):
    rewards = torch.tensor(levels.rewards, dtype=torch.float64)
    least = len(levels.each) ** -0.5
    expected = (rewards - rewards.mean()) / (rewards.std().clamp(min=least) + EPSILON)
    assert local_advantages(levels) == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-12)


def test_the_only_completion_that_earns_a_quarter_has_a_quarter_of_the_advantage_of_a_correct_one():
    part, correct = (local_advantages(Levels((level, *[0] * 7), 4))[0] for level in (1, 4))
    assert part == pytest.approx(correct / 4)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=16).filter(lambda each: 0 < sum(each) < len(each)))
def test_with_one_level_the_advantages_are_those_of_grpo(bits):
    rewards = torch.tensor(bits, dtype=torch.float64)
    expected = (rewards - rewards.mean()) / (rewards.std() + EPSILON)
    assert local_advantages(Levels(tuple(bits))) == pytest.approx(expected.tolist(), rel=1e-12)


@pytest.mark.parametrize("top", [3, 7, 9])
def test_a_completion_at_the_mean_of_its_group_has_no_local_advantage(top):
    """In floating-point numbers the mean of 0, 1/3 and 2/3 need not be 1/3."""
    below, same, above = local_advantages(Levels((0, 1, 2), top))
    assert below < same == 0 < above


@given(groups, st.data())
def test_what_incorrect_completions_earn_changes_no_external_advantage(levels, data):
    other = Levels(tuple(level if level == 4 else data.draw(st.integers(0, 3)) for level in levels.each), 4)
    assert external_advantages(other) == external_advantages(levels)


@given(groups)
def test_of_a_peer_only_correct_completions_have_a_positive_advantage(levels):
    better = tuple(advantage > 0 for advantage in external_advantages(levels))
    assert better == (levels.correct if levels.is_mixed else (False,) * len(better))
