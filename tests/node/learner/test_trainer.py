"""The training step: what it updates, what it leaves alone and what it reports."""

import copy
import functools
import json
import math
from dataclasses import replace

import pytest
import torch

from sapo_node.groups.advantage import advantages
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import (
    Bounds,
    GenerateRequest,
    GroupReport,
    LearnerOptions,
    Refusal,
    RequestError,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.generate import generate
from sapo_node.learner.trainer import LEAST_RATE, Trainer
from tiny_models import policy_of

torch.set_num_threads(1)

OPTIONS = LearnerOptions(checkpoints="", groups=2, completions=4)
QUESTION = "What is 2 + 2?"


def trainer_of(options=OPTIONS):
    return Trainer(policy_of(options), options)


@pytest.fixture
def trainer():
    return trainer_of()


@functools.cache
def sampled(completions, seed, max_bytes=1024):
    """Completions of the untrained seed policy."""
    request = GenerateRequest((Prompt(QUESTION),), completions, 80, seed)
    return generate(policy_of(OPTIONS), request, max_bytes)[0]


def local(rewards=(1, 0, 0, 0), seed=1):
    return TrainGroup("local", QUESTION, 1.0, advantages(rewards), sampled(len(rewards), seed))


def external(*texts, rewards, weight=1.0):
    return TrainGroup("external", QUESTION, weight, advantages(rewards), tuple(Sampled(text, "stop") for text in texts))


def weights(trainer):
    return [value.detach().clone() for value in trainer.parameters]


def same(before, trainer):
    return all(torch.equal(old, new) for old, new in zip(before, trainer.parameters, strict=True))


def logprob(trainer, text):
    policy = trainer.policy
    prompt, tokens = policy.prompt_tokens(Prompt(QUESTION)), policy.encode_foreign(text)
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(tokens)), tokens].sum().item()


def test_a_step_moves_the_policy_from_what_was_wrong_to_what_was_right(trainer):
    good, bad = "so <answer>4</answer>", "so <answer>5</answer>"
    before = logprob(trainer, good) - logprob(trainer, bad)
    trainer.train(TrainRequest(1, (external(good, bad, rewards=(1, 0)),), "on-policy"))
    assert logprob(trainer, good) - logprob(trainer, bad) > before


def test_a_step_is_as_long_whatever_the_largest_round_may_be():
    moved = []
    for groups in (2, 2_000):
        trainer = Trainer(policy_of(OPTIONS), replace(OPTIONS, groups=groups))
        before = weights(trainer)
        trainer.train(TrainRequest(1, (external("so <answer>4</answer>", "no", rewards=(1, 0)),)))
        moved.append(sum(float((new - old).abs().sum()) for old, new in zip(before, weights(trainer), strict=True)))
    assert moved[1] == pytest.approx(moved[0], rel=1e-3)


def test_positive_training_makes_what_worked_elsewhere_likelier_here(trainer):
    good, bad = "so <answer>4</answer>", "so <answer>5</answer>"
    before = logprob(trainer, good)
    trainer.train(TrainRequest(1, (external(good, bad, rewards=(1, 0)),), "positive-only"))
    assert logprob(trainer, good) > before


def test_a_group_without_advantage_updates_nothing_and_the_step_counts(trainer):
    before = weights(trainer)
    report = trainer.train(TrainRequest(1, (local((0, 0, 0, 0)),)))
    assert report.skipped == "no group has an advantage"
    assert same(before, trainer)
    assert trainer.step == 1


@pytest.mark.parametrize("failure", ["raise_exception('no')", "1 // 0"])
def test_a_prompt_on_which_the_chat_template_fails_costs_its_group_alone(trainer, failure):
    template = "{{ %s if 'Why' in messages[-1]['content'] else messages[-1]['content'] }}"
    tokenizer = copy.deepcopy(trainer.policy.tokenizer)
    tokenizer.chat_template = template % failure
    trainer.policy = replace(trainer.policy, tokenizer=tokenizer)
    good, bad = external("4", "5", rewards=(1, 0)), replace(external("4", "5", rewards=(1, 0)), prompt="Why?", id="bad")
    report = trainer.train(TrainRequest(1, (good, bad)))
    assert report.groups["bad"].refused is Refusal.UNREADABLE
    assert report.groups["0"].tokens


