"""Prompts that the model has no room for: a round goes on without them, and who asked one by hand is told."""

import pytest
import torch

from inference_server import InferenceServer
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import Generated, GenerateRequest, LearnerOptions, Sampled
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.service import Service

torch.set_num_threads(1)

SHORT, LONG = Prompt("State the final answer to the following arithmetic problem: 15 - 43 ="), Prompt("5" * 500)
EMPTY = (Sampled("", "length", ()),) * 2


def service(root, **changes):
    return Service(LearnerOptions(str(root / "checkpoints"), groups=3, completions=2, max_tokens=20, **changes))


def generate(service, *prompts, **changes):
    request = GenerateRequest(prompts, completions=2, max_tokens=20, seed=1, **changes)
    return service.answer({"generate": to_json(request)})


def test_a_prompt_that_does_not_fit_gets_empty_completions_and_the_others_their_own(tmp_path):
    node = service(tmp_path)
    generated = from_json(Generated, generate(node, SHORT, LONG, SHORT))
    alone = from_json(Generated, generate(node, SHORT, SHORT))
    assert generated.groups == (alone.groups[0], EMPTY, alone.groups[1])


def test_a_server_is_not_asked_a_prompt_that_does_not_fit(tmp_path):
    with InferenceServer(POLICY_DIR) as server:
        generated = from_json(Generated, generate(service(tmp_path, lora=4, server=server.url), LONG, SHORT))
    assert generated.groups[0] == EMPTY
    assert all(completion.tokens for completion in generated.groups[1])
    assert "it samples with" in generated.notice


@pytest.mark.parametrize("averaged", [False, True])
def test_a_round_without_a_prompt_that_fits_is_empty(tmp_path, averaged):
    assert from_json(Generated, generate(service(tmp_path), LONG, LONG, averaged=averaged)).groups == (EMPTY, EMPTY)


def test_the_operator_is_told_once_what_to_change(tmp_path):
    node = service(tmp_path)
    told, again = (from_json(Generated, generate(node, LONG, SHORT)).notice for _ in range(2))
    assert "tokens and 20 new ones exceed the model's 512" in told
    assert "--examples" in told
    assert "--max-tokens" in told
    assert again is None


def test_a_learner_that_only_reads_refuses_a_prompt_that_does_not_fit(tmp_path):
    error = generate(service(tmp_path, read_only=True), SHORT, LONG)["error"]
    assert "exceed the model's 512; give fewer --examples, or a lower --max-tokens" in error
