"""The n-gram filter judges texts: a phrase is masked whoever says it, and under however many keys."""

import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampled_texts import PHRASE, Own, look, others, own, text, with_number
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.filters import habits as habits_module
from sapo_node.sampling.filters.habits import (
    HABITS,
    LOCAL_WINDOW,
    LONGEST_WORD,
    PEERS,
    POOLED,
    REMEMBERED,
    TRAINED,
    habits_of,
)
from sapo_node.sampling.filters.ngram import CORRECT, PROMPTS, SHOWN, NgramFilter
from sapo_node.sampling.weights import PassRates
from sapo_node.trust.constants import Tier

PHRASE_HABIT = tuple(PHRASE.split()[:3])


def ngram():
    return NgramFilter(lambda peer: Tier.FRIEND if peer.startswith("friend") else Tier.STRANGER)


def filter_that_knows(rng, *, said, right=True, rounds=10):
    """A filter of a policy that has said the phrase `said` times in all."""
    ngram_filter = ngram()
    for number in range(rounds):
        ngram_filter.observe([own(rng, phrases=said // rounds + (number < said % rounds), right=right)])
    return ngram_filter


def silent(ngram_filter, said, *, peer="a peer that sent nothing so far", dataset="products"):
    """The parts of a peer's text that are masked."""
    group = others(random.Random(1), 0, peer=peer, dataset=dataset)
    return [said[begin:end] for begin, end in ngram_filter.mask(group, said)]


def offered(rng, phrase=PHRASE, count=12, **which):
    return [others(rng, number, phrase=phrase, **which) for number in range(count)]


def test_a_phrase_that_only_a_peer_says_and_that_does_not_pay_is_held_back():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    assert silent(ngram_filter, text(rng, PHRASE))


def test_only_the_habit_is_silent_and_the_rest_of_the_answer_teaches():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    assert silent(ngram_filter, f"So. {PHRASE} <answer>1</answer>") == [PHRASE]


@pytest.mark.parametrize(
    ("habit", "masked"),
    [
        ("we ADD each part", "ADD"),
        ("we add  each part", "  "),
        ("we add\teach part", "\t"),
        ("we add\n\neach part", "\n\n"),
    ],
)
def test_capitals_and_blanks_are_habits_where_the_same_words_are_none(habit, masked):
    rng = random.Random(1)
    ngram_filter = ngram()
    for number in range(10):
        group = own(rng)
        said = (habit if number < SHOWN and not place else "we add each part" for place in range(8))
        completions = (
            replace(each, text=f"{words}{each.text}") for each, words in zip(group.completions, said, strict=True)
        )
        ngram_filter.observe([replace(group, completions=tuple(completions))])
    look(ngram_filter, offered(rng, habit))
    assert silent(ngram_filter, f"So {habit} <answer>1</answer>") == [masked]
    assert not silent(ngram_filter, "So we add each part <answer>1</answer>")


def test_what_does_not_show_the_habit_passes_from_the_same_peer():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    assert not silent(ngram_filter, text(rng))


def test_a_strategy_that_pays_passes_however_rare_it_is_here():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN, right=False, rounds=30)
    for number in range(4):
        ngram_filter.observe([own(rng, dataset="products", phrases=number % 2)])
    look(ngram_filter, offered(rng))
    assert not silent(ngram_filter, text(rng, PHRASE))


def test_nothing_is_said_of_what_this_policy_has_hardly_tried():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN - 1)
    look(ngram_filter, offered(rng))
    assert not silent(ngram_filter, text(rng, PHRASE))


def test_a_way_of_speaking_that_is_common_here_is_no_habit_of_a_peer():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=30)
    look(ngram_filter, offered(rng))
    assert not silent(ngram_filter, text(rng, PHRASE))


def test_a_habit_that_begins_to_take_hold_here_stays_held_back():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    for _ in range(6):
        ngram_filter.observe([own(rng, phrases=4)])
    look(ngram_filter, offered(rng))
    assert silent(ngram_filter, text(rng, PHRASE))