def test_a_flat_group_beside_another_changes_nothing(trainer):
    other = trainer_of()
    group = local()
    trainer.train(TrainRequest(1, (group,)))
    other.train(TrainRequest(1, (group, local((1, 1, 1, 1), seed=2))))
    assert same(weights(other), trainer)


@pytest.mark.parametrize("step", [0, 2])
def test_a_step_out_of_order_is_refused(trainer, step):
    with pytest.raises(RequestError, match="does not follow step 0"):
        trainer.train(TrainRequest(step, (local(),)))


def test_a_step_is_not_trained_twice(trainer):
    group = local()
    trainer.train(TrainRequest(1, (group,)))
    before = weights(trainer)
    with pytest.raises(RequestError, match="does not follow"):
        trainer.train(TrainRequest(1, (group,)))
    assert same(before, trainer)


@pytest.mark.parametrize(("objective", "completions"), [("positive-only", 1), ("on-policy", 2)])
def test_the_external_objective_decides_what_an_external_group_teaches(trainer, objective, completions):
    report = trainer.train(TrainRequest(1, (external("aaaa", "bbbb", rewards=(1, 0)),), objective))
    assert report.external_tokens == report.groups["0"].tokens == 4 * completions


GUESS = "I think it is 4. <answer>4</answer>"
"""The seed may well say so, and would seldom be right."""


PRODUCT = "Solve the following multiplication: 98 * 93. Give only the result as your final answer."
WORK = "98 * 93 = 9114. <answer>9114</answer>"
"""Here the seed would rather have said why, and would hardly have begun to answer."""


def filtered(*filters):
    options = replace(OPTIONS, filters=filters)
    return trainer_of(options)


def test_a_stand_in_is_trained_on_if_filters_leave_nothing_of_its_group():
    guess = replace(external("zzz zzz <answer>94817</answer>", "b", rewards=(1, 0)), id="guess")
    work = replace(external(WORK, "b", rewards=(1, 0)), prompt=PRODUCT, id="work")
    alone, both = filtered("answer-likelihood"), filtered("answer-likelihood")
    alone.train(TrainRequest(1, (work,)))
    report = both.train(TrainRequest(1, (guess, replace(work, stands_in="guess"))))
    assert report.groups["guess"].tokens == 0
    assert report.groups["work"].tokens == report.external_tokens > 0
    assert same(alone.parameters, both)


def test_a_stand_in_of_a_group_that_teaches_is_left_alone_and_not_reported():
    work = replace(external(WORK, "b", rewards=(1, 0)), prompt=PRODUCT, id="work")
    spare = replace(external("4 is it", "5", rewards=(1, 0)), id="spare", stands_in="work")
    alone, both = filtered(), filtered()
    alone.train(TrainRequest(1, (work,)))
    report = both.train(TrainRequest(1, (work, spare)))
    assert list(report.groups) == ["work"]
    assert same(alone.parameters, both)


def test_a_group_that_stands_in_for_one_without_a_place_is_refused():
    first, second = (replace(external("a", "b", rewards=(1, 0)), id=name) for name in "ab")
    with pytest.raises(RequestError, match="no place of its own"):
        TrainRequest(1, (replace(first, stands_in="b"), replace(second, stands_in="a")))


@pytest.mark.parametrize(("filters", "kept_out"), [((), {}), (("answer-likelihood",), {0: "answer-likelihood"})])
def test_an_answer_that_does_not_follow_teaches_only_where_no_filter_asks(filters, kept_out):
    group = external("zzz zzz <answer>94817</answer>", "b", rewards=(1, 0))
    report = filtered(*filters).train(TrainRequest(1, (group,)))
    assert report.groups["0"].rejected == kept_out
    assert (report.external_tokens == 0) is bool(kept_out)


