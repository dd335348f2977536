"""What a right answer must be, besides right, before it teaches."""

import random
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sampled_texts import Own, others, own
from sapo_node.groups.advantage import external_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import FILTERS, Bounds, Sampled
from sapo_node.groups.record import VerifiedGroup, merged
from sapo_node.learner import filters
from sapo_node.sampling.filters import MASKED, Filters, Offered
from sapo_node.sampling.filters.equation import steps_hold
from sapo_node.sampling.filters.length import KNOWN, LengthFilter
from sapo_node.sampling.weights import PassRates


@pytest.mark.parametrize(
    "good",
    [
        "7+8=15 carry 1",
        "12*3=36, 36+480=516",
        "13-7=6 borrow 1",
        "no sums here",
        "1/2=0",
        "2+3+4=9",
        "a+b=c",
        "1.5+2=4",
        "2+3*4=14",
        "7 - 9 = -2",
        "3 × 4 − 2 = 10",
        "1 000 + 2 = 1002",
        "x = 3 + 4 = 7",
        "x = -3 + 4 = 1",
        "x - 2 + 3 = 9",
        "3! + 1 + 2 = 9",
        "3**2+2=11",
        "x*2+2=5",
        "10 = 2 * 3 + 4 = 10",
        "So. 2 + 3 = 5.",
        "1. 2+2=4",
        "- 12 + 13 = 25",
        "- 12 + 13 = 1",
        "**2+2=4**",
        "so .5+2=3",
        "12 + 13\n= 25",
        "the sum is 13\n- 10 + 10 = 20\n- 2 + 3 = 5",
        "12 + 13 = 25\n- 3 apples are left",
        "12 \u2013 3 = 9",
        "2+2=5/1",
        "2,500+500=3,000",
        "2^3+1=9",
        "10÷2+1=6",
        "√9+1=4",
        "6:2+1=4",
        "7 % 3 + 1 = 2",
        "10 mod 4 + 1 = 3",
        *("10% of 50 + 5 = 10", "half of 8 + 2 = 6", "the square of 2+3=25", "1/2 of 2 + 2 = 3"),
        "2+2=2^2",
        "2+7=3²",
        "y2+3=9",
        "0x10+1=17",
        "2 x 3 + 4 = 10",
        "2x3+4=10",
        r"2\times 3+1=7",
        r"2 \cdot 3 + 1 = 7",
        "500 + 600 = 1 100",
        "500 + 600 = 1\u202f100.",
        "500 + 600 = 1 100 + 0",
        "500 000 + 600 000 = 1 100 000",
        "2 + 2 = 4 100 times",
        "6 + 3 = 2 mod 7",
        "6 + 3 = 2 (mod 7)",
        r"6 + 3 = 2 \pmod{7}",
        "6 + 3 = 2 modulo 7",
        "10 + 4 = 14 mod 5 = 4",
        "3 - 5 = 5 (mod 7)",
        "111 + 1 = 1000 (base 2)",
        "111 + 1 = 1 000 (base 2)",
        "111 + 1 = 1000_2",
        "12 + 5 = 20 (base 7)",
        "12 + 5 = 20 in base 7",
        "5 + 2 = 7 = 10 (base 7)",
        "4 + 8 = 15 (base 7)",
        "2 + 2 = 4 based on this",
    ],
)
def test_true_equations_and_what_is_none_pass(good):
    assert steps_hold(good)


@pytest.mark.parametrize(
    "bad",
    [
        *("2+2=5", "so 12*3=37.", "(9-4=6)", "7+8=16 carry 1", "2 + 2 = 5", "2+2+1=6", "3 × 4 = 11", "9-4-1=5"),
        *("step 1: 2+2=5", "4+4=8, 2+2=5", "2+2==5", "2 +  2 =   5", "2 x 3 = 7", r"2\times 3=7", "2+2=5cm", "2+2=5!"),
        *(
            "2+2=0",
            "2+2=5 100",
            "2+2=5 100+36=136",
            "2+2=5" + " 100" * 2000,
            "2+2=5 1000",
            "2+2=5 mod 7",
            "2+2=11 (mod 7)",
            "2+2=5 mod",
            "2+2=5 mod 0",
            "2+2=5 mod x",
            "2+2=5 modest",
        ),
        *(
            "So. 2+2=5. x",
            "So. 12 + 13 = 99.",
            "So.2+2=5",
            "1. 2+2=5",
            "... 2+2=5",
            "...2+2=5",
            "x = 3 + 4 = 8",
            "=2+2=5",
        ),
        *("- 2+2=5", "-2+2=5", "* 2+2=5", "**2+2=5**", "+ 2+2=5", "so: - 2+2=5", "\n* 2+2=5", "/ 2+2=5", "(- 2+2=5)"),
        *("step 1 2+2=5", "carry 1\t2+2=5", "2\t+ 2 = 5", "2\u2003+ 2 = 5", "2\u200b+2=5", "2 + 2\n= 5", "2 + 2 =\n5"),
        *("\uff12\uff0b2\uff1d5", "9 \u2013 4 = 6", "2 ✕ 3 = 7", "so \u2013 2+2=5", "• 2+2=5", "2 +\n2 = 5"),
        *(
            "the sum of 2+2=5",
            "a value of 12*3=35",
            "2\u200e+2=5",
            "2+2\ufe0f=5",
            "2\ufe622=5",
            "2+2\ufe665",
            "2+2\u207c5",
        ),
        *("2+2=5 (base 7)", "8+1=11 (base 7)", "2+2=5 base 1", "2+2=5 base 99", "2+2=5 (base", "2+2=5 baseless"),
    ],
)
def test_a_false_equation_is_kept_out(bad):
    assert not steps_hold(bad)


