"""Completions sampled by a real HTTP server with a model of its own, which follows this node's weights or does not."""

import copy
import shutil
import socket
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from inference_server import InferenceServer
from sapo_node.app.config import Config
from sapo_node.app.recipe import learner_options
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import (
    Generated,
    GenerateRequest,
    LearnerOptions,
    RestoreRequest,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.learner import grpo
from sapo_node.learner.batch import completion_logits, micro_batches, rows_of
from sapo_node.learner.client import GENERATE_DEADLINE
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.server import connection, generation
from sapo_node.learner.server.checks import require_model
from sapo_node.learner.server.connection import ServerFailed
from sapo_node.learner.server.engines import Served, find_engine
from sapo_node.learner.server.generation import TOLERANCE, server_of
from sapo_node.learner.service import Service
from sapo_node.tasks.answer import THINK, THOUGHT
from sapo_protocol import LocalError, load_manifest
from tiny_models import TEMPLATE, write_model, write_tokenizer

torch.set_num_threads(1)

QUESTIONS = (
    Prompt("State the final answer to the following arithmetic problem: 15 - 43 ="),
    Prompt("Why?", (Example("Who?", "<answer>You</answer>"),)),
)
MAX_TOKENS, FEW_TOKENS = 40, 4
ANSWER = "<answer>4</answer>"
ENGINES = [("vllm", 4), ("sglang", 4), ("sglang", 0)]
"""Who serves, and the rank of the adapters that are trained; 0 trains all weights."""


class Node:
    """A learner in this process, as a node asks it."""

    def __init__(self, root, url, *, lora=4, **changes):
        self.options = LearnerOptions(
            checkpoints=str(root / "checkpoints"),
            lora=lora,
            server=url,
            groups=len(QUESTIONS),
            completions=4,
            **{"learning_rate": 1e-3, "max_tokens": MAX_TOKENS} | changes,
        )
        self.service = Service(self.options)

    @property
    def policy(self):
        return self.service._trainer.policy

    def begin_session(self, url=None):
        """Know nothing of the server, or ask another one."""
        self.service._server = server_of(replace(self.options, server=url or self.options.server))

    def generate(self, **changes):
        return from_json(Generated, self.service.answer({"generate": to_json(request(**changes))}))

    def train(self, generated):
        """One step towards the first completion of each question."""
        step = TrainRequest(self.service._trainer.step + 1, groups_of(generated))
        return from_json(TrainReport, self.service.answer({"train": to_json(step)}))


def request(**changes):
    return GenerateRequest(**{"prompts": QUESTIONS, "completions": 4, "max_tokens": MAX_TOKENS, "seed": 1} | changes)


def groups_of(generated):
    advantages = (1.5, -0.5, -0.5, -0.5)
    return tuple(
        TrainGroup("local", prompt.text, 1.0, advantages, group, str(number), prompt.examples)
        for number, (prompt, group) in enumerate(zip(QUESTIONS, generated.groups, strict=True))
    )


@torch.no_grad()
def ratios(policy, generated):
    """Of each token the probability by this policy over that with which it was sampled."""
    rows = [row for group in groups_of(generated) for row in rows_of(policy, group, MAX_TOKENS) if row.completion]
    found = []
    for batch in micro_batches(policy, rows):
        own = grpo.token_logprobs(completion_logits(policy, batch), batch.targets)
        found.append(grpo.importance(own, batch.sampled)[~batch.sampled.isnan()])
    return torch.cat(found)


@pytest.fixture
def server():
    with InferenceServer(POLICY_DIR) as server:
        yield server


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A server, a node that it has sampled for, what it sampled, what this node samples itself, and what the node then
    knew of the server.
    """
    replies = {}

    def record(path, reply):
        if path == "/v1/completions":
            replies[len(reply["choices"])] = reply
        return reply

    with InferenceServer(POLICY_DIR, spoil=record) as server:
        node = Node(tmp_path_factory.mktemp("recorded"), server.url)
        node.generate(max_tokens=FEW_TOKENS)
        known = node.service._server
        own = generate(node.policy, request(max_tokens=FEW_TOKENS), node.options.max_completion_bytes)
        yield server, node, lambda asked: replies[asked["n"] * len(asked["prompt"])], own, known


@pytest.fixture
def recorded(recording):
    """A server that returns what it once sampled, a node that has made it load its weights and has told nobody of it,
    and what this node samples itself.
    """
    server, node, replies, own, known = recording
    server.recorded = {
        "/v1/load_lora_adapter": "loaded",
        "/v1/unload_lora_adapter": "done",
        "/v1/completions": replies,
    }
    server.spoil = lambda _, reply: reply
    node.service._server = copy.copy(known)
    node.service._server._last = None
    return server, node, own


@pytest.mark.parametrize(("owner", "lora"), ENGINES)
def test_the_tokens_of_a_server_have_the_probabilities_that_this_node_computes(owner, lora, tmp_path):
    with InferenceServer(POLICY_DIR, owner=owner) as server:
        node = Node(tmp_path, server.url, lora=lora)
        generated = node.generate()
    assert [len(group) for group in generated.groups] == [4, 4]
    assert "it samples with" in generated.notice
    found = ratios(node.policy, generated)
    # vLLM does not count that the special tokens have no chance.
    assert (found - 1).abs().max() < (0.1 if owner == "vllm" else 1e-3)


@pytest.mark.parametrize(("owner", "lora"), ENGINES)
@pytest.mark.slow
def test_a_server_samples_with_the_weights_of_now_after_each_step(owner, lora, tmp_path):
    with InferenceServer(POLICY_DIR, owner=owner) as server:
        node = Node(tmp_path, server.url, lora=lora, learning_rate=3e-3)
        initial = load(node.options)
        for _ in range(2):
            node.train(node.generate())
        generated = node.generate()
        assert len(server.adapters) == (1 if lora else 0)
    assert generated.notice is None
    assert (ratios(node.policy, generated) - 1).abs().mean() < 0.02
    assert (ratios(initial, generated) - 1).abs().mean() > 0.05
    assert len(list((tmp_path / "served").iterdir())) == 1


@pytest.mark.parametrize(("dtype", "told"), [("auto", "it samples with vLLM"), ("float32", "the same --dtype")])
def test_a_server_that_computes_in_16_bits_needs_a_node_that_may_do_so(dtype, told, tmp_path):
    with InferenceServer(POLICY_DIR, dtype=torch.bfloat16) as server:
        generated = Node(tmp_path, server.url, dtype=dtype).generate(max_tokens=FEW_TOKENS)
    assert told in generated.notice


def test_a_server_reads_the_prompts_as_this_node_does(recorded):
    server, node, _ = recorded
    asked = server.asked("/v1/completions")[1]
    assert asked["prompt"] == [node.policy.prompt_tokens(prompt) for prompt in QUESTIONS]


def test_a_server_is_asked_to_sample_as_this_node_does(recorded):
    server, node, _ = recorded
    asked = server.asked("/v1/completions")[1]
    assert asked["n"] == 4
    assert asked["max_tokens"] == FEW_TOKENS
    assert asked["stop"] == ["</answer>"]
    assert asked["stop_token_ids"] == list(node.policy.ends)
    assert asked["logit_bias"] == {str(token): -100 for token in node.policy.forbidden.tolist()}
    assert (asked["temperature"], asked["top_p"], asked["top_k"], asked["min_p"]) == (1, 1, -1, 0)
    assert (asked["repetition_penalty"], asked["frequency_penalty"], asked["presence_penalty"]) == (1, 0, 0)


def test_completions_of_a_server_end_where_those_of_this_node_end(tmp_path):
    spoil = changed(tokens=lambda t: [*t, "token_id:7"], token_logprobs=lambda held: [*held, -1.0])
    with InferenceServer(POLICY_DIR, spoil=spoil) as server:
        generated = Node(tmp_path, server.url).generate()
    assert "it samples with" in generated.notice
    first = generated.groups[0][0]
    assert first.finish == "stop"
    assert first.text.endswith("</answer>")
    assert len(first.tokens) == len(first.logprobs)


class ThinkingServer(InferenceServer):
    """Its model names the tags of an answer while it thinks, and writes on behind its answer."""

    @torch.no_grad()
    def _sample(self, prompt, count, sampling, most):
        tokens = self.tokenizer(f"It goes into <answer></answer>. 4{THOUGHT}{ANSWER} So.")["input_ids"][:most]
        logits = self.model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        logits[:, [int(token) for token in sampling["logit_bias"]]] -= 100
        logprobs = logits.log_softmax(-1)[range(len(tokens)), tokens].tolist()
        ended = (place for place, _ in enumerate(tokens, 1) if self._ends(tokens[:place], sampling))
        end = next(ended, len(tokens))
        return [(tokens[:end], logprobs[:end])] * count


@pytest.mark.parametrize("owner", ["vllm", "sglang"])
@pytest.mark.slow
def test_a_server_goes_on_where_a_model_that_thinks_names_the_tags_of_an_answer(owner, tmp_path):
    folder = write_model(tmp_path, "llama")
    write_tokenizer(folder, f"{TEMPLATE}{THINK}\n")
    with ThinkingServer(folder, owner=owner) as server:
        generated = Node(tmp_path, server.url, model=str(folder), max_tokens=80).generate(max_tokens=80)
    assert "it samples with" in generated.notice
    assert {(each.text[-len(ANSWER) :], each.finish) for group in generated.groups for each in group} == {
        (ANSWER, "stop")
    }


@torch.no_grad()
def altered(model, by):
    """Another checkpoint of the same model: each weight differs by this part of the spread of its matrix."""
    rng = torch.Generator().manual_seed(0)
    for value in model.parameters():
        value.add_(by * value.std() * torch.randn(value.shape, generator=rng))


def test_another_checkpoint_of_the_same_model_is_noticed(server, tmp_path):
    node = Node(tmp_path, server.url)
    altered(server.model, 0.01)
    generated = node.generate()
    assert "its log-probabilities differ from this node's by" in generated.notice
    assert "and may by 0.005: it has other weights" in generated.notice
    assert list(generated.groups) == generate(node.policy, request(), node.options.max_completion_bytes)


def test_quite_another_model_is_noticed_before_it_samples_a_round(server, tmp_path):
    altered(server.model, 0.5)
    assert (
        "it has other weights, or it does not sample with the adapter" in Node(tmp_path, server.url).generate().notice
    )


@pytest.mark.parametrize("owner", ["vllm", "sglang"])
def test_a_server_that_takes_adapters_and_samples_without_is_noticed_before_the_first_step(owner, tmp_path):
    with InferenceServer(POLICY_DIR, owner=owner) as server:
        server.follows = False
        node = Node(tmp_path, server.url)
        before = [value.clone() for _, value in node.policy.trainable()]
        generated = node.generate()
    assert "it does not sample with the adapter that it loads: with an adapter of noise" in generated.notice
    assert all(map(torch.equal, before, (value for _, value in node.policy.trainable())))
    assert list(generated.groups) == generate(node.policy, request(), node.options.max_completion_bytes)


def test_a_learner_that_may_compute_in_16_bits_allows_for_its_rounding():
    assert TOLERANCE["float32"] < TOLERANCE["auto"] == TOLERANCE["bfloat16"] < 0.052


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of models, by name: one, a copy of it, and one with other weights."""
    root = tmp_path_factory.mktemp("models")
    for name in ("one", "other"):
        (root / name).mkdir()
        write_model(root / name, "llama")
    model = AutoModelForCausalLM.from_pretrained(root / "other")
    altered(model, 0.01)
    model.save_pretrained(root / "other")
    shutil.copytree(root / "one", root / "copy")
    return root


NAMES = [
    ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B", False),
    ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", True),
    ("Qwen/Qwen2.5-0.5B-Instruct", "unsloth/qwen2.5-0.5B-Instruct", True),
    ("Qwen/Qwen2.5-0.5B-Instruct", "mine", True),
    ("{one}", "Qwen/Qwen2.5-0.5B", True),
    ("{one}", "/no/such/folder", True),
    ("{one}", "{one}", True),
    ("{one}", "{copy}", True),
    ("{one}", "{other}", False),
    ("seed", "{other}", False),
]


@pytest.mark.parametrize(("ours", "theirs", "same"), NAMES)
def test_the_model_that_a_server_names_is_compared_with_that_of_the_node(ours, theirs, same, folders):
    ours, theirs = (text.format(**{path.name: path for path in folders.iterdir()}) for text in (ours, theirs))
    refused = nullcontext() if same else pytest.raises(ServerFailed, match=r"it serves .*, which is another model than")
    with refused:
        require_model(ours, Served((), theirs, None))


def test_a_server_that_names_another_model_is_not_asked_to_sample(recorded, folders):
    server, node, own = recorded
    node.begin_session()
    server.spoil = lambda path, reply: models(root=str(folders / "other")) if path == "/v1/models" else reply
    before = len(server.asked("/v1/completions"))
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "other', which is another model than 'seed'" in generated.notice
    assert list(generated.groups) == own
    assert len(server.asked("/v1/completions")) == before


def test_a_server_that_takes_too_few_tokens_is_told_what_it_needs(recorded):
    server, node, _ = recorded
    node.begin_session()
    needed = max(len(node.policy.prompt_tokens(prompt)) for prompt in QUESTIONS) + MAX_TOKENS
    server.spoil = lambda path, reply: models(max_model_len=needed - 30) if path == "/v1/models" else reply
    before = len(server.asked("/v1/completions"))
    generated = node.generate()
    assert f"it takes {needed - 30} tokens" in generated.notice
    assert f"start it with --max-model-len {needed} or more" in generated.notice
    assert len(server.asked("/v1/completions")) == before


@pytest.mark.parametrize("most", [0, 1, "128", True])
def test_a_server_that_takes_enough_tokens_or_does_not_say_samples(most, recorded):
    server, node, _ = recorded
    node.begin_session()
    needed = max(len(node.policy.prompt_tokens(prompt)) for prompt in QUESTIONS) + FEW_TOKENS
    listed = models(max_model_len=needed if most == 1 else most)
    server.spoil = lambda path, reply: listed if path == "/v1/models" else reply
    assert "it samples with" in node.generate(max_tokens=FEW_TOKENS).notice


def models(**said):
    return {"data": [{"id": "base", "owned_by": "vllm"} | said]}


@pytest.mark.parametrize(
    ("finish", "words"),
    [
        ("length", "because of a limit of its own"),
        ("abort", "because it gave it up"),
        ("stop", "and says that it is complete"),
        (None, "and says 'None'"),
        ({"a": "\x1b[2J" * 99}, "and says"),
    ],
)
def test_why_a_server_cut_a_completion_is_told(finish, words, recorded):
    server, node, own = recorded

    def cut(choices):
        logprobs = {name: held[:2] for name, held in choices[0]["logprobs"].items()}
        return {"choices": [{"index": 0, "finish_reason": finish, "logprobs": logprobs}, *choices[1:]]}

    server.spoil = of_choices(cut)
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert f"it ends a completion after 2 of {FEW_TOKENS} tokens without an end, {words}" in generated.notice
    assert generated.notice.isprintable()
    assert list(generated.groups) == own


def test_a_server_cannot_know_which_completion_is_compared_with_the_own_model(recorded):
    server, node, own = recorded

    def wrong_but_for_the_longest(choices):
        for prompt in (choices[:4], choices[4:]):
            lengths = [len(choice["logprobs"]["tokens"]) for choice in prompt]
            longest = max(range(4), key=lambda place: (lengths[place], place))
            for place, choice in enumerate(prompt):
                if place != longest:
                    choice["logprobs"]["token_logprobs"] = [-3.0] * lengths[place]
        return {"choices": choices}

    server.spoil = of_choices(wrong_but_for_the_longest)
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "it has other weights" in generated.notice
    assert list(generated.groups) == own


def of_choices(change):
    """Spoils the completions of a round. Those by the adapter of noise, of one prompt, stay."""

    def spoil(path, reply):
        of_round = path == "/v1/completions" and len(reply["choices"]) > 4
        return change(copy.deepcopy(reply["choices"])) if of_round else reply

    return spoil


def changed(**parts):
    """Spoils the first completion."""

    def change(choices):
        for name, value in parts.items():
            held = choices[0]["logprobs"][name]
            choices[0]["logprobs"][name] = value(held) if callable(value) else value
        return {"choices": choices}

    return of_choices(change)


NAN = b'{"choices": [{"index": 0, "logprobs": {"tokens": ["token_id:1"], "token_logprobs": [NaN]}}]}'
SPOILT = {
    "no JSON": (of_choices(lambda _: b"<html>"), "is not JSON, it begins '<html>'"),
    "deep JSON": (of_choices(lambda _: b"[" * 50_000), "is not JSON"),
    "NaN": (of_choices(lambda _: NAN), "is not JSON"),
    "infinite": (changed(token_logprobs=lambda held: [-1e999, *held[1:]]), "is not JSON"),
    "a number too large": (of_choices(lambda _: NAN.replace(b"NaN", b"1" * 5000)), "is not JSON"),
    "too much": (of_choices(lambda _: b" " * 2**20), "is longer than"),
    "an error": (of_choices(lambda _: 500), "it refuses /v1/completions (500"),
    "a redirect": (of_choices(lambda _: 307), "it refuses /v1/completions (307"),
    "another object": (of_choices(lambda _: [1]), "has no choices"),
    "no log-probabilities": (of_choices(lambda c: {"choices": [{"index": 0}, *c[1:]]}), "has no index, tokens"),
    "too few completions": (of_choices(lambda c: {"choices": c[1:]}), "it returns 7 completions, and 8"),
    "a completion twice": (of_choices(lambda c: {"choices": [c[1], *c[1:]]}), "it returns 8 completions, and 8"),
    "too few tokens": (changed(tokens=lambda t: t[:3], token_logprobs=lambda t: t[:3]), "after 3 of 4 tokens"),
    "no tokens": (changed(tokens=[], token_logprobs=[]), "after 0 of 4 tokens"),
    "unlike numbers": (changed(token_logprobs=lambda held: held[1:]), "log-probabilities of"),
    "a token that the model lacks": (changed(tokens=lambda t: ["token_id:99999", *t[1:]]), "samples '99999'"),
    "a token as text": (changed(tokens=lambda t: ["the", *t[1:]]), "samples 'None'"),
    "a token below 0": (changed(tokens=lambda t: ["token_id:-1", *t[1:]]), "samples 'None'"),
    "a positive log-probability": (changed(token_logprobs=lambda held: [0.5, *held[1:]]), "returns '0.5' as"),
    "a log-probability beyond floats": (changed(token_logprobs=lambda held: [-(10**400), *held[1:]]), "returns '-1000"),
    "a log-probability of minus 1e300": (changed(token_logprobs=lambda held: [-1e300, *held[1:]]), "returns '-1e+300'"),
    "a log-probability as text": (changed(token_logprobs=lambda held: ["0", *held[1:]]), "returns '0' as"),
    "no log-probability of a token": (changed(token_logprobs=lambda held: [None, *held[1:]]), "returns 'None' as"),
    "an order that failed": (
        lambda path, reply: (
            {"success": False, "error_message": "no room"} if path == "/v1/load_lora_adapter" else reply
        ),
        "it refuses /v1/load_lora_adapter (no room); vLLM needs --enable-lora",
    ),
    "no models": (lambda path, reply: {} if path == "/v1/models" else reply, "it lists no models"),
    "no adapters": (lambda path, reply: 404 if path == "/v1/load_lora_adapter" else reply, "it refuses /v1/load_lora"),
}


STARTS = {"an order that failed", "no models", "no adapters"}
"""Of these a node learns when it begins to ask the server."""


@pytest.mark.parametrize("name", SPOILT)
def test_a_bad_reply_costs_the_round_its_server_and_nothing_else(name, recorded):
    server, node, own = recorded
    server.spoil, message = SPOILT[name]
    if name in STARTS:
        node.begin_session()
    generated = node.generate(max_tokens=FEW_TOKENS)
    [line] = generated.notice.splitlines()
    assert message in line
    assert "The node samples by itself" in line
    assert list(generated.groups) == own


def test_a_completion_with_a_special_token_is_not_taken(recorded):
    server, node, _ = recorded
    special = node.policy.forbidden.tolist()[0]
    server.spoil = changed(tokens=lambda t: [f"token_id:{special}", *t[1:]])
    assert f"samples '{special}', which is no token" in node.generate(max_tokens=FEW_TOKENS).notice


@pytest.mark.parametrize(
    "spoilt", [{}, [], [{"meta_info": {}}] * 8, [{"meta_info": {"output_token_logprobs": [[1]]}}] * 8]
)
def test_a_bad_reply_of_sglang_is_noticed(spoilt, recorded):
    server, node, own = recorded
    node.begin_session()
    listed = {"data": [{"id": "base", "owned_by": "sglang"}]}
    replies = {"/v1/models": listed, "/load_lora_adapter": "loaded", "/generate": spoilt}
    server.spoil = lambda path, _: replies[path]
    server.recorded = dict.fromkeys(replies, "unused") | server.recorded
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "of its reply" in generated.notice or "its reply is not a list" in generated.notice
    assert list(generated.groups) == own


@pytest.mark.parametrize(
    ("owner", "adapters", "message"),
    [
        ("vllm", False, "vLLM takes adapters, and this node trains all weights"),
        ("llamacpp", True, "llama.cpp loads no new adapter while it runs"),
        ("somebody", True, "it is neither vLLM nor SGLang, it calls itself 'somebody'"),
    ],
)
def test_a_server_that_cannot_follow_the_weights_is_told_from_one_that_can(owner, adapters, message, recorded):
    server, _, _ = recorded
    server.spoil = lambda *_: {"data": [{"id": "base", "owned_by": owner}]}
    with pytest.raises(ServerFailed, match=message):
        find_engine(connection.Connection(server.url, None), adapters=adapters)


def test_a_server_that_hangs_costs_its_deadline(recorded, monkeypatch):
    server, node, own = recorded
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.3)
    released = threading.Event()
    server.spoil = lambda *_: released.wait(60)
    node.begin_session()
    generated = node.generate(max_tokens=FEW_TOKENS)
    released.set()
    assert "its reply to /v1/models took longer than the 0.3 s for all of a round" in generated.notice
    assert list(generated.groups) == own


