"""The bounds of `min-token-prob`: how improbable a peer's text may be, by what this policy writes itself."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampled_texts import others
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import MIN_TOKEN_PROB, Bounds, Sampled
from sapo_node.groups.record import LocalGroup
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.filters.min_token_prob import KEPT, KNOWN, MinTokenProbFilter
from sapo_node.sampling.weights import PassRates

GROUP = others(random.Random(1), 0)
USUAL = Bounds()
TEXT = "so <answer>6</answer>"


def own(*least, right=True, dataset="products"):
    """A local group of completions of two tokens, of which the less probable one has this probability."""
    completions = tuple(Sampled(TEXT, "stop", (1, 2), (math.log(0.5), math.log(each))) for each in least)
    return LocalGroup(dataset, "?", b"", completions, Levels((int(right),) * len(least)), (0.0,) * len(least))


def bounds(*groups):
    some_filter = MinTokenProbFilter()
    some_filter.observe(groups)
    return some_filter.bounds(GROUP, USUAL)


def test_a_policy_of_which_little_is_known_has_the_usual_bounds():
    assert bounds(own(*[1e-9] * (KNOWN - 1))) == USUAL


def test_a_policy_that_writes_rare_tokens_lowers_the_bound_of_a_token():
    assert bounds(own(*[1e-6] * KNOWN)) == Bounds(pytest.approx(math.log(1e-6)), USUAL.text)


def test_a_policy_that_writes_improbable_texts_lowers_the_bound_of_a_text():
    long = Sampled(TEXT, "stop", (1,) * 100, (math.log(0.5),) * 100)
    group = LocalGroup("products", "?", b"", (long,) * KNOWN, Levels((1,) * KNOWN), (0.0,) * KNOWN)
    assert bounds(group) == Bounds(USUAL.token, pytest.approx(100 * math.log(0.5)))


def test_what_a_trainer_writes_on_behind_an_answer_lowers_no_bound():
    behind = Sampled(f"{TEXT} I hope that this helps you.", "stop", (1,) * 100, (math.log(0.05),) * 100)
    group = LocalGroup("products", "?", b"", (behind,) * KNOWN, Levels((1,) * KNOWN), (0.0,) * KNOWN)
    assert bounds(group) == USUAL


def test_a_policy_that_writes_probable_texts_keeps_the_usual_bounds():
    assert bounds(own(*[0.2] * KNOWN)) == USUAL


def test_one_rare_token_among_many_completions_lowers_nothing():
    assert bounds(own(1e-12, *[0.2] * KNOWN)) == USUAL


def test_incorrect_completions_lower_nothing():
    assert bounds(own(*[1e-12] * KNOWN, right=False)) == USUAL


def test_for_a_task_that_is_hardly_solved_completions_to_all_tasks_lower_the_bounds():
    assert bounds(own(*[1e-6] * KNOWN, dataset="others"), own(0.2)).token == pytest.approx(math.log(1e-6))


def test_for_a_task_that_is_solved_completions_to_other_tasks_lower_nothing():
    assert bounds(own(*[1e-12] * KNOWN, dataset="others"), own(*[0.2] * KNOWN)) == USUAL


def test_completions_whose_probabilities_are_not_known_lower_nothing():
    unknown = Sampled(TEXT, "stop", (1, 2))
    group = LocalGroup("products", "?", b"", (unknown,) * KNOWN, Levels((1,) * KNOWN), (0.0,) * KNOWN)
    assert bounds(group) == USUAL


def test_only_the_newest_completions_count():
    assert bounds(own(*[1e-12] * KEPT), own(*[0.2] * KEPT)) == USUAL


@given(st.lists(st.floats(1e-12, 1.0), min_size=KNOWN, max_size=KEPT))
def test_each_bound_rejects_a_tenth_of_ones_own_completions_at_most(least):
    found = bounds(own(*least))
    assert sum(math.log(each) < found.token for each in least) <= len(least) / 10
    assert sum(math.log(0.5) + math.log(each) < found.text for each in least) <= len(least) / 10


def test_the_bounds_are_the_same_after_a_restart():
    before, after = MinTokenProbFilter(), MinTokenProbFilter()
    before.observe([own(*[1e-10] * KNOWN)])
    after.load_state_dict(before.state_dict())
    assert after.bounds(GROUP, USUAL) == before.bounds(GROUP, USUAL) != USUAL


@pytest.mark.parametrize(("names", "lowered"), [(["min-token-prob"], True), (["length"], False)])
def test_the_bounds_follow_the_policy_where_the_filter_is_used(names, lowered):
    filters = Filters(names, PassRates())
    filters.observe([own(*[1e-6] * KNOWN)])
    assert (filters.bounds(GROUP).token < math.log(MIN_TOKEN_PROB)) is lowered