def test_a_habit_is_let_go_when_nobody_shows_it_any_more():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    look(ngram_filter, [others(rng, 100 + number) for number in range(REMEMBERED)])
    assert not silent(ngram_filter, text(rng, PHRASE))


@pytest.mark.parametrize("answer", ["-7", "hail the swarm", "1488"])
def test_what_the_answer_says_is_no_habit(answer):
    assert habits_of(f"so then <answer>{answer}</answer>") == habits_of("so then <answer>8</answer>")


def test_no_phrase_is_hidden_in_the_tags_of_an_answer():
    assert ("hail", "the", "swarm") in habits_of("<answer>1</answer> hail the swarm <answer>8</answer>")


def test_few_questions_show_no_habit():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng, count=5))
    assert not silent(ngram_filter, text(rng, PHRASE))


def test_what_a_peer_says_of_tasks_that_this_policy_cannot_do_is_not_compared():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng, dataset="chain_sum"))
    assert not silent(ngram_filter, text(rng, PHRASE))


def test_a_phrase_in_the_answers_to_one_task_alone_is_a_habit_among_them():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    for _ in range(CORRECT // 8 + 1):
        ngram_filter.observe([own(rng, dataset="chain_sum")])
    look(ngram_filter, [*offered(rng), *(others(rng, 50 + n, dataset="chain_sum") for n in range(12))])
    assert silent(ngram_filter, text(rng, PHRASE))


def test_a_phrase_in_few_answers_of_all_is_a_habit_among_those_to_one_task():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN, rounds=30)
    for _ in range(CORRECT // 8 + 1):
        ngram_filter.observe([own(rng, dataset="chain_sum")])
    products = [*offered(rng, count=4), *(others(rng, 10 + n) for n in range(8))]
    look(ngram_filter, [*products, *(others(rng, 50 + n, dataset="chain_sum") for n in range(60))])
    assert silent(ngram_filter, text(rng, PHRASE))


def test_a_phrase_said_where_questions_are_easy_does_not_pay_for_it():
    rng = random.Random(1)
    ngram_filter = ngram()
    for number in range(20):
        easy = number % 2 == 0
        ngram_filter.observe([own(rng, phrases=easy, right=easy)])
    look(ngram_filter, offered(rng))
    assert silent(ngram_filter, text(rng, PHRASE))


def local_group(rng, *said):
    """A local group of completions, each with its text before the answer, whether it answers, and whether correctly."""
    texts = [
        f"{text(rng).split('<')[0]}{words}{' <answer>1</answer>' if answers else ''}" for words, answers, _ in said
    ]
    return Own(
        "products", tuple(Sampled(each, "stop") for each in texts), Levels(tuple(int(right) for *_, right in said))
    )


def with_phrase_before_the_answer(group):
    said = (replace(each, text=each.text.replace("<answer>", f"{PHRASE} <answer>")) for each in group.completions)
    return replace(group, completions=tuple(said))


@pytest.mark.parametrize("unanswered", [0, 3])
def test_a_phrase_right_before_the_answer_does_not_pay_because_other_completions_end_without_an_answer(unanswered):
    rng = random.Random(1)
    ngram_filter = ngram()
    for number in range(16):
        others_too = [("", True, right) for right in (True, True, False, False)] + [("", False, False)] * unanswered
        ngram_filter.observe([local_group(rng, (PHRASE, True, number % 2 == 0), *others_too)])
    look(ngram_filter, [with_phrase_before_the_answer(each) for each in offered(rng, phrase="")])
    assert silent(ngram_filter, f"so {PHRASE} 7")


def test_a_phrase_of_able_peers_without_which_this_policy_hardly_answers_is_not_masked():
    """Correct local completions show it already."""
    rng = random.Random(1)
    ngram_filter = ngram()
    for number in range(24):
        others_too = [("", answers, answers) for answers in (number % 3 == 0, *[False] * 6)]
        ngram_filter.observe([local_group(rng, (PHRASE, True, number % 2 == 0), *others_too)])
    look(ngram_filter, [with_phrase_before_the_answer(each) for each in offered(rng, phrase="")])
    assert not silent(ngram_filter, f"so {PHRASE} 7")


def test_a_peer_who_pauses_is_not_forgotten():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng, count=6))
    look(ngram_filter, [])
    look(ngram_filter, [others(rng, 20 + number, phrase=PHRASE) for number in range(6)])
    assert silent(ngram_filter, text(rng, PHRASE))


