"""The protocols of the inference servers that can take new weights while they run.

| server | weights | prompts as token ids, log-probabilities back |
|---|---|---|
| vLLM | adapters: /v1/load_lora_adapter (docs.vllm.ai, "LoRA Adapters") | /v1/completions |
| SGLang | adapters: /load_lora_adapter; all: /update_weights_from_disk (docs.sglang.io, "SGLang for RL") | /generate |

llama.cpp loads adapters only when it starts: its /lora-adapters sets how much each counts. So it cannot follow a model
that learns.

Each server samples from the whole distribution at temperature 1, as the node does. Every parameter of that is sent,
because the servers take their defaults from the settings of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sapo_node.learner.forward import Tokens
from sapo_node.learner.server.connection import Connection, ServerFailed
from sapo_node.tasks.answer import ANSWER_END
from sapo_protocol.printable import excerpt

BYTES_PER_TOKEN = 256
"""Bytes of a reply for each token that may be sampled, and for a prompt of each completion, at most."""
BANNED = -100.0
"""The server adds this to the logit of a token that no completion may hold. The servers take no lower value."""
TOKEN_PREFIX = "token_id:"  # noqa: S105 - what vLLM writes before the id of a token
_PLAIN = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to sample."""

    prompts: Sequence[Tokens]
    completions: int
    """Completions of each prompt."""
    max_tokens: int
    ends: tuple[int, ...]
    """Tokens that end a completion."""
    forbidden: tuple[int, ...]
    """Tokens that no completion may hold."""
    may_think: bool = False
    """True if the model may name the tags of an answer while it thinks. The server then does not stop at the closing
    tag.
    """

    @property
    def each(self) -> list[Tokens]:
        """The prompt of each completion."""
        return [prompt for prompt in self.prompts for _ in range(self.completions)]

    @property
    def most_bytes(self) -> int:
        """Bytes of the reply, at most."""
        return 2**16 + BYTES_PER_TOKEN * sum(len(prompt) + self.max_tokens for prompt in self.each)

    @property
    def sampling(self) -> dict[str, Any]:
        """The parameters that all servers call the same."""
        banned = {str(token): BANNED for token in self.forbidden}
        stop = {"stop": [] if self.may_think else [ANSWER_END], "stop_token_ids": list(self.ends)}
        return {**_PLAIN, **stop, **({"logit_bias": banned} if banned else {})}


@dataclass(frozen=True, slots=True)
class Reply:
    """One completion in the words of the server. The node has checked none of it."""

    tokens: Sequence[Any]
    logprobs: Sequence[Any]
    finish: Any
    """The reason for the end of the completion: `stop`, `length`, `abort`."""


@dataclass(frozen=True, slots=True)
class Served:
    """The description that a server gives of itself. The node has checked none of it."""

    names: tuple[str, ...]
    """Of the model and of all adapters."""
    root: str
    """The model: a folder, a name of the hub, or what the operator calls it."""
    context: int | None
    """Tokens of prompt and completion together, at most; None if the server does not say."""


class Engine(Protocol):
    """The protocol of a server. Each method raises ServerFailed."""

    name: str
    limit: str
    """The option that bounds prompt and completion together."""

    def needs_for(self, rank: int) -> str:
        """Return the options that the server needs for adapters of a rank."""
        ...

    def load(self, name: str, folder: Path) -> None:
        """Load the weights in a folder under a new name."""
        ...

    def unload(self, name: str) -> None:
        """Forget the weights of this name."""
        ...

    def sample(self, name: str, asked: Asked) -> list[Reply]:
        """Return the completions of all prompts by the weights of this name, those of one prompt together."""
        ...