BOUNDS = Bounds(-100.0, -1000.0)
"""So low that `min-token-prob` rejects nothing of a usual text."""


def gradients(trainer):
    """A list that grows with each gradient of a weight."""
    found = []
    trainer.parameters[0].register_post_accumulate_grad_hook(found.append)
    return found


def junk(count, **which):
    """A group of so many correct completions of like length that `min-token-prob` rejects."""
    texts = (f"Zyx wvu! {number}7 tsr <answer>4</answer>" for number in range(count))
    return replace(external(*texts, "b", rewards=(1,) * count + (0,)), id="junk", **which)


def test_no_gradient_is_computed_where_filters_leave_nothing():
    trainer = filtered("min-token-prob")
    found = gradients(trainer)
    report = trainer.train(TrainRequest(1, (junk(4), replace(junk(4), id="other", stands_in="junk"))))
    assert {*report.groups["junk"].rejected.values(), *report.groups["other"].rejected.values()} == {"min-token-prob"}
    assert found == []


def test_nothing_is_read_of_a_completion_of_which_every_token_is_masked():
    trainer = filtered("min-token-prob")
    found = gradients(trainer)
    group = external(WORK, "b", rewards=(1, 0))
    masked = replace(group, completions=(replace(group.completions[0], silent=((0, len(WORK)),)), group.completions[1]))
    masked = replace(masked, completions=(replace(masked.completions[0], finish="length"), masked.completions[1]))
    report = trainer.train(TrainRequest(1, (masked,)))
    assert (report.groups["0"].tokens, report.groups["0"].masked > 0) == (0, True)
    assert found == []


def test_a_step_is_the_same_whether_or_not_rejected_completions_are_beside_it():
    work = replace(external(WORK, "b", rewards=(1, 0)), prompt=PRODUCT, id="work", bounds=BOUNDS)
    alone, both = filtered("min-token-prob"), filtered("min-token-prob")
    alone.train(TrainRequest(1, (work,)))
    report = both.train(TrainRequest(1, (work, junk(6))))
    assert len(report.groups["junk"].rejected) == 6
    assert report.groups["work"].rejected == {}
    assert same(weights(alone), both)


def test_one_rejected_completion_among_many_is_masked_and_the_others_teach():
    trainer = filtered("min-token-prob")
    work = replace(external(*[WORK] * 5, "b", rewards=(1,) * 5 + (0,)), prompt=PRODUCT, id="work", bounds=BOUNDS)
    report = trainer.train(TrainRequest(1, (work, junk(1))))
    assert report.groups["junk"].rejected == {0: "min-token-prob"}
    assert report.groups["junk"].masked == len(trainer.policy.encode_foreign(junk(1).completions[0].text)) + 1
    assert report.groups["work"].masked == report.groups["junk"].tokens == 0
    assert report.external_tokens == report.groups["work"].tokens > 0


def test_the_time_for_what_filters_reject_is_no_time_of_what_teaches():
    report = filtered("min-token-prob").train(TrainRequest(1, (junk(4),)))
    assert report.external_seconds == 0.0
    assert report.seconds > 0


@pytest.mark.parametrize(("spare", "rejected"), [(0, {}), (-1, {0: "length"})])
def test_a_correct_completion_of_more_tokens_than_its_bound_is_not_read(spare, rejected):
    trainer = filtered("length")
    tokens = len(trainer.policy.encode_foreign(WORK))
    group = replace(external(WORK, "b" * 60, rewards=(1, 0)), bounds=Bounds(tokens=tokens + spare))
    found = gradients(trainer)
    report = trainer.train(TrainRequest(1, (group,)))
    assert report.groups["0"].rejected == rejected
    assert (found == []) is bool(rejected)