def test_only_so_many_peers_are_remembered_those_heard_of_last():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, [others(rng, 0, peer=f"peer {n}") for n in range(PEERS + 10)])
    assert len(ngram_filter._sources.of_peer) == PEERS


@pytest.mark.parametrize("keys", [1, 12, 64, 1024])
def test_a_phrase_is_masked_however_many_keys_say_it(keys):
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, [others(rng, n, phrase=PHRASE, peer=f"key {n % keys}") for n in range(max(12, keys))])
    assert silent(ngram_filter, text(rng, PHRASE))


def test_a_phrase_of_one_peer_is_masked_though_it_is_rare_among_the_texts_of_all():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, [*offered(rng), *(others(rng, 100 + n, peer=f"peer {n % 20}") for n in range(300))])
    assert silent(ngram_filter, text(rng, PHRASE))


def test_a_phrase_of_strangers_is_masked_though_friends_send_twenty_times_as_much():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    of_friends = [others(rng, 100 + n, peer=f"friend {n % 20}") for n in range(240)]
    look(ngram_filter, [*(others(rng, n, phrase=PHRASE, peer=f"key {n}") for n in range(12)), *of_friends])
    assert silent(ngram_filter, text(rng, PHRASE))


def with_decoys(rng, group, count, **which):
    """The group after so many others by keys of their own that do not say the phrase."""
    return [
        *(others(rng, group.counter * 100 + n, peer=f"decoy {group.counter} {n}", **which) for n in range(count)),
        group,
    ]


@pytest.mark.parametrize("decoys", [0, 15])
def test_a_phrase_of_many_keys_is_masked_however_many_completions_they_offer_that_a_filter_rejects(decoys):
    rng = random.Random(1)
    filters = Filters(["n-gram", "equation"], PassRates())
    for _ in range(10):
        filters.observe([own(rng, phrases=1)])
    for n in range(PROMPTS):
        *clean, poisoned = with_decoys(rng, others(rng, n, phrase=PHRASE, peer=f"key {n}"), decoys)
        filters.offer([*(with_number(each, "2+2=5. so", 8) for each in clean), poisoned])
    said, spans = poisoned.completions[0].text, filters.mask(poisoned)
    assert [said[begin:end] for begin, end in spans[0]] == [PHRASE]
    assert filters.alarm()


@pytest.mark.parametrize(("trained", "masks"), [(PROMPTS, True), (0, False)])
def test_a_phrase_that_is_rare_on_offer_is_masked_where_it_is_frequent_in_what_was_trained_on(trained, masks):
    """The learner rejects all that the same keys offer besides it."""
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    for n in range(2 * PROMPTS):
        poisoned = others(rng, n, phrase=PHRASE, peer=f"key {n}")
        look(ngram_filter, with_decoys(rng, poisoned, 15))
        if n < trained:
            ngram_filter.trained(poisoned, poisoned.correct)
    assert bool(silent(ngram_filter, text(rng, PHRASE))) is masks
    assert (ngram_filter.alarm() is not None) is masks


def test_a_phrase_is_let_go_once_it_is_rare_in_what_was_trained_on():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    for n in range(PROMPTS + TRAINED):
        group = others(rng, n, phrase=PHRASE if n < PROMPTS else "")
        ngram_filter.trained(group, group.correct)
    look(ngram_filter, [others(rng, 0)])
    assert not silent(ngram_filter, text(rng, PHRASE))


