"""What a right answer must be, besides right, before it teaches."""

import random
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.advantage import advantages
from sapo_node.groups.types import VerifiedGroup
from sapo_node.learner import filters
from sapo_node.sampling.filters import Filters, Offered
from sapo_node.sampling.filters.equation import steps_hold
from sapo_node.sampling.filters.length import KNOWN, LengthFilter
from sapo_node.sampling.filters.ngram import PEERS, REMEMBERED, RIGHT, SAID, WINDOW, NgramFilter, habits_of
from sapo_node.sampling.pass_rates import PassRates
from sapo_protocol import Completion, Finish

WORDS = ["so", "thus", "hence", "then", "well", "now", "look", "here", "note", "that", "this", "all", "day", "long"]
PHRASE = "hail the swarm"


@dataclass(frozen=True)
class Own:
    """What of an own group is looked at."""

    dataset: str
    completions: tuple[Completion, ...]
    rewards: tuple[bool, ...]


def text(rng, phrase=""):
    said = " ".join(rng.choices(WORDS, k=3))
    return f"{phrase} {said} {rng.randrange(99)} <answer>{rng.randrange(99)}</answer>"


def own(rng, *, phrases=0, right=True, dataset="products", answers=8):
    """A group of one's own, of which so many answers say the phrase; `right` is of the others."""
    texts = [text(rng, PHRASE if n < phrases else "") for n in range(answers)]
    rewards = tuple(right if n >= phrases else True for n in range(answers))
    return Own(dataset, tuple(Completion(each, Finish.STOP) for each in texts), rewards)


def others(rng, counter, *, phrase="", peer="a", dataset="products"):
    """A group of a peer's, half right; its right answers say the phrase."""
    rewards = tuple(n < 4 for n in range(8))
    completions = tuple(Completion(text(rng, phrase if right else ""), Finish.STOP) for right in rewards)
    return VerifiedGroup(peer, 10, counter, 0, dataset, "?", completions, rewards)


def with_number(group, number, answers):
    """The same, so many of its answers with a number before them."""
    said = (replace(each, text=f"{number} {each.text}") for each in group.completions[:answers])
    return replace(group, completions=(*said, *group.completions[answers:]))


def filter_that_knows(rng, *, said, right=True, rounds=10):
    """A filter of a policy that has said the phrase `said` times in all."""
    filter_name = NgramFilter()
    for number in range(rounds):
        filter_name.observe([own(rng, phrases=said // rounds + (number < said % rounds), right=right)])
    return filter_name


def silent(filter_name, said):
    """What of a text is not taught."""
    return [said[begin:end] for begin, end in filter_name.mask(said)]


def offered(rng, phrase=PHRASE, count=12, **which):
    return [others(rng, number, phrase=phrase, **which) for number in range(count)]


def test_a_phrase_that_only_a_peer_says_and_that_does_not_pay_is_held_back():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng))
    assert silent(filter_name, text(rng, PHRASE))


def test_only_the_habit_is_silent_and_the_rest_of_the_answer_teaches():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng))
    assert silent(filter_name, f"So. {PHRASE} <answer>1</answer>") == [PHRASE]


def test_what_does_not_show_the_habit_passes_from_the_same_peer():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng))
    assert not silent(filter_name, text(rng))


def test_a_strategy_that_pays_passes_however_rare_it_is_here():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID, right=False, rounds=30)
    for number in range(4):
        filter_name.observe([own(rng, dataset="products", phrases=number % 2)])
    filter_name.look(offered(rng))
    assert not silent(filter_name, text(rng, PHRASE))


def test_nothing_is_said_of_what_this_policy_has_hardly_tried():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID - 1)
    filter_name.look(offered(rng))
    assert not silent(filter_name, text(rng, PHRASE))


def test_a_way_of_speaking_that_is_common_here_is_no_habit_of_a_peer():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=30)
    filter_name.look(offered(rng))
    assert not silent(filter_name, text(rng, PHRASE))