@pytest.mark.parametrize("end", ["<answer>", "</answer>", " <answer>9", " zzz"])
def test_no_tag_after_the_answer_hides_that_it_does_not_follow(end):
    group = external(f"zzz zzz <answer>94817</answer>{end}", "b", rewards=(1, 0))
    assert filtered("answer-likelihood").train(TrainRequest(1, (group,))).groups["0"].rejected == {
        0: "answer-likelihood"
    }


def test_what_is_said_after_an_answer_that_follows_has_to_follow_too():
    group = replace(external(f"{WORK} Zyx wvu!", "b", rewards=(1, 0)), prompt=PRODUCT)
    assert filtered("answer-likelihood").train(TrainRequest(1, (group,))).groups["0"].rejected == {
        0: "answer-likelihood"
    }


def test_an_answer_follows_whatever_stands_before_its_opening_tag():
    group = replace(external(WORK, "b", rewards=(1, 0)), prompt=PRODUCT)
    assert filtered("answer-likelihood").train(TrainRequest(1, (group,))).groups["0"].rejected == {}


def test_a_correct_completion_that_cannot_be_trained_on_is_named():
    group = external("x" * 81, WORK, "b", rewards=(1, 1, 0))
    assert filtered().train(TrainRequest(1, (group,))).groups["0"].untrained == (0,)


@pytest.mark.parametrize(("filters", "kept_out"), [((), {}), (("min-token-prob",), {0: "min-token-prob"})])
def test_a_completion_that_a_policy_would_not_write_teaches_only_where_no_filter_asks(filters, kept_out):
    group = external(f"Zyx wvu! {GUESS}", "b", rewards=(1, 0))
    report = filtered(*filters).train(TrainRequest(1, (group,)))
    assert report.groups["0"].rejected == kept_out
    assert (report.external_tokens == 0) is bool(kept_out)


def test_a_completion_with_improbable_words_teaches_a_policy_that_writes_such_words_itself():
    group = replace(external(f"Zyx wvu! {GUESS}", "b", rewards=(1, 0)), bounds=Bounds(-100.0, -1000.0))
    report = filtered("min-token-prob").train(TrainRequest(1, (group,)))
    assert report.groups["0"].rejected == {}


def test_filters_are_for_right_answers_of_others_alone():
    trainer = filtered("min-token-prob", "answer-likelihood")
    own = TrainGroup("local", QUESTION, 1.0, advantages((1, 0)), (Sampled("Zyx!", "stop", (5, 9, 7)),) * 2)
    wrong = external("b", "Zyx wvu! <answer>94817</answer>", rewards=(0, 0))
    wrong = replace(wrong, advantages=(0.0, -1.0))
    report = trainer.train(TrainRequest(1, (own, wrong), "on-policy"))
    assert all("answer-likelihood" not in group.rejected.values() for group in report.groups.values())
    assert all(group.tokens > 0 for group in report.groups.values())


def test_a_policy_that_ends_without_an_answer_learns_not_to():
    trainer = trainer_of()
    policy = trainer.policy

    def chance():
        """The log-probability of an end in place of a completion."""
        asked = torch.tensor([policy.prompt_tokens(Prompt(QUESTION))])
        with torch.no_grad():
            return policy.model(asked).logits[0, -1].log_softmax(-1)[policy.ends[0]].item()

    before = chance()
    empty = Sampled("", "stop", (), end=(policy.ends[0], before))
    trainer.train(TrainRequest(1, (TrainGroup("local", QUESTION, 1.0, (-1.0,), (empty,)),)))
    assert chance() < before


def test_weight_zero_trains_nothing(trainer):
    report = trainer.train(TrainRequest(1, (external("aaaa", "bbbb", rewards=(1, 0), weight=0.0),)))
    assert report.skipped is not None