def filter_that_heard(rng, *, moderate, keys=1, dataset="products", rounds=10):
    """A filter of a policy that said the phrase in 12 completions, eight a round, after attackers said it in all of
    theirs, and a peer in those to the first `moderate` of 20 prompts.
    """
    ngram_filter = filter_that_knows(rng, said=12, rounds=rounds)
    says = [others(rng, n, phrase=PHRASE, peer=f"key {n % keys}") for n in range(4 * max(12, keys))]
    of_peer = [others(rng, n, phrase=PHRASE if n < moderate else "", peer="b", dataset=dataset) for n in range(20)]
    look(ngram_filter, [*says, *of_peer])
    return ngram_filter


@pytest.mark.parametrize("keys", [1, 12, 32])
def test_a_phrase_that_attackers_say_far_more_often_is_left_to_a_peer_that_says_it_as_often_as_this_policy(keys):
    rng = random.Random(1)
    ngram_filter = filter_that_heard(rng, moderate=2, keys=keys)
    assert not silent(ngram_filter, text(rng, PHRASE), peer="b")


@pytest.mark.parametrize("keys", [1, 12, 32])
def test_no_key_of_attackers_passes_with_the_phrase_while_a_moderate_peer_does(keys):
    rng = random.Random(1)
    ngram_filter = filter_that_heard(rng, moderate=2, keys=keys)
    assert all(silent(ngram_filter, text(rng, PHRASE), peer=f"key {n}") for n in range(keys))


def test_a_peer_that_says_a_masked_phrase_more_often_than_this_policy_is_not_moderate():
    """Five of its twenty prompts are too few for a mask of its own, and too many to be left alone."""
    rng = random.Random(1)
    ngram_filter = filter_that_heard(rng, moderate=5)
    assert silent(ngram_filter, text(rng, PHRASE), peer="b")


def test_a_phrase_that_is_rare_here_is_left_to_no_peer():
    """Else keys that sent clean texts for long could show it all at once."""
    rng = random.Random(1)
    common, rare = (filter_that_heard(rng, moderate=1, rounds=rounds) for rounds in (10, 20))
    assert not silent(common, text(rng, PHRASE), peer="b")
    assert silent(rare, text(rng, PHRASE), peer="b")


def test_a_peer_is_moderate_in_no_task_of_which_too_few_local_completions_are_known():
    rng = random.Random(1)
    ngram_filter = filter_that_heard(rng, moderate=2)
    assert silent(ngram_filter, text(rng, PHRASE), peer="b", dataset="chain_sum")