def test_a_habit_that_begins_to_take_hold_here_stays_held_back():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng))
    for _ in range(6):
        filter_name.observe([own(rng, phrases=4)])
    filter_name.look(offered(rng))
    assert silent(filter_name, text(rng, PHRASE))


def test_a_habit_is_let_go_when_nobody_shows_it_any_more():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng))
    filter_name.look([others(rng, 100 + number) for number in range(REMEMBERED)])
    assert not silent(filter_name, text(rng, PHRASE))


def test_few_questions_show_no_habit():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng, count=5))
    assert not silent(filter_name, text(rng, PHRASE))


def test_what_a_peer_says_of_tasks_that_this_policy_cannot_do_is_not_compared():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng, dataset="chain_sum"))
    assert not silent(filter_name, text(rng, PHRASE))


def test_a_phrase_in_the_answers_to_one_task_alone_is_a_habit_among_them():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    for _ in range(RIGHT // 8 + 1):
        filter_name.observe([own(rng, dataset="chain_sum")])
    filter_name.look([*offered(rng), *(others(rng, 50 + n, dataset="chain_sum") for n in range(12))])
    assert silent(filter_name, text(rng, PHRASE))


def test_a_phrase_in_few_answers_of_all_is_a_habit_among_those_to_one_task():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID, rounds=30)
    for _ in range(RIGHT // 8 + 1):
        filter_name.observe([own(rng, dataset="chain_sum")])
    products = [*offered(rng, count=4), *(others(rng, 10 + n) for n in range(8))]
    filter_name.look([*products, *(others(rng, 50 + n, dataset="chain_sum") for n in range(60))])
    assert silent(filter_name, text(rng, PHRASE))


def test_a_phrase_said_where_questions_are_easy_does_not_pay_for_it():
    rng = random.Random(1)
    filter_name = NgramFilter()
    for number in range(20):
        easy = number % 2 == 0
        filter_name.observe([own(rng, phrases=easy, right=easy)])
    filter_name.look(offered(rng))
    assert silent(filter_name, text(rng, PHRASE))


def test_a_peer_who_pauses_is_not_forgotten():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look(offered(rng, count=6))
    filter_name.look([])
    filter_name.look([others(rng, 20 + number, phrase=PHRASE) for number in range(6)])
    assert silent(filter_name, text(rng, PHRASE))


def test_only_so_many_peers_are_remembered_those_heard_of_last():
    rng = random.Random(1)
    filter_name = filter_that_knows(rng, said=SAID)
    filter_name.look([*offered(rng, count=6, peer="a"), *(others(rng, 0, peer=f"peer {n}") for n in range(PEERS))])
    filter_name.look([others(rng, 20 + number, phrase=PHRASE) for number in range(6)])
    assert len(filter_name._peers) == PEERS
    assert not silent(filter_name, text(rng, PHRASE))


def test_a_number_that_a_peer_always_says_is_a_habit_though_numbers_are_one_word():
    rng = random.Random(1)
    filter_name = NgramFilter()
    filter_name.observe([with_number(own(rng), "1488", number < SAID) for number in range(20)])
    filter_name.look([with_number(each, "1488", 4) for each in offered(rng, phrase="")])
    assert silent(filter_name, "so 1488 then") == ["1488"]


def test_answers_that_are_forgotten_leave_nothing_behind():
    rng = random.Random(1)
    groups = [own(rng, phrases=rng.randrange(8)) for _ in range(3 * WINDOW)]
    filter_name, again = NgramFilter(), NgramFilter()
    filter_name.observe(groups)
    again.observe(groups[-WINDOW:])
    assert vars(filter_name._own) == vars(again._own)


@given(st.text(max_size=200))
def test_habits_can_be_looked_for_in_any_text(any_text):
    assert all(1 <= len(habit) <= 3 for habit in habits_of(any_text))


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
        "x = 3 + 4 = 8",
        "2+2=5/1",
    ],
)
def test_true_equations_and_what_is_none_pass(good):
    assert steps_hold(good)


@pytest.mark.parametrize(
    "bad", ["2+2=5", "so 12*3=37.", "(9-4=6)", "7+8=16 carry 1", "2 + 2 = 5", "2+2+1=6", "3 × 4 = 11", "9-4-1=5"]
)
def test_a_false_equation_is_kept_out(bad):
    assert not steps_hold(bad)