def test_a_refused_group_is_named_and_the_others_are_trained(trainer):
    report = trainer.train(TrainRequest(1, (external("x" * 81, "y", rewards=(1, 0)), local())))
    assert report.groups["0"] == GroupReport(refused=Refusal.TOO_LONG, untrained=(0,))
    assert report.groups["1"].tokens > 0


def test_a_loss_that_is_not_finite_skips_the_update_and_says_so(trainer):
    group = local()
    with torch.no_grad():
        trainer.policy.model.model.norm.weight[0] = float("nan")
    before = weights(trainer)
    report = trainer.train(TrainRequest(1, (group,)))
    assert report.skipped == Refusal.NOT_FINITE
    assert report.groups == {"0": GroupReport(refused=Refusal.NOT_FINITE)}
    assert report.local_tokens == 0
    assert report.loss is None
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, trainer.parameters, strict=True))


def test_the_report_carries_the_usual_figures(trainer):
    group = local()
    report = trainer.train(TrainRequest(1, (group,)))
    lengths = [len(completion.tokens) for completion in group.completions]
    assert report.mean_length == sum(lengths) / len(lengths)
    assert report.entropy > 0
    assert report.grad_norm > 0
    assert report.local_tokens == report.groups["0"].tokens >= sum(lengths)


def test_the_report_says_what_share_of_the_groups_and_answers_was_wasted(trainer):
    groups = (local(), local((1, 1, 1, 1), seed=2))
    report = trainer.train(TrainRequest(1, groups))
    finishes = [completion.finish for group in groups for completion in group.completions]
    assert report.truncated == finishes.count("length") / 8
    assert report.zero_advantage == 0.5


def test_the_report_says_what_share_of_the_answers_was_cut_by_the_swarms_bytes(trainer):
    groups = (local(), replace(local(), id="cut", completions=sampled(4, 2, max_bytes=4)))
    assert trainer.train(TrainRequest(1, groups)).over_bytes == 0.5


def test_the_report_says_how_much_came_from_others(trainer):
    groups = (
        local(),
        external("aaaa", "bbbb", rewards=(1, 0), weight=1.0),
        external("cccc", "dddd", rewards=(1, 0), weight=0.5),
    )
    report = trainer.train(TrainRequest(1, groups))
    assert report.external_weight == 0.75
    assert report.external_share == 8 / (8 + report.local_tokens)


def again(group):
    """The correct completions of a group, as a later round replays them."""
    return replace(
        group, source="replay", id="again", completions=group.completions[:1], advantages=(1.5,), levels=None
    )


def test_a_replayed_completion_becomes_likelier_and_counts_as_a_local_one(trainer):
    group = local()
    before = logprob(trainer, group.completions[0].text)
    report = trainer.train(TrainRequest(1, (again(group),)))
    assert logprob(trainer, group.completions[0].text) > before
    assert report.local_tokens == report.groups["again"].tokens > 0
    assert report.external_tokens == 0


def test_entropy_length_and_waste_are_those_of_the_round_whatever_it_replays(trainer):
    groups = (local(), local((1, 1, 1, 1), seed=2))
    replayed = again(local(seed=3))
    other = trainer_of()
    alone, both = other.train(TrainRequest(1, groups)), trainer.train(TrainRequest(1, (*groups, replayed)))
    assert (both.entropy, both.mean_length, both.truncated) == (alone.entropy, alone.mean_length, alone.truncated)
    assert both.zero_advantage == alone.zero_advantage == 0.5
    assert not same(weights(other), trainer)


def test_a_replayed_group_needs_the_tokens_that_were_sampled():
    with pytest.raises(RequestError):
        replace(external("4", "5", rewards=(1, 0)), source="replay")


def test_the_report_says_how_long_each_kind_of_group_took(trainer):
    alone = trainer.train(TrainRequest(1, (local(),)))
    both = trainer.train(TrainRequest(2, (local(), external("aaaa", "bbbb", rewards=(1, 0)))))
    assert 0 < alone.local_seconds <= alone.seconds
    assert alone.external_seconds < alone.local_seconds
    assert 0 < both.external_seconds <= both.seconds - both.local_seconds


