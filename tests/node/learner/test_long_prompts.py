"""Prompts that the model has no room for, or on which its chat template or tokenizer fails: a round goes on without
them, and who asked one by hand is told.
"""

import pytest
import torch
from tokenizers import Regex, Tokenizer, pre_tokenizers

from inference_server import InferenceServer
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import (
    Generated,
    GenerateRequest,
    LearnerOptions,
    Refusal,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.folder import POLICY_DIR, ModelError
from sapo_node.learner.service import Service
from tiny_models import TEMPLATE, write_model, write_tokenizer

torch.set_num_threads(1)

SHORT, LONG = Prompt("State the final answer to the following arithmetic problem: 15 - 43 ="), Prompt("5" * 500)
EMPTY = (Sampled("", "length", ()),) * 2


def service(root, **changes):
    return Service(LearnerOptions(str(root / "checkpoints"), groups=3, completions=2, **{"max_tokens": 20, **changes}))


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


def test_each_reason_for_which_a_prompt_is_refused_is_told_once(tmp_path):
    folder = write_model(tmp_path, "llama")
    refuses = "".join(
        f"{{% for m in messages %}}{{% if '{word}' in m.content %}}{{{{ raise_exception('no {word}s') }}}}{{% endif %}}"
        "{% endfor %}"
        for word in ("sign", "root")
    )
    write_tokenizer(folder, f"{refuses}{TEMPLATE}")
    node = service(tmp_path, model=str(folder))
    asked = map(Prompt, ("sign 1", "sign 2", "root 3", "sign 4"))
    notices = [from_json(Generated, generate(node, SHORT, prompt)).notice for prompt in asked]
    assert ["no signs" in notices[0], notices[1], "no roots" in notices[2], notices[3]] == [True, None, True, None]


def test_a_learner_that_only_reads_refuses_a_prompt_that_does_not_fit(tmp_path):
    error = generate(service(tmp_path, read_only=True), SHORT, LONG)["error"]
    assert "exceed the model's 512; give fewer --examples, or a lower --max-tokens" in error


def test_completions_of_prompts_without_room_are_not_said_to_be_cut(tmp_path):
    node = service(tmp_path)
    groups = from_json(Generated, generate(node, LONG, SHORT)).groups
    asked = zip((LONG, SHORT), groups, strict=True)
    request = TrainRequest(
        1, tuple(TrainGroup("local", prompt.text, 1.0, (0.0, 0.0), group) for prompt, group in asked)
    )
    report = from_json(TrainReport, node.answer({"train": to_json(request)}))
    assert report.truncated == sum(each.finish == "length" for each in groups[1]) / 4
    assert report.groups["0"].refused is Refusal.NO_ROOM


@pytest.mark.parametrize("max_tokens", [512, 600])
def test_a_longest_completion_that_fills_the_model_alone_is_refused_at_the_start(tmp_path, max_tokens):
    with pytest.raises(ModelError, match=rf"seed takes 512 tokens, .*--max-tokens {max_tokens} leaves none") as caught:
        service(tmp_path, max_tokens=max_tokens)
    assert "\n" not in str(caught.value)
    service(tmp_path, max_tokens=511)


def template_that_fails(folder):
    fails = "{% if 'seven' in messages[-1]['content'] %}{{ raise_exception('no sevens') }}{% endif %}"
    write_tokenizer(folder, fails + TEMPLATE)


def tokenizer_that_panics(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    slow = pre_tokenizers.Split(Regex("((na)+)+$"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([slow, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.save(str(folder / "tokenizer.json"))


BAD = Prompt("seven " + "na" * 40 + "!")
FAILURES = [(template_that_fails, "the chat template fails: no sevens"), (tokenizer_that_panics, "cannot read a text")]


@pytest.fixture(params=FAILURES, ids=["template", "tokenizer"])
def failing(request, tmp_path):
    """A folder of a model that cannot be asked BAD, and what it says of it."""
    spoil, words = request.param
    folder = write_model(tmp_path / "m", "llama")
    spoil(folder)
    return str(folder), words


def test_a_prompt_on_which_the_model_fails_gets_empty_completions_and_the_others_their_own(tmp_path, failing):
    model, words = failing
    node = service(tmp_path, model=model)
    generated = from_json(Generated, generate(node, SHORT, BAD, SHORT))
    alone = from_json(Generated, generate(node, SHORT, SHORT))
    assert generated.groups == (alone.groups[0], EMPTY, alone.groups[1])
    assert words in generated.notice
    assert "The completions of such prompts are empty" in generated.notice
    assert "--examples" not in generated.notice
    assert from_json(Generated, generate(node, BAD)).notice is None


def test_that_prompts_fail_hides_no_notice_of_long_ones(tmp_path):
    template_that_fails(write_model(tmp_path / "m", "llama"))
    node = service(tmp_path, model=str(tmp_path / "m"))
    both = from_json(Generated, generate(node, BAD, LONG, BAD, LONG)).notice
    assert both.count("no sevens") == both.count("exceed the model's 512") == 1


def test_a_learner_that_only_reads_refuses_a_prompt_on_which_the_model_fails(tmp_path, failing):
    model, words = failing
    assert words in generate(service(tmp_path, read_only=True, model=model), SHORT, BAD)["error"]
