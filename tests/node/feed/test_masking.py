"""The masks of an external completion, in plain Python, are those that the learner computes on tensors."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.feed.messages import Batch, Graded, Group, is_kept
from sapo_node.groups.messages import Bounds
from sapo_node.learner.filters import passing

TEXT = "2*3 is 6. So <answer>6</answer>."
OFFSETS = [(0, 4), (4, 7), (7, 10), (10, 13), (13, 21), (21, 22), (22, 31), (31, 32), (32, 32)]
"""Of each token; the last is the end of the sequence."""
ANSWER = (5, 7)
LIKELY = [-0.1] * len(OFFSETS)


@given(
    st.lists(st.sampled_from([-0.01, -0.5, -2.0, -2.9, -6.8, -7.0]), min_size=9, max_size=9),
    st.builds(Bounds, st.sampled_from([-6.9, -2.95, -9.0]), st.sampled_from([-20.7, -3.0, -80.0])),
)
def test_the_filters_are_those_of_the_learner(logprobs, bounds):
    answer = torch.tensor([[float(place in ANSWER) for place in range(9)]])
    row = SimpleNamespace(advantage=1.0, group="peer/1/0/0", number=0, bounds=bounds)
    work = torch.tensor([[float(place not in (*ANSWER, 8)) for place in range(9)]])
    batch = SimpleNamespace(rows=(row,), mask=torch.ones(1, 9), answer=answer, work=work)
    for filters in ({"min-token-prob"}, {"answer-likelihood"}, {"min-token-prob", "answer-likelihood"}, set()):
        passes, _ = passing(filters, batch, torch.tensor([logprobs], dtype=torch.float64))
        assert is_kept(TEXT, (), OFFSETS, logprobs, filters, bounds=bounds) == [bool(passes.item())] * 9


def test_the_end_of_the_sequence_is_no_token_that_a_filter_masks():
    assert all(is_kept(TEXT, (), OFFSETS, [*LIKELY[:-1], -9.0], {"min-token-prob"}, bounds=Bounds()))


@pytest.mark.parametrize(("most", "kept"), [(8, True), (7, False)])
def test_a_completion_of_more_tokens_than_its_bound_without_the_end_is_not_trained_on(most, kept):
    assert is_kept(TEXT, (), OFFSETS, (), (), bounds=Bounds(tokens=most)) == [kept] * 9


def test_a_token_that_overlaps_a_masked_phrase_is_not_trained_on():
    assert is_kept(TEXT, [(5, 8)], OFFSETS, (), (), bounds=Bounds()) == [True, False, False] + [True] * 6


@pytest.mark.parametrize(
    ("source", "advantage", "objective", "trained"),
    [
        ("local", -1.0, "positive-only", 9),
        ("local", 0.0, "positive-only", 0),
        ("external", 1.0, "positive-only", 9),
        ("external", -1.0, "positive-only", 0),
        ("external", -1.0, "on-policy", 9),
        ("external", 0.0, "on-policy", 0),
    ],
)
def test_what_counts_follows_from_source_advantage_and_objective(source, advantage, objective, trained):
    completion = Graded(TEXT, "stop", advantage)
    batch = Batch("batch/1/0", 1, (Group("g", source, (), 1.0, (completion,)),), objective, 1.0, ("min-token-prob",))
    assert sum(batch.kept(batch.groups[0], completion, OFFSETS, LIKELY)) == trained


@pytest.mark.parametrize(("source", "trained"), [("local", 9), ("replay", 9), ("external", 0)])
def test_the_filters_read_groups_of_peers_only(source, trained):
    completion = Graded(TEXT, "stop", 1.0)
    batch = Batch("batch/1/0", 1, (Group("g", source, (), 1.0, (completion,)),), filters=("answer-likelihood",))
    unlikely = [-5.0] * len(OFFSETS)
    assert sum(batch.kept(batch.groups[0], completion, OFFSETS, unlikely)) == trained