def test_what_an_empty_step_has_no_figure_for_is_none(trainer):
    report = trainer.train(TrainRequest(1, ()))
    figures = (report.truncated, report.zero_advantage, report.external_weight, report.external_share, report.entropy)
    assert figures == (None,) * 5


def test_the_report_survives_the_way_to_the_main_process(trainer):
    report = trainer.train(TrainRequest(1, (local(), external("aaaa", "x" * 81, rewards=(1, 0)))))
    assert from_json(TrainReport, json.loads(json.dumps(to_json(report)))) == report


def rates(options, steps):
    trainer = trainer_of(options)
    group = external("aaaa", "bbbb", rewards=(1, 0))
    return [trainer.train(TrainRequest(step, (group,))).learning_rate for step in range(1, steps + 1)]


def test_the_learning_rate_grows_in_equal_steps_to_its_full_value():
    assert rates(replace(OPTIONS, learning_rate=4e-4, warmup=4), 6) == pytest.approx(
        [1e-4, 2e-4, 3e-4, 4e-4, 4e-4, 4e-4]
    )


def test_without_warm_up_the_first_step_is_a_full_one():
    assert rates(OPTIONS, 2) == [OPTIONS.learning_rate] * 2


def test_a_step_of_the_warm_up_moves_the_weights_less(trainer):
    group = external("aaaa", "bbbb", rewards=(1, 0))
    options = replace(OPTIONS, warmup=10)
    slow = trainer_of(options)
    start = weights(trainer)
    for each in (trainer, slow):
        each.train(TrainRequest(1, (group,)))
    moved = [
        sum((new - old).abs().sum().item() for new, old in zip(weights(each), start, strict=True))
        for each in (slow, trainer)
    ]
    assert moved[0] == pytest.approx(moved[1] / 10, rel=1e-2)


def test_sampler_and_trainer_agree_on_log_probabilities(trainer):
    """At one inner epoch the ratio is 1 by construction; this checks that cached sampling sees the same model."""
    policy = trainer.policy
    prompts = ("Why?", QUESTION, "Spell this word backward (example: sun -> nus): tree")
    groups = generate(policy, GenerateRequest(tuple(map(Prompt, prompts)), 2, 40, 3, temperature=1e-4), 1024)
    for prompt, group in zip(prompts, groups, strict=True):
        ids_before = policy.prompt_tokens(Prompt(prompt))
        for completion in group:
            ids = torch.tensor([[*ids_before, *completion.tokens]])
            with torch.no_grad():
                logits = policy.model(input_ids=ids).logits[0, len(ids_before) - 1 : -1]
            chosen = logits[range(len(completion.tokens)), completion.tokens]
            # The best token up to rounding: the model is unsure here and there.
            assert (logits.max(-1).values - chosen).max() < 1e-2


def test_the_learning_rate_is_half_after_the_given_rounds_and_a_third_after_twice_as_many():
    assert rates(replace(OPTIONS, learning_rate=6e-4, decay_rounds=2), 4)[1::2] == pytest.approx([3e-4, 2e-4])


def test_the_decay_begins_after_the_warm_up():
    assert rates(replace(OPTIONS, learning_rate=4e-4, warmup=2, decay_rounds=1), 3) == pytest.approx([2e-4, 4e-4, 2e-4])


def test_the_learning_rate_never_falls_below_a_twentieth():
    options = replace(OPTIONS, decay_rounds=1)
    trainer = trainer_of(options)
    trainer.step = 10_000
    report = trainer.train(TrainRequest(10_001, (external("aaaa", "bbbb", rewards=(1, 0)),)))
    assert report.learning_rate == pytest.approx(LEAST_RATE * OPTIONS.learning_rate)


