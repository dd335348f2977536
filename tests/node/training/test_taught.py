"""What a round trained on is told without what filters rejected, before the draw or in the learner."""

import random

import pytest

from sampled_texts import others
from sapo_node.groups.messages import GroupReport, Refusal
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.training.round import TrainedGroup

GROUP = others(random.Random(1), 0)
"""Of its eight completions the first four are correct."""


def trained(report):
    advantages = (0.5,) * 4 + (0.0,) * 4
    return TrainedGroup(WeightedGroup(GROUP, 1.0, advantages, stopped={0: "equation"}), report)


def test_a_rejected_completion_is_not_taught():
    report = GroupReport(tokens=20, rejected={2: "answer-likelihood"})
    assert trained(report).taught == (GROUP.completions[1].text, GROUP.completions[3].text)


def test_a_completion_of_which_no_token_was_trained_on_is_not_taught():
    report = GroupReport(tokens=20, rejected={2: "answer-likelihood"}, untrained=(1,))
    assert trained(report).taught == (GROUP.completions[3].text,)


SIZES = [1 + length for length in GROUP.lengths[:4]]


@pytest.mark.parametrize(
    ("report", "silent", "denied"),
    [
        (GroupReport(tokens=20), (), {0}),
        (GroupReport(tokens=20, rejected={2: "length"}), (), {0, 2}),
        (GroupReport(tokens=20, untrained=(1,)), (), {0, 1}),
        (GroupReport(tokens=20, untrained=(1,)), ((), ((0, 9),)), {0}),
        (GroupReport(refused=Refusal.TOO_LONG, untrained=(1, 2, 3)), (), {0, 1, 2, 3}),
    ],
    ids=["before the draw", "in the learner", "too long", "masked", "all too long"],
)
def test_the_accepted_share_is_without_what_filters_reject_and_with_what_they_mask(report, silent, denied):
    weighted = WeightedGroup(GROUP, 1.0, (0.5,) * 4 + (0.0,) * 4, silent, stopped={0: "equation"})
    left = sum(size for number, size in enumerate(SIZES) if number not in denied)
    assert TrainedGroup(weighted, report).accepted == pytest.approx(left / sum(SIZES))


@pytest.mark.parametrize("refusal", [Refusal.NOT_FINITE, Refusal.KILLED_LEARNER, Refusal.NO_ROOM])
def test_no_share_is_known_of_a_group_that_was_refused_for_no_text_of_its_own(refusal):
    assert trained(GroupReport(refused=refusal, untrained=(1, 2, 3))).accepted is None


def test_a_group_of_which_no_token_was_trained_on_taught_nothing():
    assert trained(GroupReport(tokens=0, masked=20)).taught == ()
