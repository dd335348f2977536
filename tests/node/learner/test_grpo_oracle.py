"""The loss, its gradients, the log-probabilities and the advantages, against TRL's own code.

The model computes in double precision; both sides take its log-probabilities in single precision. TRL's settings are
passed in full: `dr_grpo` divides by completions x longest completion, a constant, as ours does. Where the two differ
on purpose, a test says so by name.
"""

import copy
import random
from dataclasses import replace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from sapo_node.groups.advantage import EPSILON, advantages
from sapo_node.groups.messages import LearnerOptions, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import grpo
from sapo_node.learner.batch import Row, completion_logits, micro_batches
from sapo_node.learner.forward import pad_left, pad_right
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer

torch.set_num_threads(1)
trl = pytest.importorskip("trl", reason="TRL is pinned, and asks for newer libraries than a node does")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

OPTIONS = LearnerOptions(checkpoints="", groups=3, completions=4, max_tokens=12)
REWARDS = ([1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1])
TRL_EPSILON = 1e-4


@pytest.fixture
def policy():
    """A random model in double precision, with the tokenizer of the seed policy."""
    # TRL gives every token a probability, also those that no completion may hold.
    seed = replace(load(OPTIONS), forbidden=torch.zeros(0, dtype=torch.long))
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=seed.vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        eos_token_id=seed.ends[0],
    )
    return replace(seed, model=Qwen2ForCausalLM(config).double().eval(), device=torch.device("cpu"))


@pytest.fixture
def oracle(policy, tmp_path):
    """TRL's trainer of a copy of the model; in evaluation mode its loss is not divided by accumulation steps."""
    rewards = iter([reward for group in REWARDS for reward in group])
    trainer = trl.GRPOTrainer(
        model=copy.deepcopy(policy.model),
        reward_funcs=lambda completions, **_: [float(next(rewards)) for _ in completions],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            loss_type="dr_grpo",
            importance_sampling_level="token",
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            scale_rewards="group",
            mask_truncated_completions=False,
            num_generations=OPTIONS.completions,
            per_device_train_batch_size=OPTIONS.groups * OPTIONS.completions,
            max_completion_length=OPTIONS.max_tokens,
        ),
        train_dataset=datasets.Dataset.from_list([{"prompt": "a"}]),
        processing_class=policy.tokenizer,
    )
    trainer.model.eval()
    return trainer