class Vllm:
    """vLLM, with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING."""

    name = "vLLM"
    limit = "--max-model-len"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def needs_for(self, rank: int) -> str:
        """Return the options that the server needs for adapters of a rank."""
        return f"--enable-lora, --max-lora-rank {rank} or more, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"

    def load(self, name: str, folder: Path) -> None:
        """Load an adapter."""
        self._connection.order("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def unload(self, name: str) -> None:
        """Unload an adapter."""
        self._connection.order("/v1/unload_lora_adapter", {"lora_name": name})

    def sample(self, name: str, asked: Asked) -> list[Reply]:
        """Return the completions of the adapter."""
        request = {
            **asked.sampling,
            "model": name,
            "prompt": list(asked.prompts),
            "n": asked.completions,
            "max_tokens": asked.max_tokens,
            "include_stop_str_in_output": True,
            "logprobs": 0,
            "return_tokens_as_token_ids": True,
        }
        match self._connection.post("/v1/completions", request, most=asked.most_bytes):
            case {"choices": list(choices)}:
                placed = dict(map(self._placed, choices))
                if len(choices) == len(placed) and placed.keys() == set(range(len(asked.each))):
                    return [placed[place] for place in range(len(placed))]
                raise ServerFailed(f"it returns {len(choices)} completions, and {len(asked.each)} were asked for")
        raise ServerFailed("its reply has no choices")

    def _placed(self, choice: object) -> tuple[int, Reply]:
        match choice:
            case {
                "index": int(place),
                "logprobs": {"tokens": list(tokens), "token_logprobs": list(logprobs)},
                **others,
            }:
                return place, Reply([_token(token) for token in tokens], logprobs, others.get("finish_reason"))
        raise ServerFailed("a choice of its reply has no index, tokens and token_logprobs")


class Sglang:
    """SGLang, with --enable-lora if adapters are trained."""

    name = "SGLang"
    limit = "--context-length"

    def __init__(self, connection: Connection, *, adapters: bool) -> None:
        self._connection = connection
        self._adapters = adapters

    def needs_for(self, rank: int) -> str:
        """Return the options that the server needs for adapters of a rank."""
        return f"--enable-lora, --max-lora-rank {rank} or more, and --lora-target-modules all"

    def load(self, name: str, folder: Path) -> None:
        """Load an adapter, or all weights in place of those before."""
        if self._adapters:
            self._connection.order("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        else:
            self._connection.order("/update_weights_from_disk", {"model_path": str(folder)})

    def unload(self, name: str) -> None:
        """Unload an adapter."""
        if self._adapters:
            self._connection.order("/unload_lora_adapter", {"lora_name": name})

    def sample(self, name: str, asked: Asked) -> list[Reply]:
        """Return the completions of the model. SGLang advises to repeat a prompt, not to ask for several of one."""
        request = {
            "input_ids": asked.each,
            "sampling_params": {**asked.sampling, "max_new_tokens": asked.max_tokens, "no_stop_trim": True},
            "return_logprob": True,
            **({"lora_path": name} if self._adapters else {}),
        }
        replies = self._connection.post("/generate", request, most=asked.most_bytes)
        if not isinstance(replies, list) or len(replies) != len(asked.each):
            raise ServerFailed(f"its reply is not a list of the {len(asked.each)} completions that were asked for")
        return [self._read(reply) for reply in replies]

    def _read(self, reply: object) -> Reply:
        match reply:
            case {"meta_info": {"output_token_logprobs": list(pairs)} as meta}:
                if all(isinstance(pair, list) and len(pair) >= 2 for pair in pairs):
                    finish = meta.get("finish_reason")
                    kind = finish.get("type") if isinstance(finish, dict) else finish
                    return Reply([pair[1] for pair in pairs], [pair[0] for pair in pairs], kind)
        raise ServerFailed("a completion of its reply has no output_token_logprobs")


def _token(text: object) -> int | None:
    """Return the id of a token as vLLM writes it, for example token_id:1234."""
    digits = text.removeprefix(TOKEN_PREFIX) if isinstance(text, str) and text.startswith(TOKEN_PREFIX) else ""
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) <= 9 else None


def find_engine(connection: Connection, *, adapters: bool) -> tuple[Engine, Served]:
    """Ask the server what it is. Return its protocol and its description of itself. Raises ServerFailed if the server
    cannot load new weights.
    """
    match connection.get("/v1/models"):
        case {"data": [{"owned_by": str(owner)}, *_] as models}:
            served = _served([model for model in models if isinstance(model, dict)])
        case _:
            raise ServerFailed("it lists no models at /v1/models")
    if owner == "sglang":
        return Sglang(connection, adapters=adapters), served
    if owner == "vllm" and adapters:
        return Vllm(connection), served
    if owner == "vllm":
        raise ServerFailed("vLLM takes adapters, and this node trains all weights; give --lora 16")
    if owner == "llamacpp":
        raise ServerFailed("llama.cpp loads no new adapter while it runs, so it cannot serve a model that learns")
    raise ServerFailed(f"it is neither vLLM nor SGLang, it calls itself {excerpt(owner)!r}")


def _served(models: Sequence[dict[str, Any]]) -> Served:
    names = tuple(model["id"] for model in models if isinstance(model.get("id"), str))
    # An adapter names the model below it as its parent.
    base = next((model for model in models if not model.get("parent")), {})
    root, context = base.get("root") or base.get("id"), base.get("max_model_len")
    return Served(
        names=names,
        root=root if isinstance(root, str) else "",
        context=context if type(context) is int and context > 0 else None,
    )