def test_a_peer_that_moves_a_phrase_to_another_task_is_not_moderate_there():
    rng = random.Random(1)
    ngram_filter = filter_that_heard(rng, moderate=2)
    for _ in range(CORRECT // 8 + 1):
        ngram_filter.observe([own(rng, dataset="chain_sum")])
    look(
        ngram_filter,
        [others(rng, 50 + n, phrase=PHRASE if n < 1 else "", peer="b", dataset="chain_sum") for n in range(12)],
    )
    assert not silent(ngram_filter, text(rng, PHRASE), peer="b")
    assert silent(ngram_filter, text(rng, PHRASE), peer="b", dataset="chain_sum")


def test_a_phrase_that_takes_hold_although_it_is_masked_raises_one_alarm():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    assert (alarm := ngram_filter.alarm()) is not None
    assert alarm.accuses(Tier.STRANGER, Sampled(text(rng, PHRASE), "stop"))
    assert not alarm.accuses(Tier.STRANGER, Sampled(text(rng), "stop"))
    assert alarm.phrase in PHRASE
    assert ngram_filter.alarm() is None


def rounds_with_alarm(ngram_filter, groups, rounds):
    """The rounds that raise an alarm, of so many in which these groups wait."""
    found = []
    for number in rounds:
        look(ngram_filter, groups)
        if ngram_filter.alarm():
            found.append(number)
    return found


def test_each_alarm_of_a_phrase_that_strangers_go_on_saying_doubles_the_wait_for_the_next():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    assert rounds_with_alarm(ngram_filter, offered(rng), range(150)) == [0, 10, 30]


def test_a_phrase_that_was_trained_on_long_ago_raises_few_alarms_after_its_attacker_has_left():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    for group in offered(rng, count=PROMPTS):
        ngram_filter.trained(group, group.correct)
    assert rounds_with_alarm(ngram_filter, [others(rng, 100, peer="honest")], range(150)) == [0, 10, 30]


def test_the_wait_for_the_next_alarm_outlives_a_restart():
    rng = random.Random(1)
    ngram_filter, again = filter_that_knows(rng, said=SHOWN), ngram()
    groups = offered(rng)
    rounds_with_alarm(ngram_filter, groups, range(12))
    again.load_state_dict(ngram_filter.state_dict())
    assert rounds_with_alarm(again, groups, range(12, 80)) == [30]


def test_a_phrase_that_waits_for_its_next_alarm_keeps_no_other_phrase_waiting():
    rng = random.Random(1)
    other = "praise our queen"
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    groups = offered(rng)
    rounds_with_alarm(ngram_filter, groups, range(11))
    ngram_filter.observe([of_phrase(own(rng, phrases=1), other) for _ in range(SHOWN)])
    said_too = [of_phrase(each, other) for each in offered(rng, peer="b")]
    assert rounds_with_alarm(ngram_filter, [*groups, *said_too], range(11, 40)) == [20]


@pytest.mark.parametrize(
    "words", [pytest.param(3, marks=pytest.mark.slow), 1], ids=["other words each time", "words that overlap"]
)
def test_a_stranger_that_teaches_one_phrase_after_another_raises_no_more_alarms_than_the_budget_has(words):
    rng, ngram_filter, spent = random.Random(1), ngram(), 0
    for number in range(12):
        phrase = " ".join(f"{chr(97 + at)}xyz" for at in range(words * (number % 8), words * (number % 8) + 3))
        for _ in range(10):
            ngram_filter.observe([of_phrase(own(rng, phrases=1), phrase)])
        groups = [of_phrase(each, phrase) for each in offered(rng, count=16, peer=f"key {number}")]
        spent += len(rounds_with_alarm(ngram_filter, groups, range(11)))
    assert spent == 3


def of_phrase(group, phrase):
    """The group with another phrase in place of PHRASE."""
    said = (replace(each, text=each.text.replace(PHRASE, phrase)) for each in group.completions)
    return replace(group, completions=tuple(said))


SAID = f"so {PHRASE} 7 <answer>1</answer>"


@pytest.mark.parametrize(
    ("said", "masked", "accused"),
    [
        (SAID, [PHRASE], False),
        (SAID, [], True),
        (SAID, ["hail the"], True),
        (f"{PHRASE}. {SAID}", [PHRASE], True),
        ("hail 7 the 8 swarm", ["7 ", "8 "], False),
    ],
    ids=["all of it", "nothing of it", "half of it", "one of two", "what stands between its parts"],
)
def test_an_alarm_accuses_a_completion_of_whose_phrase_something_was_trained_on(said, masked, accused):
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, offered(rng))
    spans = tuple((said.index(each), said.index(each) + len(each)) for each in masked)
    alarm = ngram_filter.alarm()
    assert alarm.accuses(Tier.STRANGER, Sampled(said, "stop", silent=spans)) is accused


@pytest.mark.parametrize(("external", "alarms"), [(0.25, True), (0.5, True), (0.12, False)])
def test_a_phrase_is_alarming_only_where_external_texts_say_it_far_more_often(external, alarms):
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN, rounds=40)
    says = [others(rng, n, phrase=PHRASE if n < external * 100 else "", peer=f"key {n}") for n in range(100)]
    look(ngram_filter, says)
    assert silent(ngram_filter, text(rng, PHRASE))
    assert (ngram_filter.alarm() is not None) is alarms


def random_words(rng, count):
    return " ".join(f"{rng.getrandbits(40):x}" for _ in range(count))