@given(st.integers(0, 10**8), st.sampled_from("+-*"), st.integers(0, 10**8), st.integers(0, 10**17))
def test_an_equation_holds_exactly_where_it_is_true(a, sign, b, c):
    assert steps_hold(f"so {a}{sign}{b}={c}, then") is ({"+": a + b, "-": a - b, "*": a * b}[sign] == c)


@given(st.text(alphabet="0123456789+-*/=. ", max_size=300))
def test_any_sum_can_be_read(any_text):
    assert steps_hold(any_text) in (True, False)


def test_texts_that_are_on_offer_no_more_are_not_kept():
    equations = Filters(["equation"], PassRates())
    tracemalloc.start()
    for number in range(40):
        texts = tuple(Sampled(f"{number} {place} " * 10_000, "stop") for place in range(2))
        equations.offer([VerifiedGroup("peer", 1, number, 0, "products", "?", texts, Levels((1, 0)))])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 500_000


def lengths_of(*lengths, right=True):
    """A local group of completions of so many characters, each of which is two tokens."""
    completions = tuple(Sampled("x" * length, "stop", (1,) * (2 * length)) for length in lengths)
    return Own("products", completions, Levels((int(right),) * len(lengths)))


def test_a_right_answer_longer_than_most_own_right_ones_is_kept_out():
    filter_name = LengthFilter()
    filter_name.observe([lengths_of(*range(10, 30))])
    assert filter_name.admits("products", "x" * 28)
    assert not filter_name.admits("products", "x" * 40)


def test_length_is_not_judged_before_enough_is_known():
    filter_name = LengthFilter()
    filter_name.observe([lengths_of(*[10] * (KNOWN - 1))])
    assert filter_name.admits("products", "x" * 500)


def test_the_length_of_wrong_answers_says_nothing():
    filter_name = LengthFilter()
    filter_name.observe([lengths_of(*[10] * KNOWN, right=False)])
    assert filter_name.admits("products", "x" * 500)


def test_the_learner_is_told_how_many_tokens_a_completion_may_have():
    before, after, group = LengthFilter(), LengthFilter(), others(random.Random(1), 0)
    assert before.bounds(group, Bounds()).tokens is None
    before.observe([lengths_of(*range(10, 30))])
    after.load_state_dict(before.state_dict())
    assert after.bounds(group, Bounds(-1.0, -2.0)) == Bounds(-1.0, -2.0, 56)
    assert after.bounds(replace(group, dataset="sums"), Bounds()).tokens is None


def test_only_right_answers_are_kept_out():
    group = others(random.Random(1), 0)
    bad = VerifiedGroup(
        *("a", 10, 0, 0, "products", "?"),
        tuple(Sampled("2+2=5 <answer>4</answer>", "stop") for _ in group.completions),
        group.levels,
    )
    good = replace(bad, completions=(Sampled("2+2=4", "stop"), *bad.completions[1:]))
    [offered], _ = Filters(["equation"], PassRates()).offer([good])
    assert offered.rejected == {1: "equation", 2: "equation", 3: "equation"}
    assert offered.advantages((0.9,) * 4 + (-0.9,) * 4) == (0.9, 0.0, 0.0, 0.0) + (-0.9,) * 4


def test_a_group_of_which_nothing_is_left_makes_room_for_others():
    good = others(random.Random(1), 1)
    wrong = tuple(Sampled("2+2=5 <answer>4</answer>", "stop") for _ in good.completions)
    bad = VerifiedGroup("a", 10, 0, 0, "products", "?", wrong, good.levels)
    assert Filters(["equation"], PassRates()).offer([bad, good]) == ([Offered(good)], [(bad, "equation")])


@pytest.mark.parametrize("reward", [True, False])
def test_a_group_without_advantage_is_for_others_to_leave_out(reward):
    group = others(random.Random(1), 1)
    flat = VerifiedGroup("a", 10, 0, 0, "products", "?", group.completions, Levels((reward,) * 8))
    assert Filters(["equation", "length"], PassRates()).offer([flat]) == ([Offered(flat)], [])


TWICE = "My guess is <answer>5</answer> 2+2=4. So <answer>4</answer>"
"""A correct text behind an answer at which sampling ends."""