def random_rows(seed):
    """Twelve completions of 1 to 12 tokens, with advantages of both signs, to three prompts of other lengths."""
    rng = random.Random(seed)

    def tokens(length):
        return tuple(rng.randrange(10, 448) for _ in range(length))

    prompts = [tokens(length) for length in (3, 17, 8)]
    return [
        Row(
            str(n // 4),
            n % 4,
            source="local",
            prompt=prompts[n // 4],
            completion=tokens(n + 1),
            advantage=value,
            weight=1.0,
        )
        for n, value in enumerate(rng.gauss(0, 1.5) for _ in range(12))
    ]


def as_trl(policy, rows, old=None):
    prompts, prompt_mask = pad_left([row.prompt for row in rows], policy.pad, policy.device)
    completions, mask = pad_right([row.completion for row in rows], policy.pad, policy.device)
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": completions,
        "completion_mask": mask,
        "advantages": torch.tensor([row.advantage for row in rows], dtype=torch.float64),
        "old_per_token_logps": old,
    }


def trl_logprobs_and_entropies(oracle, inputs):
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    width = inputs["completion_ids"].shape[1]
    logprobs, entropies, _ = oracle._get_per_token_logps_and_entropies(
        oracle.model, ids, mask, width, compute_entropy=True
    )
    return logprobs, entropies


def old_logprobs(oracle, policy, rows, spread):
    """What the policy may have thought before: the ratios become exp(spread x a normal variable)."""
    with torch.no_grad():
        logprobs, _ = trl_logprobs_and_entropies(oracle, as_trl(policy, rows))
    return logprobs + spread * torch.randn(logprobs.shape, dtype=torch.float64)


def add_up_loss(policy, rows, old):
    """Backpropagate our loss over all micro-batches; returns its sum and how many there were."""
    total, batches = 0.0, list(micro_batches(policy, rows))
    for batch in batches:
        logprobs = grpo.token_logprobs(completion_logits(policy, batch), batch.targets)
        before = old[[rows.index(row) for row in batch.rows], : batch.targets.shape[1]]
        advantage = torch.tensor([row.advantage for row in batch.rows], dtype=torch.float64)
        inputs = grpo.LossInputs(logprobs, before, advantage, batch.mask.double())
        loss = grpo.policy_loss(inputs, float(len(rows) * OPTIONS.max_tokens))
        loss.backward()
        total += loss.item()
    return total, len(batches)


def gradients(model):
    return {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_loss_and_gradients_are_those_of_trl(policy, oracle, seed, spread):
    torch.manual_seed(seed)
    rows = random_rows(seed)
    old = old_logprobs(oracle, policy, rows, spread)
    theirs = oracle._compute_loss(oracle.model, as_trl(policy, rows, old))
    theirs.backward()
    ours, batches = add_up_loss(policy, rows, old)
    assert batches > 1
    assert ours == pytest.approx(theirs.item(), abs=1e-5)
    expected = gradients(oracle.model)
    assert max(value.abs().max() for value in expected.values()) > 0.01
    for name, gradient in gradients(policy.model).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=0, msg=name)


def test_the_ratios_of_these_batches_are_clipped_on_both_sides_and_not_clipped(policy, oracle):
    torch.manual_seed(0)
    rows = random_rows(0)
    inputs = as_trl(policy, rows)
    logprobs, _ = trl_logprobs_and_entropies(oracle, inputs)
    ratios = (logprobs - old_logprobs(oracle, policy, rows, 0.3)).exp()[inputs["completion_mask"].bool()]
    assert (ratios < 1 - grpo.CLIP_LOW).any()
    assert (ratios > 1 + grpo.CLIP_HIGH).any()
    assert ((ratios > 0.9) & (ratios < 1.1)).any()


def test_log_probabilities_and_entropies_are_those_of_trl(policy, oracle):
    rows = random_rows(0)
    inputs = as_trl(policy, rows)
    expected, entropies = trl_logprobs_and_entropies(oracle, inputs)
    for batch in micro_batches(policy, rows):
        logits = completion_logits(policy, batch)
        places, mask = [rows.index(row) for row in batch.rows], batch.mask.bool()
        width = mask.shape[1]
        logprobs = grpo.token_logprobs(logits, batch.targets)
        torch.testing.assert_close(logprobs[mask].double(), expected[places, :width][mask].double(), atol=1e-5, rtol=0)
        entropy = grpo.token_entropy(logits)
        torch.testing.assert_close(entropy[mask].double(), entropies[places, :width][mask].double(), atol=1e-5, rtol=0)


def test_a_step_that_skips_the_flat_group_has_the_loss_and_the_gradient_of_trl_which_runs_it(policy, oracle):
    rows = [
        replace(row, advantage=value)
        for row, value in zip(random_rows(1), [a for group in REWARDS for a in advantages(group)], strict=True)
    ]
    prompts = ("Why?", "What is 2 + 2?", "What is the longest of these questions?")
    rows = [replace(row, prompt=tuple(policy.prompt_tokens(Prompt(prompts[int(row.group)])))) for row in rows]
    groups = tuple(
        TrainGroup(
            "local",
            prompt,
            1.0,
            tuple(row.advantage for row in rows if row.group == str(index)),
            tuple(Sampled("", "length", row.completion) for row in rows if row.group == str(index)),
        )
        for index, prompt in enumerate(prompts)
    )
    report = Trainer(policy, OPTIONS).train(TrainRequest(1, groups))
    loss = oracle._compute_loss(oracle.model, as_trl(policy, rows))
    loss.backward()
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients(oracle.model).values()]))
    assert report.groups["1"].tokens == 0
    assert report.loss == pytest.approx(loss.item(), abs=1e-5)
    assert report.grad_norm == pytest.approx(norm.item(), abs=1e-5)


def test_advantages_are_those_of_trl_but_for_its_epsilon_of_1e_4_where_ours_is_1e_8(oracle):
    prompts = [{"prompt": name} for name in "abc" for _ in range(OPTIONS.completions)]
    oracle.model.train()
    theirs = oracle._generate_and_score_completions(prompts)["advantages"].tolist()
    for place, rewards in enumerate(REWARDS):
        deviation = torch.tensor(rewards, dtype=torch.float64).std().item()
        rescaled = [value * (deviation + EPSILON) / (deviation + TRL_EPSILON) for value in advantages(rewards)]
        assert rescaled == pytest.approx(theirs[4 * place : 4 * place + 4], abs=1e-5)