def test_all_requests_of_a_round_share_one_deadline(recorded, monkeypatch):
    server, node, own = recorded
    node.generate(max_tokens=FEW_TOKENS)
    name = server.asked("/v1/load_lora_adapter")[-1]["lora_name"]
    old = {"data": [{"id": f"{name}{number}", "owned_by": "vllm"} for number in range(60)]}

    def just_in_time(path, reply):
        if path == "/v1/unload_lora_adapter":
            time.sleep(0.1)
        return old if path == "/v1/models" else reply

    monkeypatch.setattr(connection, "REQUEST_SECONDS", 1.0)
    server.spoil = just_in_time
    node.begin_session()
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "its reply to /v1/unload_lora_adapter took longer than the 1 s for all of a round" in generated.notice
    assert list(generated.groups) == own


def test_the_deadline_of_a_round_ends_long_before_that_of_the_learner():
    assert connection.REQUEST_SECONDS <= GENERATE_DEADLINE / 2


@pytest.fixture
def stuck(recorded, monkeypatch):
    """A server that has sampled a round, and then answers no request for completions; and its node."""
    server, node, own = recorded
    monkeypatch.setattr(connection, "HEALTH_EVERY", 0.02)
    assert "it samples with" in node.generate(max_tokens=FEW_TOKENS).notice
    released = threading.Event()
    server.spoil = lambda path, reply: released.wait(60) if path == "/v1/completions" else reply
    yield server, node, own
    released.set()