def saying(text):
    group = others(random.Random(1), 0)
    return replace(group, completions=(Sampled(text, "stop"),) * len(group.completions))


@pytest.mark.parametrize("names", [(), FILTERS], ids=["without filters", "with all filters"])
@pytest.mark.parametrize("text", [TWICE, TWICE.replace("So <answer>4</answer>", "So <ANSWER>4</ANSWER >")])
def test_a_right_answer_behind_an_answer_is_kept_out(text, names):
    group = saying(text)
    assert Filters(names, PassRates()).offer([group]) == ([], [(group, "one-answer")])


@pytest.mark.parametrize(
    "text",
    [
        "So <answer>4</answer>",
        "<think>It goes between <answer> and </answer>.</think> So <answer>4</answer>",
        "So <answer>4</answer> as I said.",
    ],
    ids=["one answer", "tags named in thinking", "a word behind it"],
)
def test_a_right_answer_that_sampling_comes_to_passes(text):
    group = saying(text)
    assert Filters((), PassRates()).offer([group]) == ([Offered(group)], [])


def test_without_filters_everything_passes():
    group = others(random.Random(1), 0)
    filters = Filters((), PassRates())
    [offered], _ = filters.offer([group])
    assert offered.advantages((0.9,) * 8) == (0.9,) * 8
    assert filters.mask(group) == ()


def test_a_right_answer_counts_by_ones_own_pass_rate_whatever_junk_stands_beside_it():
    pass_rates = PassRates()
    pass_rates.observe([own(random.Random(1), phrases=4, right=False)])
    group = others(random.Random(1), 0)
    few = VerifiedGroup("a", 10, 0, 0, "products", "?", group.completions, Levels((1,) + (0,) * 7))
    offered, _ = Filters(["baseline"], pass_rates).offer([few, group])
    assert [each.advantages(external_advantages(each.group.levels))[0] for each in offered] == [1.0, 1.0]


def probabilities(*rows):
    return torch.tensor(rows).log()


def surprising(*rows, work=None, bounds=Bounds()):  # noqa: B008 - it is frozen
    probable = probabilities(*rows)
    before_answer = torch.ones_like(probable) if work is None else torch.tensor(work)
    return filters.surprises(probable, before_answer, [bounds] * len(rows)).tolist()


def test_a_completion_with_a_token_that_this_policy_would_not_write_surprises():
    assert surprising([0.9, 0.0009, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9]) == [True, False]


def test_a_token_that_this_policy_seldom_writes_does_not_surprise():
    assert surprising([0.5, 0.0011, 0.5]) == [False]


def test_what_stands_in_the_answer_does_not_surprise():
    assert surprising([0.5, 0.00001], work=[[1, 0]]) == [False]


def test_a_completion_of_many_tokens_that_this_policy_seldom_writes_surprises():
    assert surprising([0.0011] * 4, [0.0011] * 3 + [0.9]) == [True, False]


def test_a_policy_that_writes_rare_tokens_is_surprised_by_rarer_ones_alone():
    assert surprising([0.5, 0.0009, 0.5], [0.5, 0.00001, 0.5], bounds=Bounds(token=-9.0)) == [False, True]


def test_a_policy_that_writes_improbable_texts_is_surprised_by_less_probable_ones_alone():
    assert surprising([0.5] * 2 + [0.0011] * 4, [0.0011] * 6, bounds=Bounds(text=-30.0)) == [False, True]


def test_an_answer_follows_where_the_text_before_it_makes_it_probable():
    rows = probabilities([0.001, 0.9, 0.9], [0.001, 0.9, 0.01])
    assert filters.follows(rows, torch.tensor([[0, 1, 1], [0, 1, 1]])).tolist() == [True, False]


def masks_of(text):
    """What all filters mask of a text, where a semicolon is a habit of peers that does not pay here."""
    rng, names = random.Random(1), Filters(["n-gram"], PassRates())
    for number in range(20):
        group = own(rng)
        says = replace(group.completions[0], text=f"; {group.completions[0].text}")
        names.observe([replace(group, completions=(says, *group.completions[1:])) if number % 2 else group])
    names.offer([others(rng, number, phrase=";") for number in range(20)])
    completion = Sampled(text, "stop")
    return names.mask(VerifiedGroup("a", 10, 99, 0, "products", "?", (completion,), Levels((1,))))[0]


def test_a_completion_with_many_masked_places_is_masked_from_the_first_to_the_last():
    assert len(masks_of("so; " * MASKED)) == MASKED
    assert masks_of("so; " * (MASKED + 1)) == ((2, 4 * MASKED + 3),)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=20))
def test_merged_spans_cover_the_same_characters_in_order_and_apart(pairs):
    spans = [(begin, begin + length) for begin, length in pairs]
    found = merged(spans)
    assert {at for span in spans for at in range(*span)} == {at for span in found for at in range(*span)}
    assert all(first[1] < second[0] for first, second in pairwise(found))
