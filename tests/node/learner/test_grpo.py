"""The loss and the advantages, against hand computation and autograd in double precision."""

import math
import subprocess
import sys

import pytest
import torch

from sapo_node.groups.advantage import advantages, counts
from sapo_node.learner import grpo

torch.set_num_threads(1)


def inputs(logprobs, advantage, *, old=None, weights=None):
    logprobs = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    return grpo.LossInputs(
        logprobs=logprobs,
        old_logprobs=logprobs.detach() if old is None else torch.tensor(old, dtype=torch.float64),
        advantages=torch.tensor(advantage, dtype=torch.float64),
        weights=torch.ones_like(logprobs) if weights is None else torch.tensor(weights, dtype=torch.float64),
    )


def test_advantages_are_centred_and_divided_by_the_unbiased_deviation():
    assert advantages([1, 0, 0, 0]) == pytest.approx((1.5, -0.5, -0.5, -0.5), rel=1e-6)


def test_a_flat_group_has_no_advantage():
    assert advantages([1, 1, 1]) == (0.0, 0.0, 0.0)
    assert advantages([0, 0]) == (0.0, 0.0)
    assert advantages([1]) == (0.0,)


def test_advantages_agree_with_torch():
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    values = torch.tensor(rewards, dtype=torch.float64)
    expected = (values - values.mean()) / (values.std() + 1e-8)
    assert advantages(rewards) == pytest.approx(expected.tolist(), rel=1e-12)


@pytest.mark.parametrize("module", ["sapo_node.groups.advantage", "sapo_node.learner.client"])
def test_the_main_process_side_does_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_on_policy_the_loss_is_minus_the_weighted_sum_of_advantages():
    batch = inputs([[-1.0, -2.0], [-0.5, -3.0]], [2.0, -1.0], weights=[[1, 1], [1, 0]])
    assert grpo.policy_loss(batch, 10.0).item() == pytest.approx(-(2.0 + 2.0 - 1.0) / 10)


def test_on_policy_the_gradient_of_a_token_is_minus_its_advantage():
    batch = inputs([[-1.0, -2.0], [-0.5, -3.0]], [2.0, -1.0], weights=[[1, 1], [0.5, 0]])
    grpo.policy_loss(batch, 10.0).backward()
    assert batch.logprobs.grad.tolist() == [[-0.2, -0.2], [0.05, 0.0]]


def test_log_probabilities_in_chunks_have_the_values_and_gradients_of_log_softmax(monkeypatch):
    monkeypatch.setattr(grpo, "CHUNK", 20)
    logits = torch.randn(3, 5, 8, dtype=torch.double, requires_grad=True)
    targets = torch.randint(8, (3, 5))
    assert torch.autograd.gradcheck(lambda each: grpo.token_logprobs(each, targets), logits)
    expected = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(grpo.token_logprobs(logits, targets), expected)


def test_the_gradient_over_logits_is_the_policy_gradient():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(5, (2, 3))
    advantage = torch.tensor([1.5, -0.5], dtype=torch.float64)
    logprobs = grpo.token_logprobs(logits, targets)
    batch = grpo.LossInputs(logprobs, logprobs.detach(), advantage, torch.ones_like(logprobs))
    grpo.policy_loss(batch, 7.0).backward()
    one_hot = torch.nn.functional.one_hot(targets, 5).double()
    expected = -advantage[:, None, None] * (one_hot - logits.detach().softmax(-1)) / 7.0
    assert torch.allclose(logits.grad, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain"),
    [(1.5, 1.0, 1.28), (1.1, 1.0, 1.1), (0.5, 1.0, 0.5), (0.5, -1.0, -0.8), (1.5, -1.0, -1.5)],
)
def test_the_ratio_is_clipped_where_it_would_gain_more(ratio, advantage, gain):
    batch = inputs([[math.log(ratio)]], [advantage], old=[[0.0]])
    assert grpo.policy_loss(batch, 1.0).item() == pytest.approx(-gain)


def test_a_clipped_token_has_no_gradient():
    batch = inputs([[math.log(1.5)]], [1.0], old=[[0.0]])
    grpo.policy_loss(batch, 1.0).backward()
    assert batch.logprobs.grad.item() == 0.0


def test_the_denominator_does_not_depend_on_the_batch():
    alone = grpo.policy_loss(inputs([[-1.0, -2.0]], [1.0]), 64.0)
    with_padding = grpo.policy_loss(inputs([[-1.0, -2.0, 0.0]], [1.0], weights=[[1, 1, 0]]), 64.0)
    other = grpo.policy_loss(inputs([[-3.0, -1.0]], [-0.5]), 64.0)
    both = grpo.policy_loss(inputs([[-1.0, -2.0], [-3.0, -1.0]], [1.0, -0.5]), 64.0)
    assert with_padding.item() == alone.item()
    assert both.item() == pytest.approx(alone.item() + other.item())


@pytest.mark.parametrize(
    ("advantage", "external", "objective", "expected"),
    [
        (1.0, True, "positive-only", True),
        (-1.0, True, "positive-only", False),
        (-1.0, False, "positive-only", True),
        (-1.0, True, "on-policy", True),
        (0.0, True, "on-policy", False),
        (0.0, False, "on-policy", False),
    ],
)
def test_the_external_objective_says_which_completions_count(advantage, external, objective, expected):
    assert counts(advantage, external=external, objective=objective) is expected


def test_entropy_of_an_even_choice_is_its_logarithm():
    assert grpo.token_entropy(torch.zeros(1, 1, 8)).item() == pytest.approx(math.log(8))


def test_the_importance_weight_is_the_ratio_of_probabilities_and_at_most_two():
    now, sampled = torch.tensor([[0.3, 0.2, 0.9]]).log(), torch.tensor([[0.6, 0.2, 0.1]]).log()
    torch.testing.assert_close(grpo.importance(now, sampled), torch.tensor([[0.5, 1.0, 2.0]]))


def test_the_importance_weight_is_one_where_it_is_unknown_how_a_token_was_sampled():
    assert grpo.importance(torch.tensor([[-3.0]]), torch.tensor([[torch.nan]])).item() == 1.0
