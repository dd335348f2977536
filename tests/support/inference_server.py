"""An inference server on loopback that speaks the protocols of vLLM and SGLang, with a real model and real adapters.

It samples by itself: transformers, one token at a time for all completions of a prompt.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from itertools import chain
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from loopback_server import LoopbackServer

torch.set_num_threads(1)


class InferenceServer(LoopbackServer):
    """Serves in a thread of its own, as `vllm`, `sglang` or whatever `owner` it claims to be.

    `spoil(path, reply)` may change what it answers, or return bytes in its place.
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
        self.requests: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self._rng = torch.Generator().manual_seed(0)
        self.adapters: list[str] = []
        self.recorded: dict[str, Any] = {}
        """What it returns at a path, without doing anything."""
        super().__init__()

    def asked(self, path):
        """The requests to a path."""
        return [body for each, body in self.requests if each == path]

    def answer(self, path, body):
        """(status, reply) of a well-behaved server."""
        if path == "/v1/models":
            return 200, {"data": [{"id": name, "owned_by": self.owner} for name in ["base", *self.adapters]]}
        if path.endswith("/load_lora_adapter"):
            return self._load(body["lora_name"], body["lora_path"])
        if path.endswith("/unload_lora_adapter"):
            self.adapters.remove(body["lora_name"])
            self.model.delete_adapter(body["lora_name"])
            return 200, "done"
        if path == "/update_weights_from_disk":
            self.model = AutoModelForCausalLM.from_pretrained(body["model_path"]).eval()
            return 200, {"success": True}
        return 200, self._complete(path, body)

    def _load(self, name, path):
        if name in self.adapters:
            return 400, {"message": f"The lora adapter '{name}' has already been loaded."}
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
        if name:
            assert name in self.adapters
            self.model.set_adapter(name)

    @torch.no_grad()
    def _sample(self, prompt, count, sampling, most):
        """(tokens, log-probabilities) of each completion."""
        ids, cache = torch.tensor([prompt] * count), None
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
                status, reply = (200, recorded) if recorded else server.answer(self.path, body)
                reply = server.spoil(self.path, reply)
                if isinstance(reply, int):
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


def _choice(place, tokens, logprobs):
    names = [f"token_id:{token}" for token in tokens]
    return {"index": place, "finish_reason": "stop", "logprobs": {"tokens": names, "token_logprobs": logprobs}}


def _pairs(tokens, logprobs):
    return [[logprob, token, None] for token, logprob in zip(tokens, logprobs, strict=True)]
