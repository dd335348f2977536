"""Completions sampled by a real HTTP server with a model of its own, which follows this node's weights or does not."""

import copy
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch

from inference_server import InferenceServer
from sapo_node.app.config import Config
from sapo_node.app.learner_options import learner_options
from sapo_node.app.state import StateFolder
from sapo_node.groups.answer import THINK, THOUGHT
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
from sapo_node.learner.client import Learner
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.server import connection
from sapo_node.learner.server.connection import ServerFailed
from sapo_node.learner.server.engines import find_engine
from sapo_node.learner.server.generation import TOLERANCE, server_of
from sapo_node.learner.service import Service
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
    """A server, a node that it has sampled for, what it sampled, and what this node samples itself."""
    replies = []

    def record(path, reply):
        replies.extend([reply] if path == "/v1/completions" else [])
        return reply

    with InferenceServer(POLICY_DIR, spoil=record) as server:
        node = Node(tmp_path_factory.mktemp("recorded"), server.url)
        node.generate(max_tokens=FEW_TOKENS)
        own = generate(node.policy, request(max_tokens=FEW_TOKENS), node.options.max_completion_bytes)
        yield server, node, replies[0], own


@pytest.fixture
def recorded(recording):
    """A server that returns what it once sampled, a node that begins to ask it, and what this node samples itself."""
    server, node, reply, own = recording
    server.recorded = {"/v1/load_lora_adapter": "loaded", "/v1/completions": reply}
    server.spoil = lambda _, reply: reply
    node.begin_session()
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


def test_a_server_that_computes_in_16_bits_is_within_the_tolerance(tmp_path):
    with InferenceServer(POLICY_DIR, dtype=torch.bfloat16) as server:
        node = Node(tmp_path, server.url)
        generated = node.generate()
    assert "it samples with vLLM" in generated.notice
    assert (ratios(node.policy, generated) - 1).abs().max() > 1e-3


def test_a_server_reads_the_prompts_as_this_node_does(recorded):
    server, node, _ = recorded
    asked = server.asked("/v1/completions")[0]
    assert asked["prompt"] == [node.policy.prompt_tokens(prompt) for prompt in QUESTIONS]


def test_a_server_is_asked_to_sample_as_this_node_does(recorded):
    server, node, _ = recorded
    asked = server.asked("/v1/completions")[0]
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
def test_a_server_goes_on_where_a_model_that_thinks_names_the_tags_of_an_answer(owner, tmp_path):
    folder = write_model(tmp_path, "llama")
    write_tokenizer(folder, f"{TEMPLATE}{THINK}\n")
    with ThinkingServer(folder, owner=owner) as server:
        generated = Node(tmp_path, server.url, model=str(folder), max_tokens=80).generate(max_tokens=80)
    assert "it samples with" in generated.notice
    assert {(each.text[-len(ANSWER) :], each.finish) for group in generated.groups for each in group} == {
        (ANSWER, "stop")
    }


def test_other_weights_on_the_server_are_noticed(server, tmp_path):
    with torch.no_grad():
        for value in server.model.parameters():
            value.mul_(1.2)
    node = Node(tmp_path, server.url)
    generated = node.generate()
    assert "it has other weights" in generated.notice
    assert f"may by {TOLERANCE}" in generated.notice
    assert list(generated.groups) == generate(node.policy, request(), node.options.max_completion_bytes)


def of_choices(change):
    """Spoils the completions of a reply."""

    def spoil(path, reply):
        return change(copy.deepcopy(reply["choices"])) if path == "/v1/completions" else reply

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
    "no models": (lambda path, reply: {} if path == "/v1/models" else reply, "it lists no models"),
    "no adapters": (lambda path, reply: 404 if path == "/v1/load_lora_adapter" else reply, "it refuses /v1/load_lora"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_bad_reply_costs_the_round_its_server_and_nothing_else(name, recorded):
    server, node, own = recorded
    server.spoil, message = SPOILT[name]
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
    assert "its reply to /v1/models took longer than 0.3 s" in generated.notice
    assert list(generated.groups) == own


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
    assert "its reply to /v1/models took longer than 0.3 s" in generated.notice
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
    with InferenceServer(POLICY_DIR, spoil=lambda _, reply: 503 if away else reply) as server:
        node = Node(tmp_path, server.url)
        assert "it samples with vLLM" in node.generate().notice
        away = True
        assert "refuses /v1/completions (503" in node.generate().notice
        assert node.generate().notice is None
        away = False
        assert "it samples with vLLM" in node.generate().notice
        assert len(server.adapters) == 1


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
    Node(tmp_path, server.url).generate()
    [old] = server.adapters
    Node(tmp_path / "another", server.url).generate()
    Node(tmp_path, server.url).generate()
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
    manifest, folder = load_manifest("starter"), StateFolder(tmp_path)
    assert learner_options(Config(generate="http://127.0.0.1:8000"), manifest, folder).server == "http://127.0.0.1:8000"
    assert not learner_options(Config(), manifest, folder).server


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


async def test_the_operator_is_told_who_samples(server, tmp_path, nursery, caplog):
    learner = Learner(Node(tmp_path, server.url).options)
    await nursery.start(learner.run)
    await learner.generate(QUESTIONS, completions=2, max_tokens=20, seed=1)
    assert f"server {server.url}: it samples with vLLM" in caplog.text
