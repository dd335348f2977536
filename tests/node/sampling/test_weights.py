"""Pass rates, and the worth of groups by them, where a task has levels."""

import pytest

from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.codec import MalformedError
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.weights import LocalWeight, PassRates, external_worth, local_worth

PARTS = Levels((3, 3, 1, 0, 0, 0, 0, 0), 4)


def local(levels):
    completions = (Sampled("x", "stop", (1,)),) * len(levels.each)
    return LocalGroup("sums", "?", b"", completions, levels, local_advantages(levels))


def external(levels):
    return VerifiedGroup("peer", 1, 0, 0, "sums", "?", (Sampled("x", "stop"),) * len(levels.each), levels)


@pytest.fixture
def rates():
    known = PassRates()
    known.observe([local(PARTS)] * 3)
    return known


def test_a_part_counts_as_reward_and_not_as_correct(rates):
    assert rates.pass_rate("sums") == 0
    assert rates.reward("sums").mean == pytest.approx(7 / 32)


def test_the_variance_is_that_of_the_rewards(rates):
    assert rates.reward("sums").variance == pytest.approx((2 * 9 / 16 + 1 / 16) / 8 - (7 / 32) ** 2)


def test_with_one_level_the_usual_reward_is_the_pass_rate():
    known = PassRates()
    known.observe([local(Levels((1, 0, 0, 0)))])
    assert known.reward("sums").mean == known.pass_rate("sums") == 0.25
    assert known.reward("sums").variance == pytest.approx(0.25 * 0.75)


def test_a_mean_above_one_is_malformed(rates):
    state = rates.state_dict()
    state["tasks"]["sums"]["square"]["total"] = 1e6
    with pytest.raises(MalformedError):
        rates.load_state_dict(state)


def test_parts_make_a_local_group_worth_something_and_an_external_one_nothing(rates):
    assert local_worth(local(PARTS), rates) > 0
    assert external_worth(external(PARTS), rates) == 0


def test_an_external_group_is_worth_the_same_whatever_its_incorrect_completions_earn(rates):
    with_parts, without = external(Levels((4, 3, 3, 0), 4)), external(Levels((4, 0, 0, 0), 4))
    assert external_worth(with_parts, rates) == external_worth(without, rates) > 0


def test_a_local_group_without_a_correct_completion_says_nothing_of_how_heavy_a_group_of_a_peer_is(rates):
    weight = LocalWeight(rates, by_pass_rate=True)
    weight.observe([local(PARTS)])
    assert weight.value is None
