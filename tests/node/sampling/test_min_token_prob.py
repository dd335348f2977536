"""The bound of `min-token-prob`: how improbable a token of a peer may be, by what this policy writes itself."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampled_texts import others
from sapo_node.groups.messages import MIN_TOKEN_PROB, Sampled
from sapo_node.groups.types import LocalGroup
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.filters.min_token_prob import KEPT, KNOWN, MinTokenProbFilter
from sapo_node.sampling.pass_rates import PassRates

GROUP = others(random.Random(1), 0)


def own(*least, right=True, dataset="products"):
    """A local group of completions, each with a least probable token of this probability."""
    completions = tuple(Sampled("so", "stop", (1, 2), (math.log(0.5), math.log(each))) for each in least)
    return LocalGroup(dataset, "?", b"", completions, (right,) * len(least), (0.0,) * len(least))


def bound(*groups):
    some_filter = MinTokenProbFilter()
    some_filter.observe(groups)
    return some_filter.min_token_prob(GROUP)


def test_a_policy_of_which_little_is_known_has_the_usual_bound():
    assert bound(own(*[1e-6] * (KNOWN - 1))) == MIN_TOKEN_PROB


def test_a_policy_that_writes_rare_tokens_lowers_the_bound_to_those():
    assert bound(own(*[1e-6] * KNOWN)) == pytest.approx(1e-6)


def test_a_policy_that_writes_no_rare_token_keeps_the_usual_bound():
    assert bound(own(*[0.2] * KNOWN)) == pytest.approx(MIN_TOKEN_PROB)


def test_one_rare_token_among_many_completions_lowers_nothing():
    assert bound(own(1e-6, *[0.2] * KNOWN)) == pytest.approx(MIN_TOKEN_PROB)


def test_incorrect_completions_lower_nothing():
    assert bound(own(*[1e-6] * KNOWN, right=False)) == MIN_TOKEN_PROB


def test_for_a_task_that_is_hardly_solved_completions_to_all_tasks_lower_the_bound():
    assert bound(own(*[1e-6] * KNOWN, dataset="others"), own(0.2)) == pytest.approx(1e-6)


def test_for_a_task_that_is_solved_completions_to_other_tasks_lower_nothing():
    assert bound(own(*[1e-6] * KNOWN, dataset="others"), own(*[0.2] * KNOWN)) == pytest.approx(MIN_TOKEN_PROB)


def test_completions_whose_probabilities_are_not_known_lower_nothing():
    group = LocalGroup("products", "?", b"", (Sampled("so", "stop", (1, 2)),) * KNOWN, (True,) * KNOWN, (0.0,) * KNOWN)
    assert bound(group) == MIN_TOKEN_PROB


def test_only_the_newest_completions_count():
    assert bound(own(*[1e-6] * KEPT), own(*[0.2] * KEPT)) == pytest.approx(MIN_TOKEN_PROB)


@given(st.lists(st.floats(1e-9, 1.0), min_size=KNOWN, max_size=KEPT))
def test_the_bound_rejects_a_tenth_of_ones_own_completions_at_most(least):
    lowest = bound(own(*least))
    assert sum(each < lowest * (1 - 1e-9) for each in least) <= len(least) / 10


def test_the_bound_is_the_same_after_a_restart():
    before, after = MinTokenProbFilter(), MinTokenProbFilter()
    before.observe([own(*[1e-5] * KNOWN)])
    after.load_state_dict(before.state_dict())
    assert after.min_token_prob(GROUP) == before.min_token_prob(GROUP) < MIN_TOKEN_PROB


@pytest.mark.parametrize(("names", "lowered"), [(["min-token-prob"], True), (["length"], False)])
def test_the_bound_follows_the_policy_where_the_filter_is_used(names, lowered):
    filters = Filters(names, PassRates())
    filters.observe([own(*[1e-6] * KNOWN)])
    assert (filters.min_token_prob(GROUP) < MIN_TOKEN_PROB) is lowered
