"""Sampling: counts, seeds, limits and finish reasons."""

import json
from dataclasses import replace
from itertools import cycle, islice

import pytest
import torch

from sapo_node.app.recipe import MAX_ROUND_TOKENS
from sapo_node.groups.codec import to_json
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, RequestError, Sampled, TrainGroup
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import forward
from sapo_node.learner import generate as sampler
from sapo_node.learner.batch import completion_logits, micro_batches, rows_of
from sapo_node.learner.forward import IMPOSSIBLE
from sapo_node.learner.generate import LOOK_EVERY, Draft, generate
from sapo_node.learner.grpo import token_logprobs
from sapo_node.learner.model import load
from sapo_node.storage.database import MAX_VALUE_BYTES
from sapo_node.tasks.answer import ANSWER_END
from sapo_node.trust.constants import DRAWN_BYTES
from tiny_models import FAMILIES, each_of, write_model

torch.set_num_threads(1)

ONE_BY_ONE = ("mistral", "gemma3", "gemma3_with_images", "gpt_neo", "bloom")
"""Families whose completions share no lane and no static cache: with windows, or with biases by distance."""

QUESTIONS = ("State the final answer to the following arithmetic problem: 15 - 43 =", "Why?")


@pytest.fixture(scope="module")
def policy():
    return load(LearnerOptions(checkpoints=""))


def sample(policy, *, prompts=QUESTIONS, completions=4, max_tokens=80, seed=1, temperature=1.0, max_bytes=1024):
    return generate(
        policy, GenerateRequest(tuple(map(Prompt, prompts)), completions, max_tokens, seed, temperature), max_bytes
    )


def test_each_question_gets_its_completions_in_order(policy):
    groups = sample(policy)
    assert [len(group) for group in groups] == [4, 4]
    assert all("<answer>" in completion.text for completion in groups[0])


def test_the_same_seed_gives_the_same_completions(policy):
    assert sample(policy) == sample(policy)


def test_another_seed_gives_other_completions(policy):
    assert sample(policy) != sample(policy, seed=2)


def test_the_largest_round_fits_into_a_value_of_the_database_beside_the_most_text_of_others(policy):
    [[sampled]] = sample(policy, prompts=QUESTIONS[:1], completions=1)
    length, completions = 4_096, MAX_ROUND_TOKENS // 4_096
    logprobs = tuple(islice(cycle(sampled.logprobs), length))
    long = replace(sampled, text="é" * length, tokens=(999_999,) * length, logprobs=logprobs)
    escaped = len(json.dumps("\0")) - len('""')
    assert completions * len(json.dumps(to_json(long))) + escaped * DRAWN_BYTES <= MAX_VALUE_BYTES


def test_completions_of_one_question_differ(policy):
    [group] = sample(policy, prompts=QUESTIONS[:1], completions=8)
    assert len({completion.text for completion in group}) > 1


def test_a_completion_that_ends_by_itself_says_stop(policy):
    [group] = sample(policy, prompts=QUESTIONS[:1], completions=8)
    assert {completion.finish for completion in group} == {"stop"}
    assert all(completion.text.endswith("</answer>") for completion in group)


def test_a_completion_at_the_token_limit_says_length(policy):
    for group in sample(policy, prompts=QUESTIONS[:1], max_tokens=3):
        assert all(c.finish == "length" and len(c.tokens) == 3 for c in group)


def test_no_completion_exceeds_the_byte_limit(policy):
    for group in sample(policy, prompts=QUESTIONS[:1], max_bytes=10):
        for completion in group:
            assert len(completion.text.encode()) <= 10
            assert completion.finish == "length"
            assert policy.decode(completion.tokens) == completion.text


def test_a_completion_is_not_sampled_on_when_its_bytes_are_over(policy):
    [letter] = policy.tokenizer("a", add_special_tokens=False)["input_ids"]
    draft = Draft(max_bytes=10)
    while not draft.stopped:
        draft.add(policy, letter, -1.0)
    assert len(draft.tokens) == LOOK_EVERY
    assert draft.finished(policy) == Sampled("a" * 10, "length", (letter,) * 10, (-1.0,) * 10)


def test_tokens_hold_no_special_token_and_decode_to_the_text(policy):
    for group in sample(policy):
        for completion in group:
            assert not policy.specials.intersection(completion.tokens)
            assert policy.decode(completion.tokens) == completion.text


def test_no_token_is_sampled_that_the_tokenizer_lacks(tmp_path):
    policy = load(LearnerOptions(checkpoints="", model=str(write_model(tmp_path, "llama"))))
    readable = set(policy.tokenizer.get_vocab().values())
    assert policy.vocabulary > len(readable)
    [group] = sample(policy, prompts=QUESTIONS[:1], completions=8, max_tokens=64)
    assert readable.issuperset(token for completion in group for token in completion.tokens)


def test_more_questions_than_fit_at_once_are_all_answered(policy):
    assert len(sample(policy, prompts=QUESTIONS * 20, completions=8, max_tokens=2)) == 40


def test_no_question_gives_no_group(policy):
    assert sample(policy, prompts=()) == []


def test_a_prompt_that_does_not_fit_is_an_error(policy):
    with pytest.raises(RequestError, match="exceed the model's 512"):
        sample(policy, prompts=("5" * 500,))


def texts(groups):
    return [[each.text for each in group] for group in groups]