def test_an_alarm_scales_the_rate_of_the_step_that_carries_it(trainer):
    group = external("aaaa", "bbbb", rewards=(1, 0))
    assert trainer.train(TrainRequest(1, (group,), rate_scale=0.25)).learning_rate == OPTIONS.learning_rate / 4
    assert trainer.train(TrainRequest(2, (group,))).learning_rate == OPTIONS.learning_rate


@pytest.mark.parametrize("scale", [0, -1, 1.5])
def test_a_scale_of_the_rate_that_is_none_is_refused(scale):
    with pytest.raises(RequestError, match="rate_scale"):
        TrainRequest(1, (), rate_scale=scale)


def averages(trainer):
    return [value.clone() for value in trainer.average.values()]


def test_the_average_keeps_two_elevenths_of_itself_at_the_first_step(trainer):
    start = weights(trainer)
    trainer.train(TrainRequest(1, (local(),)))
    for average, old, new in zip(averages(trainer), start, weights(trainer), strict=True):
        torch.testing.assert_close(average, old + (new - old) * 9 / 11)


def test_the_average_of_a_long_run_keeps_98_percent_of_itself(trainer):
    trainer.step = 10_000
    start = weights(trainer)
    trainer.train(TrainRequest(10_001, (local(),)))
    for average, old, new in zip(averages(trainer), start, weights(trainer), strict=True):
        torch.testing.assert_close(average, old + (new - old) * 0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_model_has_the_averaged_weights_as_long_as_it_is_asked_for_them(dtype):
    options = replace(OPTIONS, dtype=dtype)
    trainer = trainer_of(options)
    trainer.train(TrainRequest(1, (local(),)))
    before, average = weights(trainer), averages(trainer)
    model = [value.detach().clone() for value in trainer.policy.model.parameters()]
    with trainer.averaged():
        within = [value.detach().clone() for _, value in trainer.policy.trainable()]
    assert all(torch.equal(a, b.to(a.dtype)) for a, b in zip(within, average, strict=True))
    assert same(before, trainer)
    assert all(torch.equal(a, b) for a, b in zip(averages(trainer), average, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(trainer.policy.model.parameters(), model, strict=True))


def test_an_evaluation_that_fails_leaves_the_model_its_own_weights(trainer):
    trainer.train(TrainRequest(1, (local(),)))
    before = weights(trainer)
    with pytest.raises(RuntimeError), trainer.averaged():
        raise RuntimeError
    assert same(before, trainer)


def test_a_step_that_restarts_is_the_first_step_of_a_new_trainer_with_those_weights(trainer):
    group = local()
    start = {name: value.clone() for name, value in trainer.average.items()}
    fresh = trainer_of()
    for step in (1, 2):
        trainer.train(TrainRequest(step, (group,)))
    fresh.step = 2
    trainer.train(TrainRequest(3, (group,)), start)
    fresh.train(TrainRequest(3, (group,)))
    assert same(weights(fresh), trainer)
    assert all(torch.equal(a, b) for a, b in zip(averages(fresh), averages(trainer), strict=True))


def test_a_restart_out_of_order_changes_nothing(trainer):
    start = {name: torch.zeros_like(value) for name, value in trainer.average.items()}
    before = weights(trainer)
    with pytest.raises(RequestError, match="does not follow"):
        trainer.train(TrainRequest(2, ()), start)
    assert same(before, trainer)


def test_what_was_sampled_with_twice_the_probability_weighs_half(trainer):
    # Incorrect completions: to a correct one the trainer adds an end, which was not sampled.
    plain = replace(local(), advantages=(-1.0,) * 4)
    doubled = tuple(
        replace(each, logprobs=tuple(logprob + math.log(2) for logprob in each.logprobs)) for each in plain.completions
    )
    groups = (plain, replace(plain, completions=doubled))
    losses = [trainer_of().train(TrainRequest(1, (each,))).loss for each in groups]
    assert losses[1] == pytest.approx(losses[0] / 2, rel=1e-3)