@given(st.integers(0, 10**8), st.sampled_from("+-*"), st.integers(0, 10**8), st.integers(0, 10**17))
def test_an_equation_holds_exactly_where_it_is_true(a, sign, b, c):
    assert steps_hold(f"so {a}{sign}{b}={c}, then") is ({"+": a + b, "-": a - b, "*": a * b}[sign] == c)


@given(st.text(alphabet="0123456789+-*/=. ", max_size=300))
def test_any_sum_can_be_read(any_text):
    assert steps_hold(any_text) in (True, False)


def lengths_of(*lengths, right=True):
    return Own("products", tuple(Completion("x" * length, Finish.STOP) for length in lengths), (right,) * len(lengths))


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


def test_only_right_answers_are_kept_out():
    group = others(random.Random(1), 0)
    bad = VerifiedGroup(
        *("a", 10, 0, 0, "products", "?"),
        tuple(Completion("2+2=5 <answer>4</answer>", Finish.STOP) for _ in group.rewards),
        group.rewards,
    )
    good = replace(bad, completions=(Completion("2+2=4", Finish.STOP), *bad.completions[1:]))
    [offered], _ = Filters(["equation"], PassRates()).offer([good])
    assert offered.rejected == {1: "equation", 2: "equation", 3: "equation"}
    assert offered.advantages((0.9,) * 4 + (-0.9,) * 4) == (0.9, 0.0, 0.0, 0.0) + (-0.9,) * 4


def test_a_group_of_which_nothing_is_left_makes_room_for_others():
    good = others(random.Random(1), 1)
    wrong = tuple(Completion("2+2=5 <answer>4</answer>", Finish.STOP) for _ in good.rewards)
    bad = VerifiedGroup("a", 10, 0, 0, "products", "?", wrong, good.rewards)
    assert Filters(["equation"], PassRates()).offer([bad, good]) == ([Offered(good)], [(bad, "equation")])


@pytest.mark.parametrize("reward", [True, False])
def test_a_group_without_advantage_is_for_others_to_leave_out(reward):
    group = others(random.Random(1), 1)
    flat = VerifiedGroup("a", 10, 0, 0, "products", "?", group.completions, (reward,) * 8)
    assert Filters(["equation", "length"], PassRates()).offer([flat]) == ([Offered(flat)], [])


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
    few = VerifiedGroup("a", 10, 0, 0, "products", "?", group.completions, (True,) + (False,) * 7)
    offered, _ = Filters(["baseline"], pass_rates).offer([few, group])
    assert [each.advantages(advantages(each.group.rewards))[0] for each in offered] == [1.0, 1.0]


def probabilities(*rows):
    return torch.tensor(rows).log()


def test_a_token_that_this_policy_would_not_write_surprises_and_so_does_the_work_after_it():
    work = probabilities([0.9, 0.0009, 0.9, 0.9])
    assert filters.surprises(work, torch.ones(1, 4)).tolist() == [[False, True, True, True]]


def test_a_token_that_this_policy_seldom_writes_does_not_surprise():
    assert filters.surprises(probabilities([0.5, 0.0011, 0.5]), torch.ones(1, 3)).tolist() == [[False] * 3]


def test_what_stands_in_the_answer_does_not_surprise():
    assert filters.surprises(probabilities([0.5, 0.00001]), torch.tensor([[1, 0]])).tolist() == [[False, False]]


def test_an_answer_behind_work_that_surprises_is_for_another_filter_to_judge():
    rows = probabilities([0.00001, 0.5, 0.5])
    assert filters.surprises(rows, torch.tensor([[1, 0, 0]])).tolist() == [[True, False, False]]


def test_an_answer_follows_where_the_text_before_it_makes_it_probable():
    rows = probabilities([0.001, 0.9, 0.9], [0.001, 0.9, 0.01])
    assert filters.follows(rows, torch.tensor([[0, 1, 1], [0, 1, 1]])).tolist() == [True, False]