def test_a_cached_shorter_batch_samples_what_a_lone_question_does(policy):
    def cold(prompts):
        return texts(sample(policy, prompts=prompts, completions=1, max_tokens=40, temperature=1e-4))

    assert cold(QUESTIONS)[1] == cold(QUESTIONS[1:])[0]


def test_rows_that_leave_change_nothing_for_those_that_go_on(policy, monkeypatch):
    def cold(share):
        monkeypatch.setattr(sampler, "CROWD", share)
        return texts(sample(policy, prompts=QUESTIONS * 4, completions=1, max_tokens=40, temperature=1e-4))

    assert cold(1) == cold(0.75) == cold(0)


LONG = ("Answer with care. " * 6 + QUESTIONS[0], "Think first. " * 8 + QUESTIONS[0])
"""Prompts of which completions share a lane."""


@pytest.mark.parametrize(("questions", "tokens"), [(QUESTIONS, 80), (LONG, 24)], ids=["alone", "in lanes"])
def test_every_token_is_drawn_with_the_probability_that_training_sees(policy, questions, tokens):
    require_like_training(policy, questions, tokens)


def require_like_training(policy, questions, tokens):
    for index, group in enumerate(sample(policy, prompts=questions, max_tokens=tokens)):
        rows = rows_of(policy, TrainGroup("local", questions[index], 1.0, (-1.0,) * 4, group), 80)
        for batch in micro_batches(policy, [row for row in rows if row.completion]):
            trained = token_logprobs(completion_logits(policy, batch), batch.targets)
            known = batch.mask.bool()
            torch.testing.assert_close(batch.sampled[known], trained[known], atol=1e-4, rtol=0)


def test_lanes_change_nothing_of_what_is_sampled(policy, monkeypatch):
    in_lanes = texts(sample(policy, prompts=LONG, completions=4, max_tokens=24, temperature=1e-4))
    monkeypatch.setattr(forward, "LEAST_PROMPT", 1000)
    assert texts(sample(policy, prompts=LONG, completions=4, max_tokens=24, temperature=1e-4)) == in_lanes


@pytest.fixture
def static_cache(monkeypatch):
    """Samples as on a GPU, but without a graph."""
    monkeypatch.setattr(sampler, "has_graphs", lambda *_: True)


@pytest.mark.parametrize(("questions", "tokens"), [(QUESTIONS, 80), (LONG, 24)], ids=["alone", "in lanes"])
def test_a_static_cache_changes_nothing_of_what_is_sampled(policy, request, questions, tokens):
    def cold():
        return texts(sample(policy, prompts=questions, max_tokens=tokens, temperature=1e-4))

    expected = cold()
    request.getfixturevalue("static_cache")
    assert cold() == expected


@pytest.mark.usefixtures("static_cache")
@pytest.mark.parametrize(("questions", "tokens"), [(QUESTIONS, 80), (LONG, 24)], ids=["alone", "in lanes"])
def test_from_a_static_cache_tokens_are_drawn_with_the_probability_that_training_sees(policy, questions, tokens):
    require_like_training(policy, questions, tokens)


@pytest.mark.usefixtures("static_cache")
@pytest.mark.parametrize("family", each_of((each for each in FAMILIES if each not in ONE_BY_ONE), "llama", "gpt2"))
def test_so_they_are_with_models_of_each_family_that_attends_to_all(tmp_path, family):
    policy = load(LearnerOptions(checkpoints="", device="cpu", model=str(write_model(tmp_path / family, family))))
    require_like_training(policy, LONG, 24)


@pytest.mark.parametrize("family", each_of(FAMILIES, "gpt2", "mistral", "gemma3", "gpt_neo", "bloom"))
def test_every_token_is_drawn_with_the_probability_that_the_model_gives_it_after_its_text_alone(tmp_path, family):
    policy = load(LearnerOptions(checkpoints="", device="cpu", model=str(write_model(tmp_path / family, family))))
    for value in policy.model.parameters():  # weights as they begin attend to everything alike
        if value.ndim > 1:
            value.data.normal_(0, 0.3)
    require_like_training(policy, LONG, 24)
    for question, group in zip(LONG, sample(policy, prompts=LONG, max_tokens=24), strict=True):
        prompt = policy.prompt_tokens(Prompt(question))
        for completion in group:
            ids = torch.tensor([[*prompt, *completion.tokens]])
            with torch.no_grad():
                logits = policy.model(input_ids=ids).logits[:, len(prompt) - 1 : -1]
            logits = logits.index_fill(-1, policy.forbidden, IMPOSSIBLE)
            alone = token_logprobs(logits, torch.tensor([completion.tokens]))
            torch.testing.assert_close(torch.tensor([completion.logprobs]), alone, atol=1e-4, rtol=0)


@pytest.mark.usefixtures("static_cache")
def test_with_a_static_cache_the_limit_of_tokens_is_kept(policy):
    for limit in (1, sampler.LEAST_REPLAYED, sampler.LEAST_REPLAYED + 1):
        groups = sample(policy, prompts=LONG, max_tokens=limit)
        assert max(len(each.tokens) for group in groups for each in group) == limit


def test_a_completion_ends_with_the_closing_tag_of_its_answer(policy):
    answered = [each.text for group in sample(policy) for each in group if ANSWER_END in each.text]
    assert answered
    assert all(text.endswith(ANSWER_END) and text.count(ANSWER_END) == 1 for text in answered)
