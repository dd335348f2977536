"""Sampling: counts, seeds, limits and finish reasons."""

import pytest
import torch

from sapo_node.learner.generate import generate
from sapo_node.learner.messages import GenerateRequest, LearnerOptions, RequestError
from sapo_node.learner.model import load

torch.set_num_threads(1)

QUESTIONS = ("State the final answer to the following arithmetic problem: 15 - 43 =", "Why?")


@pytest.fixture(scope="module")
def policy():
    return load(LearnerOptions(checkpoints=""))


def sample(policy, *, questions=QUESTIONS, completions=4, max_tokens=80, seed=1, max_bytes=1024):
    return generate(policy, GenerateRequest(questions, completions, max_tokens, seed), max_bytes)


def test_each_question_gets_its_completions_in_order(policy):
    groups = sample(policy)
    assert [len(group) for group in groups] == [4, 4]
    assert all("<answer>" in completion.text for completion in groups[0])


def test_the_same_seed_gives_the_same_completions(policy):
    assert sample(policy) == sample(policy)


def test_another_seed_gives_other_completions(policy):
    assert sample(policy) != sample(policy, seed=2)


def test_completions_of_one_question_differ(policy):
    [group] = sample(policy, questions=QUESTIONS[:1], completions=8)
    assert len({completion.text for completion in group}) > 1


def test_a_completion_that_ends_by_itself_says_stop(policy):
    [group] = sample(policy, questions=QUESTIONS[:1], completions=8)
    assert {completion.finish for completion in group} == {"stop"}
    assert all(completion.text.endswith("</answer>") for completion in group)


def test_a_completion_at_the_token_limit_says_length(policy):
    for group in sample(policy, questions=QUESTIONS[:1], max_tokens=3):
        assert all(c.finish == "length" and len(c.tokens) == 3 for c in group)


def test_no_completion_exceeds_the_byte_limit(policy):
    for group in sample(policy, questions=QUESTIONS[:1], max_bytes=10):
        for completion in group:
            assert len(completion.text.encode()) <= 10
            assert completion.finish == "length"
            assert policy.decode(completion.tokens) == completion.text


def test_tokens_hold_no_special_token_and_decode_to_the_text(policy):
    for group in sample(policy):
        for completion in group:
            assert not policy.specials.intersection(completion.tokens)
            assert policy.decode(completion.tokens) == completion.text


def test_more_questions_than_fit_at_once_are_all_answered(policy):
    assert len(sample(policy, questions=QUESTIONS * 20, completions=8, max_tokens=2)) == 40


def test_no_question_gives_no_group(policy):
    assert sample(policy, questions=()) == []


def test_a_prompt_that_does_not_fit_is_an_error(policy):
    with pytest.raises(RequestError, match="exceed the model's 512"):
        sample(policy, questions=("5" * 500,))


def test_a_cached_shorter_batch_samples_what_a_lone_question_does(policy):
    def cold(questions):
        return generate(policy, GenerateRequest(questions, 1, 40, 1, temperature=1e-4), 1024)

    assert cold(QUESTIONS)[1] == cold(QUESTIONS[1:])[0]