def test_a_round_may_take_some_times_as_long_as_the_rounds_before(stuck, monkeypatch):
    _, node, own = stuck
    monkeypatch.setattr(generation, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(generation, "PATIENCE", 1e-9)
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "its reply to /v1/completions took longer than the 0.2 s for all of a round" in generated.notice
    assert list(generated.groups) == own


def test_a_server_that_was_late_is_left_alone_for_a_while(stuck, monkeypatch):
    server, node, own = stuck
    monkeypatch.setattr(generation, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(generation, "PATIENCE", 1e-9)
    monkeypatch.setattr(generation, "REST", 1e6)
    assert "and tries the server again after" in node.generate(max_tokens=FEW_TOKENS).notice
    before = len(server.requests)
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert (generated.notice, list(generated.groups)) == (None, own)
    assert len(server.requests) == before


SICK = {
    "hangs": (lambda released: released.wait(60), "its /health does not answer within 0.1 s"),
    "says that its engine is dead": (
        lambda _: (503, {"detail": "EngineCore encountered an issue."}),
        "its /health says 503 (EngineCore encountered an issue.)",
    ),
}


@pytest.mark.parametrize("name", SICK)
def test_a_server_whose_health_is_bad_while_it_samples_is_given_up_at_once(name, stuck, monkeypatch):
    server, node, own = stuck
    monkeypatch.setattr(connection, "HEALTH_SECONDS", 0.1)
    released, hangs, (sick, message) = threading.Event(), server.spoil, SICK[name]
    server.spoil = lambda path, reply: sick(released) if path == "/health" else hangs(path, reply)
    generated = node.generate(max_tokens=FEW_TOKENS)
    released.set()
    assert f"it does not answer /v1/completions, and {message}" in generated.notice
    assert list(generated.groups) == own


def test_a_server_that_takes_no_more_connections_while_it_works_is_given_up_at_once(recorded, monkeypatch):
    _, node, own = recorded
    monkeypatch.setattr(connection, "HEALTH_EVERY", 0.02)
    listener = socket.create_server(("127.0.0.1", 0))
    accepted = []

    def serve():
        accepted.append(listener.accept())
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    node.begin_session(f"http://127.0.0.1:{listener.getsockname()[1]}")
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "it does not answer /v1/models, and its /health cannot be asked" in generated.notice
    assert list(generated.groups) == own
    accepted[0][0].close()


@pytest.mark.parametrize("status", [404, 501])
def test_a_server_without_health_is_waited_for(status, recorded, monkeypatch):
    server, node, _ = recorded
    monkeypatch.setattr(connection, "HEALTH_EVERY", 0.02)
    asked = threading.Semaphore(0)

    def slow(path, reply):
        if path == "/v1/completions":
            for _ in range(4):
                assert asked.acquire(timeout=30)
        if path == "/health":
            asked.release()
            return status
        return reply

    server.spoil = slow
    assert "it samples with vLLM" in node.generate(max_tokens=FEW_TOKENS).notice


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{"])
def test_a_server_that_is_killed_in_its_reply_costs_no_deadline(start, recorded):
    _, node, own = recorded
    with closing_after(start) as url:
        node.begin_session(url)
        generated = node.generate(max_tokens=FEW_TOKENS)
    assert "the request /v1/models failed" in generated.notice
    assert list(generated.groups) == own


def test_a_server_that_is_not_there_costs_no_deadline(recorded):
    _, node, own = recorded
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    node.begin_session(url)
    generated = node.generate(max_tokens=FEW_TOKENS)
    assert "the request /v1/models failed" in generated.notice
    assert list(generated.groups) == own


@contextmanager
def closing_after(start):
    """The address of a server that sends `start`, and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with suppress(OSError):
            client, _ = listener.accept()
            client.recv(65_536)
            client.sendall(start)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


@contextmanager
def trickling(start, part):
    """The address of a server whose reply has no end: it sends `part` again and again."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve():
        with suppress(OSError):
            client, _ = listener.accept()
            client.recv(65_536)
            client.sendall(start)
            while not over.wait(0.02):
                client.sendall(part)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    given_up = threading.Timer(10, over.set)
    given_up.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert not over.is_set(), "the server ended the exchange"
    given_up.cancel()
    over.set()
    listener.close()


ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "size of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_reply_that_never_ends_costs_its_deadline(name, recorded, monkeypatch):
    _, node, own = recorded
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.3)
    with trickling(*ENDLESS[name]) as url:
        node.begin_session(url)
        generated = node.generate(max_tokens=FEW_TOKENS)
    assert "its reply to /v1/models took longer than the 0.3 s for all of a round" in generated.notice
    assert list(generated.groups) == own


def test_a_server_that_lists_many_weights_of_this_node_is_not_asked_to_forget_each(recorded):
    server, node, _ = recorded
    node.generate(max_tokens=FEW_TOKENS)
    name, forgotten = server.asked("/v1/load_lora_adapter")[-1]["lora_name"], server.asked("/v1/unload_lora_adapter")
    listed = {"data": [{"id": f"{name}{number}", "owned_by": "vllm"} for number in range(1000)]}
    server.spoil = lambda path, reply: listed if path == "/v1/models" else reply
    node.begin_session()
    assert "it lists 1000 weights of this node" in node.generate(max_tokens=FEW_TOKENS).notice
    assert server.asked("/v1/unload_lora_adapter") == forgotten


def test_a_server_that_is_away_is_noticed_once_and_used_again_when_it_is_back(tmp_path):
    away = False
    with InferenceServer(POLICY_DIR, spoil=lambda path, reply: 503 if away and path != "/health" else reply) as server:
        node = Node(tmp_path, server.url)
        assert "it samples with vLLM" in node.generate(max_tokens=FEW_TOKENS).notice
        away = True
        assert "refuses /v1/completions (503: refused)" in node.generate(max_tokens=FEW_TOKENS).notice
        again = node.generate(max_tokens=FEW_TOKENS)
        assert again.notice is None
        assert "(503" in again.failure
        away = False
        assert "it samples with vLLM" in node.generate(max_tokens=FEW_TOKENS).notice
        assert len(server.adapters) == 1


def test_a_server_that_was_started_again_gets_the_weights_in_the_same_round(server, tmp_path):
    node = Node(tmp_path, server.url)
    generated = node.generate()
    node.train(generated)
    server.restart()
    assert node.generate().notice is None
    assert len(server.adapters) == 1


def test_each_reason_for_which_the_node_samples_is_told_once(recorded):
    server, node, _ = recorded

    def notice(status, said):
        server.spoil = of_choices(lambda _: (status, {"error": {"message": said}}))
        return node.generate(max_tokens=FEW_TOKENS).notice

    assert "(503: out of memory)" in notice(503, "out of memory")
    assert notice(503, "out of memory") is None
    assert "(503: request 17 was aborted)" in notice(503, "request 17 was aborted")
    assert notice(503, "request 18 was aborted") is None
    assert "(500: request 19 was aborted)" in notice(500, "request 19 was aborted")


def test_a_server_that_comes_back_with_a_lower_rank_of_adapters_is_told_with_its_whole_sentence(server, tmp_path):
    node = Node(tmp_path, server.url)
    assert "it samples with" in node.generate(max_tokens=FEW_TOKENS).notice
    server.restart()
    server.max_rank = 2
    notice = node.generate(max_tokens=FEW_TOKENS).notice
    assert "(500: Call to add_lora method failed: LoRA rank 4 is greater than max_lora_rank 2.)" in notice
    assert "vLLM needs --enable-lora, --max-lora-rank 4 or more" in notice


def test_a_server_that_keeps_the_weights_of_the_step_before_is_corrected_for_in_the_loss(tmp_path):
    refuses = False

    def spoil(path, reply):
        return 400 if refuses and path == "/v1/load_lora_adapter" else reply

    with InferenceServer(POLICY_DIR, spoil=spoil) as server:
        node = Node(tmp_path, server.url)
        before = load(node.options)
        node.train(node.generate())
        refuses = True
        behind = node.generate()
        assert "it samples with the weights of the step before, because it refuses" in behind.notice
        assert (ratios(before, behind) - 1).abs().mean() < (ratios(node.policy, behind) - 1).abs().mean()
        assert (ratios(node.policy, behind) - 1).abs().max() > 0.01
        assert node.train(behind).skipped is None
        two_behind = node.generate().notice
        assert "it refuses /v1/load_lora_adapter" in two_behind
        assert "The node samples by itself" in two_behind


def test_after_steps_were_taken_back_the_server_gets_the_weights_of_the_restored_step(server, tmp_path):
    node = Node(tmp_path, server.url, learning_rate=1e-2)
    first = node.generate()
    node.train(first)
    node.generate()
    node.service.answer({"restore": to_json(RestoreRequest(0))})
    node.train(from_json(Generated, {"groups": to_json(first.groups[::-1])}))
    again = node.generate()
    assert again.notice is None
    assert (ratios(node.policy, again) - 1).abs().mean() < 0.02
    assert len(server.adapters) == 1


def test_a_learner_that_starts_again_removes_the_adapters_of_the_one_before(server, tmp_path):
    Node(tmp_path, server.url).generate(max_tokens=FEW_TOKENS)
    [old] = server.adapters
    Node(tmp_path / "another", server.url).generate(max_tokens=FEW_TOKENS)
    Node(tmp_path, server.url).generate(max_tokens=FEW_TOKENS)
    assert old not in server.adapters
    assert len(server.adapters) == 2


def test_an_evaluation_is_sampled_by_the_node(recorded):
    server, node, _ = recorded
    before = len(server.requests)
    node.generate(averaged=True, max_tokens=FEW_TOKENS)
    assert len(server.requests) == before


def test_a_learner_that_only_reads_asks_no_server():
    assert server_of(LearnerOptions(checkpoints="", server="http://127.0.0.1:8000", read_only=True)) is None


def test_the_key_of_the_environment_goes_to_the_server(recorded, monkeypatch):
    server, node, _ = recorded
    monkeypatch.setenv("SAPO_NODE_API_KEY", "secret")
    monkeypatch.setattr(server, "headers", [])
    node.begin_session()
    node.generate(max_tokens=FEW_TOKENS)
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer secret"}


def test_the_configuration_names_the_server(tmp_path):
    manifest = load_manifest("starter")
    assert (
        learner_options(Config(generate="http://127.0.0.1:8000"), manifest, tmp_path).server == "http://127.0.0.1:8000"
    )
    assert not learner_options(Config(), manifest, tmp_path).server


def test_the_address_may_end_as_that_of_an_openai_client_does(recorded):
    server, node, _ = recorded
    node.begin_session(f"{server.url}/v1/")
    assert "it samples with vLLM" in node.generate(max_tokens=FEW_TOKENS).notice


def test_a_password_in_the_address_is_not_shown():
    assert connection.Connection("http://operator:secret@127.0.0.1:8000", None).place == "http://127.0.0.1:8000"


@pytest.mark.parametrize("url", ["http://192.0.2.7:8000", "http://example.org", "ftp://127.0.0.1", "127.0.0.1:8000"])
def test_an_address_that_leaves_this_machine_unencrypted_is_refused(url, tmp_path):
    with pytest.raises(LocalError, match="--generate"):
        Node(tmp_path, url)