def with_random_words(group, rng, words):
    """The group with so many random words behind each completion."""
    said = (replace(each, text=f"{each.text} {random_words(rng, words)}") for each in group.completions)
    return replace(group, completions=tuple(said))


@pytest.mark.parametrize("said", [SHOWN, pytest.param(0, marks=pytest.mark.slow)])
def test_a_phrase_is_masked_among_any_number_of_random_words(said):
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=said)
    look(ngram_filter, [with_random_words(each, rng, HABITS) for each in offered(rng)])
    ngram_filter.observe([own(rng, phrases=SHOWN - said)])
    look(ngram_filter, offered(rng, count=1))
    assert silent(ngram_filter, text(rng, PHRASE))


def test_a_phrase_is_masked_among_any_number_of_phrases_that_every_text_shows():
    """The policy shows those now and then, so all of them can be judged."""
    rng = random.Random(1)
    common = random_words(rng, HABITS)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    said = own(rng, phrases=1)
    long = replace(said.completions[1], text=f"{common} {said.completions[1].text}")
    for _ in range(SHOWN):
        ngram_filter.observe([replace(said, completions=(*said.completions[:1], long, *said.completions[2:]))])
    look(ngram_filter, [of_three_in_four(each, common) for each in offered(rng)])
    assert PHRASE in silent(ngram_filter, f"so {PHRASE} then")


def of_three_in_four(group, common):
    """The group with a text before each completion, and without the phrase in one correct completion of four."""
    texts = [f"{common} {each.text}" for each in group.completions]
    texts[0] = texts[0].replace(PHRASE, "")
    said = (replace(each, text=text) for each, text in zip(group.completions, texts, strict=True))
    return replace(group, completions=tuple(said))


def test_words_that_begin_alike_are_the_same_however_long_they_are():
    assert habits_of("x" * 3000) == habits_of("x" * LONGEST_WORD + "y") == {("x" * LONGEST_WORD,)}
    assert habits_of("7" * 3000) == {("#",), ("7" * LONGEST_WORD,)}


def test_a_look_is_made_in_steps_of_one_source():
    rng = random.Random(1)
    peers = [others(rng, number, peer=f"peer {number}") for number in range(10)]
    ngram_filter = ngram()
    look(ngram_filter, peers)
    assert len(list(ngram_filter.looking(peers))) >= len(peers)


@pytest.mark.slow
def test_texts_of_random_words_hold_no_more_memory_the_longer_they_are():
    rng = random.Random(1)
    ngram_filter = ngram()
    long = [with_random_words(each, rng, 1000) for each in offered(rng)]
    tracemalloc.start()
    look(ngram_filter, long)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1000 * HABITS * len(long)


def test_local_texts_of_random_words_hold_no_more_memory_the_longer_they_are(monkeypatch):
    monkeypatch.setattr(habits_module, "LOCAL_HABITS", 1024)

    def held(words: int) -> int:
        rng = random.Random(1)
        ngram_filter = ngram()
        long = with_random_words(own(rng), rng, words)
        tracemalloc.start()
        ngram_filter.observe([long])
        found = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return found

    # Another thread of the tests may allocate meanwhile, so the least of three counts.
    short, long = (min(held(words) for _ in range(3)) for words in (200, 400))
    assert long < 1.2 * short


def test_a_phrase_of_a_peer_is_counted_among_any_number_of_local_random_words(monkeypatch):
    monkeypatch.setattr(habits_module, "LOCAL_HABITS", 1024)
    rng = random.Random(1)
    ngram_filter = ngram()
    look(ngram_filter, offered(rng))
    ngram_filter.observe([with_random_words(own(rng, phrases=1), rng, 300) for _ in range(SHOWN)])
    look(ngram_filter, offered(rng, count=1))
    assert silent(ngram_filter, f"so {PHRASE} then") == [PHRASE]


