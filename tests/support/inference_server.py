"""An inference server on loopback that speaks the protocols of vLLM and SGLang, with a real model and real adapters.

It samples by itself: transformers, one token at a time for all completions of a prompt.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from loopback_server import LoopbackServer

torch.set_num_threads(1)


class InferenceServer(LoopbackServer):
    """Serves in a thread of its own, as `vllm`, `sglang` or whatever `owner` it claims to be.

    `spoil(path, reply)` may change what it answers, or return bytes in its place, or a status, or (status, reply).
    """

    def __init__(
        self,
        folder,
        *,
        owner="vllm",
        dtype=torch.float32,
        spoil: Callable[[str, Any], Any] = lambda _, reply: reply,
    ):
        self.owner = owner
        self.spoil = spoil
        self.root, self.context = str(folder), 2048
        self.max_rank = 64
        self.follows = True
        """Whether it samples with the adapters that it loads."""
        self.requests: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self._rng = torch.Generator().manual_seed(0)
        self.adapters: list[str] = []
        self.recorded: dict[str, Any] = {}
        """What it returns at a path, without doing anything; or a function of the request that returns it."""
        super().__init__()

    def asked(self, path):
        """The requests to a path."""
        return [body for each, body in self.requests if each == path]

    def answer(self, path, body):
        """(status, reply) of a well-behaved server."""
        if path in ("/health", "/v1/models"):
            return 200, self._models() if path == "/v1/models" else ""
        if path.endswith(("_lora_adapter", "_from_disk")):
            return self._change(path, body)
        named = body.get("model", body.get("lora_path"))
        if named and named not in self.adapters:
            return 404, _error(f"The model `{named}` does not exist.", "NotFoundError", 404)
        return 200, self._complete(path, body)

    def _models(self):
        base = {"id": "base", "root": self.root, "parent": None, "max_model_len": self.context}
        adapters = [{"id": name, "root": "/a/folder", "parent": "base"} for name in self.adapters]
        return {"data": [{**model, "owned_by": self.owner} for model in [base, *adapters]]}

    def _change(self, path, body):
        if path.endswith("/load_lora_adapter"):
            return self._load(body["lora_name"], body["lora_path"])
        if path == "/update_weights_from_disk":
            self.model = AutoModelForCausalLM.from_pretrained(body["model_path"]).eval()
            return 200, {"success": True}
        if body["lora_name"] not in self.adapters:
            return 404, _error(f"The lora adapter '{body['lora_name']}' cannot be found.", "NotFoundError", 404)
        self.adapters.remove(body["lora_name"])
        self.model.delete_adapter(body["lora_name"])
        return 200, "done"

    def restart(self):
        """Forget all adapters, as a server does that was started again."""
        for name in self.adapters:
            self.model.delete_adapter(name)
        self.adapters = []

    def _load(self, name, path):
        if name in self.adapters:
            return 400, _error(f"The lora adapter '{name}' has already been loaded.", "InvalidUserInput", 400)
        rank = json.loads((Path(path) / "adapter_config.json").read_text())["r"]
        if rank > self.max_rank:
            said = f"Call to add_lora method failed: LoRA rank {rank} is greater than max_lora_rank {self.max_rank}."
            return 500, _error(said, "InternalServerError", 500)
        if isinstance(self.model, PeftModel):
            self.model.load_adapter(path, adapter_name=name)
        else:
            self.model = PeftModel.from_pretrained(self.model, path, adapter_name=name)
        self.model.eval()
        self.adapters.append(name)
        return 200, "loaded"

    def _complete(self, path, body):
        if path == "/v1/completions":
            self._use(body["model"])
            groups = (self._sample(prompt, body["n"], body, body["max_tokens"]) for prompt in body["prompt"])
            return {"choices": [_choice(place, *each) for place, each in enumerate(chain.from_iterable(groups))]}
        assert path == "/generate", path
        self._use(body.get("lora_path"))
        sampling = body["sampling_params"]
        each = [self._sample(prompt, 1, sampling, sampling["max_new_tokens"])[0] for prompt in body["input_ids"]]
        return [{"meta_info": {"output_token_logprobs": _pairs(*one)}} for one in each]

    def _use(self, name):
        if not name:
            return
        self.model.set_adapter(name)
        (self.model.enable_adapter_layers if self.follows else self.model.disable_adapter_layers)()

    @torch.no_grad()
    def _sample(self, prompt, count, sampling, most):
        """(tokens, log-probabilities) of each completion."""
        ids, cache, most = torch.tensor([prompt] * count), None, min(most, self.context - len(prompt))
        rows: list[tuple[list[int], list[float]]] = [([], []) for _ in range(count)]
        going = [True] * count
        for _ in range(most):
            output = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            logits, cache = output.logits[:, -1].float(), output.past_key_values
            logprobs = logits.log_softmax(-1)
            for token, bias in sampling.get("logit_bias", {}).items():
                logits[:, int(token)] += bias
            if self.owner == "sglang":  # vLLM returns the log-probabilities before the bias
                logprobs = logits.log_softmax(-1)
            ids = logits.softmax(-1).multinomial(1, generator=self._rng)
            for number, token in enumerate(ids[:, 0].tolist()):
                if going[number]:
                    rows[number][0].append(token)
                    rows[number][1].append(float(logprobs[number, token]))
                    going[number] = not self._ends(rows[number][0], sampling)
            if not any(going):
                break
        return rows

    def _ends(self, tokens, sampling):
        text = self.tokenizer.decode(tokens)
        return tokens[-1] in sampling["stop_token_ids"] or any(stop in text for stop in sampling["stop"])

    def _handler(server):  # noqa: N805 - `self` is the handler below
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self._reply(None)

            def do_POST(self):
                self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _reply(self, body):
                server.requests.append((self.path, body))
                server.headers.append(dict(self.headers))
                recorded = server.recorded.get(self.path)
                recorded = recorded(body) if callable(recorded) else recorded
                status, reply = (200, recorded) if recorded else server.answer(self.path, body)
                reply = server.spoil(self.path, reply)
                if isinstance(reply, tuple):
                    status, reply = reply
                elif isinstance(reply, int):
                    status, reply = reply, "refused"
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_):
                pass

        return Handler


def _error(said, kind, code):
    """An error as vLLM writes it."""
    return {"error": {"message": said, "type": kind, "param": None, "code": code}}


def _choice(place, tokens, logprobs):
    names = [f"token_id:{token}" for token in tokens]
    return {"index": place, "finish_reason": "length", "logprobs": {"tokens": names, "token_logprobs": logprobs}}


def _pairs(tokens, logprobs):
    return [[logprob, token, None] for token, logprob in zip(tokens, logprobs, strict=True)]
