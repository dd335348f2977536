"""Models with recurrent layers: what they sample and learn is what they would without caches."""

import pytest
import torch

from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import checkpoint
from sapo_node.learner.batch import completion_logits, micro_batches, rows_of
from sapo_node.learner.generate import generate
from sapo_node.learner.grpo import token_logprobs
from sapo_node.learner.model import RECURRENT, ModelError, load
from sapo_node.learner.trainer import Trainer
from tiny_models import RECURRENT_FAMILIES, UNKNOWN_FAMILIES, Folders, each_of

torch.set_num_threads(1)

QUESTIONS = ("What is 2 + 2?", "Add three apples to four apples. How many apples are there?")
each_family = pytest.mark.parametrize("family", each_of(RECURRENT_FAMILIES, "qwen3_5_text", "lfm2", "granitemoehybrid"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return Folders(tmp_path_factory)


def options(folder, **changes):
    return LearnerOptions(checkpoints="", model=str(folder), groups=2, completions=4, max_tokens=16, **changes)


def sampled(policy):
    """Two groups, of prompts of unlike length."""
    return generate(policy, GenerateRequest(tuple(map(Prompt, QUESTIONS)), 4, 16, 1), 1024)


def groups_of(completions, weight=1.0):
    return tuple(
        TrainGroup("local", question, weight, advantages([1, 0, 0, 0]), group)
        for question, group in zip(QUESTIONS, completions, strict=True)
    )


def take_a_step(trainer, completions):
    return trainer.train(TrainRequest(trainer.step + 1, groups_of(completions)))


def weights(trainer):
    return [value.detach().clone() for value in trainer.parameters]


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def batches(policy, groups):
    return micro_batches(policy, [row for group in groups for row in rows_of(policy, group, 16)])


@each_family
def test_every_token_is_drawn_with_the_probability_that_training_sees(folders, family):
    policy = load(options(folders[family]))
    for batch in batches(policy, groups_of(sampled(policy))):
        trained = token_logprobs(completion_logits(policy, batch), batch.targets)
        known = batch.mask.bool()
        torch.testing.assert_close(batch.sampled[known], trained[known], atol=1e-4, rtol=0)


@each_family
def test_the_gradient_is_that_of_reading_each_text_alone_and_at_once(folders, family):
    policy = load(options(folders[family]))
    groups = groups_of(sampled(policy))
    parameters = [value for _, value in policy.trainable()]
    loss = sum(
        (token_logprobs(completion_logits(policy, batch), batch.targets) * batch.mask).sum()
        for batch in batches(policy, groups)
    )
    shared = torch.autograd.grad(loss, parameters, allow_unused=True)
    alone = sum(_logprob(policy, row.prompt, row.completion) for group in groups for row in rows_of(policy, group, 16))
    expected = torch.autograd.grad(alone, parameters, allow_unused=True)
    for one, other in zip(shared, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def _logprob(policy, prompt, completion):
    logits = policy.model(torch.tensor([[*prompt, *completion]]), use_cache=False).logits
    logits = logits[:, len(prompt) - 1 : -1].index_fill(-1, policy.forbidden, -1e9)
    return token_logprobs(logits, torch.tensor([completion])).sum()


@each_family
@pytest.mark.parametrize("way", [{}, {"lora": 2, "dtype": "bfloat16", "gradient_checkpointing": True}], ids=str)
@pytest.mark.slow
def test_a_model_learns_and_resumes_bit_for_bit(folders, tmp_path, family, way):
    chosen = options(folders[family], **way)
    straight = Trainer(load(chosen), chosen)
    before, completions = weights(straight), sampled(straight.policy)
    assert take_a_step(straight, completions).skipped is None
    assert not equal(before, weights(straight))
    checkpoint.save(straight, tmp_path)
    take_a_step(straight, completions)
    resumed = Trainer(load(chosen), chosen)
    assert checkpoint.restore(resumed, tmp_path) is None
    take_a_step(resumed, completions)
    assert equal(weights(straight), weights(resumed))


@each_family
@pytest.mark.parametrize("length", [2, 16], ids=lambda length: f"{length} tokens")
@pytest.mark.slow
def test_gradient_checkpointing_changes_no_gradient(folders, family, length):
    norms, trained = [], []
    for on in (False, True):
        chosen = options(folders[family], gradient_checkpointing=on)
        trainer = Trainer(load(chosen), chosen)
        cut = [
            tuple(Sampled(each.text, "length", each.tokens[:length]) for each in group)
            for group in sampled(trainer.policy)
        ]
        norms.append(take_a_step(trainer, cut).grad_norm)
        trained.append(weights(trainer))
    assert norms[0] == norms[1]
    assert equal(*trained)


@pytest.mark.parametrize("family", each_of(RECURRENT_FAMILIES, "granitemoehybrid"))
def test_each_adapter_learns(folders, family):
    chosen = options(folders[family], lora=2)
    trainer = Trainer(load(chosen), chosen)
    before = {name: value.detach().clone() for name, value in trainer.trained.items()}
    take_a_step(trainer, sampled(trainer.policy))
    # The first factor of an adapter has no gradient while the second one is 0.
    second = [name for name in before if "lora_B" in name]
    assert second
    assert [name for name in second if torch.equal(before[name], trainer.trained[name])] == []


def test_a_tiny_model_of_each_known_type_is_tried():
    assert set(RECURRENT_FAMILIES) == RECURRENT


@pytest.mark.parametrize("family", UNKNOWN_FAMILIES)
def test_another_recurrent_model_is_refused_with_the_types_that_work(folders, family):
    with pytest.raises(ModelError, match=r"cannot train\..*lfm2.*qwen3_5_text") as caught:
        load(options(folders[family]))
    assert "\n" not in str(caught.value)