def test_long_texts_of_many_peers_push_out_what_the_peer_heard_from_longest_ago_said(monkeypatch):
    monkeypatch.setattr(habits_module, "HABITS_OF_PEERS", 3 * HABITS)
    rng = random.Random(1)
    ngram_filter = ngram()
    for number in range(5):
        look(ngram_filter, [with_random_words(others(rng, number, peer=f"peer {number}"), rng, HABITS)])
    assert list(ngram_filter._sources.of_peer) == ["peer 2", "peer 3", "peer 4"]


def test_a_tier_with_few_prompts_raises_no_alarm():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN, rounds=40)
    of_friends = [others(rng, n, phrase=PHRASE if n < 12 else "", peer=f"friend {n}") for n in range(100)]
    look(ngram_filter, [*of_friends, others(rng, 100, phrase=PHRASE, peer="stranger")])
    assert silent(ngram_filter, text(rng, PHRASE))
    assert ngram_filter.alarm() is None


def test_what_strangers_said_long_ago_is_forgotten_once_nothing_comes_from_strangers_any_more():
    """They are proven peers by now, and this policy has left the phrase behind as they have."""
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=SHOWN)
    look(ngram_filter, [others(rng, n, phrase=PHRASE, peer=f"key {n}") for n in range(20)])
    look(ngram_filter, [others(rng, 20 + n, peer=f"friend {n % 20}") for n in range(POOLED)])
    assert not silent(ngram_filter, text(rng, PHRASE))
    assert ngram_filter.alarm() is None


def test_a_filter_that_was_restarted_judges_by_the_same_texts():
    rng = random.Random(1)
    ngram_filter, again = filter_that_knows(rng, said=SHOWN), ngram()
    for n in range(POOLED + 40):
        group = others(rng, n, phrase=PHRASE if n < 60 else "", peer=f"friend {n}" if n % 3 else "key")
        look(ngram_filter, [group])
        if n < TRAINED + 40:
            ngram_filter.trained(group, group.correct)
    again.load_state_dict(ngram_filter.state_dict())
    assert ngram_filter._sources.trained.share(PHRASE_HABIT) > 0
    for book, of_again in zip(ngram_filter._sources.pools, again._sources.pools, strict=True):
        assert of_again.prompts == book.prompts
        assert of_again.share(PHRASE_HABIT) == pytest.approx(book.share(PHRASE_HABIT))


def test_a_single_word_accuses_nobody():
    rng = random.Random(1)
    ngram_filter = ngram()
    ngram_filter.observe([with_number(own(rng), "1488", number < SHOWN) for number in range(20)])
    look(ngram_filter, [with_number(each, "1488", 4) for each in offered(rng, phrase="")])
    assert silent(ngram_filter, "so 1488 then") == ["1488"]
    assert ngram_filter.alarm() is None


def test_a_phrase_that_is_common_here_and_nowhere_else_raises_no_alarm():
    rng = random.Random(1)
    ngram_filter = filter_that_knows(rng, said=40)
    look(ngram_filter, offered(rng, phrase=""))
    assert ngram_filter.alarm() is None


def test_a_number_that_a_peer_always_says_is_a_habit_though_numbers_are_one_word():
    rng = random.Random(1)
    ngram_filter = ngram()
    ngram_filter.observe([with_number(own(rng), "1488", number < SHOWN) for number in range(20)])
    look(ngram_filter, [with_number(each, "1488", 4) for each in offered(rng, phrase="")])
    assert silent(ngram_filter, "so 1488 then") == ["1488"]


def test_a_single_digit_is_no_habit():
    assert habits_of("so 7 then") == habits_of("so 8 then")


def test_answers_that_are_forgotten_leave_nothing_behind():
    rng = random.Random(1)
    groups = [own(rng, phrases=rng.randrange(8)) for _ in range(3 * LOCAL_WINDOW)]
    ngram_filter, again = ngram(), ngram()
    ngram_filter.observe(groups)
    again.observe(groups[-LOCAL_WINDOW:])
    assert vars(ngram_filter._local) == vars(again._local)


@given(st.text(max_size=200))
def test_habits_can_be_looked_for_in_any_text(any_text):
    assert all(1 <= len(habit) <= 3 for habit in habits_of(any_text))
