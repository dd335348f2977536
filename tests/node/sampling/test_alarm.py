"""Alarms of the reward, and the share of strangers that alarms halve."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup
from sapo_node.sampling.alarm import ALIKE, Exposure, RewardWatch
from sapo_node.sampling.weights import PassRates
from sapo_node.trust.constants import HARM_ROUNDS, SHARE_LEAST, STRANGERS_SHARE, Tier


def group(right):
    levels = Levels(tuple(int(number < right) for number in range(8)))
    return LocalGroup("products", "", b"", (), levels, local_advantages(levels))


def alarms(rounds, watch=None, pass_rates=None, external=1):
    """The alarms of rounds with so many correct completions in each of their groups, and so many groups of others."""
    pass_rates = pass_rates or PassRates()
    watch = watch or RewardWatch(pass_rates)
    raised = []
    for rights in rounds:
        local = [group(right) for right in rights]
        if alarm := watch.observe(local, external=external):
            raised.append(alarm)
        pass_rates.observe(local)
    return raised


def test_a_reward_that_falls_and_stays_down_raises_an_alarm_that_accuses_all_peers_but_friends():
    fall = [[6] * 4] * 30 + [[4] * 4, [3] * 4, [2] * 4, [1] * 4, [0] * 4, [0] * 4]
    alarm = alarms(fall)[0]
    said = Sampled("any text", "stop")
    assert alarm.accuses(Tier.STRANGER, said)
    assert alarm.accuses(Tier.PROVEN, said)
    assert not alarm.accuses(Tier.FRIEND, said)


def test_a_steady_reward_raises_no_alarm():
    assert not alarms([[3] * 4] * 500)


def test_a_noisy_reward_raises_hardly_any():
    rng = random.Random(1)
    noisy = [[sum(rng.random() < 0.5 for _ in range(8)) for _ in range(4)] for _ in range(1000)]
    assert len(alarms(noisy)) <= 2


def test_a_policy_that_is_nearly_always_correct_raises_hardly_any():
    """It fails whole groups of hard prompts now and then."""
    rng = random.Random(1)
    rounds = [[sum(rng.random() < rate for _ in range(8)) for rate in rates] for rates in hard_ones(rng, 3000)]
    assert len(alarms(rounds)) <= 1


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.8, 0.95])
def test_alarms_by_chance_take_back_at_most_two_of_a_hundred_rounds_of_honest_peers(rate):
    rng = random.Random(1)
    rounds = [[sum(rng.random() < each for _ in range(8)) for each in rates] for rates in hard_ones(rng, 2000, rate)]
    assert len(alarms(rounds)) * HARM_ROUNDS <= 0.02 * len(rounds)


def hard_ones(rng, rounds, mean=0.95):
    """Pass rates of four prompts a round with this mean, as unlike as ALIKE says."""
    scale = 1 / ALIKE - 1
    return [[rng.betavariate(mean * scale, (1 - mean) * scale) for _ in range(4)] for _ in range(rounds)]


def test_only_so_many_alarms_take_steps_back_at_once_and_the_budget_outlives_a_restart():
    rates, before, after = PassRates(), RewardWatch(PassRates()), RewardWatch(PassRates())
    rates.observe([group(6)] * 40)
    before, after = RewardWatch(rates), RewardWatch(rates)

    def falls(watch, rounds):
        """Whether each alarm takes steps back, while the pass rates stay high."""
        found = (watch.observe([group(0)] * 4, external=1) for _ in range(rounds))
        return [alarm.takes_back for alarm in found if alarm]

    assert falls(before, 25) == [True, True, True, False, False]
    after.load_state_dict(before.state_dict())
    assert falls(after, 5) == [False]
    assert falls(after, 160).count(True) == 1


@pytest.mark.parametrize(("rounds", "raised"), [(0, 1), (HARM_ROUNDS - 10, 1), (HARM_ROUNDS, 0)])
def test_a_reward_that_falls_long_after_the_last_group_of_others_raises_no_alarm(rounds, raised):
    pass_rates = PassRates()
    watch = RewardWatch(pass_rates)
    alarms([[6] * 4] * 30, watch, pass_rates)
    alarms([[6] * 4] * rounds, watch, pass_rates, external=0)
    assert len(alarms([[0] * 4] * 5, watch, pass_rates, external=0)) == raised


def test_the_sum_outlives_a_restart():
    pass_rates = PassRates()
    before, after = RewardWatch(pass_rates), RewardWatch(pass_rates)
    alarms([[6] * 4] * 20 + [[1] * 4], before, pass_rates)
    after.load_state_dict(before.state_dict())
    assert after.state_dict() == before.state_dict() != RewardWatch(pass_rates).state_dict()


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


def graded(level):
    levels = Levels((level,) * 8, 4)
    return LocalGroup("products", "", b"", (), levels, local_advantages(levels))


def test_parts_that_are_lost_raise_an_alarm_although_no_completion_was_correct():
    pass_rates = PassRates()
    watch = RewardWatch(pass_rates)
    found = []
    for level in [3] * 30 + [1] * 6:
        local = [graded(level)] * 4
        found.append(watch.observe(local, external=1))
        pass_rates.observe(local)
    assert not any(found[:30])
    assert any(found[30:])


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_rewards_with_parts_raise_hardly_any_alarm(rate):
    """Each completion has four parts, and each part is correct at the rate of its prompt."""
    rng, pass_rates = random.Random(1), PassRates()
    watch, raised = RewardWatch(pass_rates), 0
    for rates in hard_ones(rng, 1000, rate):
        levels = [Levels(tuple(sum(rng.random() < each for _ in range(4)) for _ in range(8)), 4) for each in rates]
        local = [LocalGroup("products", "", b"", (), each, ()) for each in levels]
        raised += watch.observe(local, external=1) is not None
        pass_rates.observe(local)
    assert raised <= 1
