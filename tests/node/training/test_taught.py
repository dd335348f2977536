"""What a round trained on is told without what filters rejected, before the draw or in the learner."""

import random

from sampled_texts import others
from sapo_node.groups.messages import GroupReport
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


def test_a_group_of_which_no_token_was_trained_on_taught_nothing():
    assert trained(GroupReport(tokens=0, masked=20)).taught == ()
