"""Samples the completions of rounds on an inference server, and on this machine whenever that fails.

Before a round the server gets the weights of now. If it cannot load them, it may sample with those of MOST_BEHIND steps
before: the loss weighs each token by its probability now over its probability when it was sampled (`grpo.importance`).

The node believes no reply:
- The server names no other model, and takes prompts and completions of this length.
- It samples with an adapter of noise that it is given. So it does not ignore adapters.
- Each token is one that the node could have sampled, and each completion ends where the node would have ended it.
- Its log-probabilities differ from those of this node by at most the tolerance. Else the server has other weights, or
  computes with them in another way. `checks` compares the longest completion of each prompt and one of the others.

All requests of a round share one deadline: PATIENCE times the longest of the last rounds. After a failure the node
samples by itself. For the next round it begins anew: it asks the server what it is, and loads the weights again. A
server that was late is left alone for REST times as long as it took, so it costs at most a fifth of the time.
"""

import hashlib
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError
from torch import Tensor

from sapo_node.contributors.exchange import KEY_VARIABLE
from sapo_node.groups.codec import LEAST_LOGPROB
from sapo_node.groups.messages import Dtype, Generated, GenerateRequest, LearnerOptions
from sapo_node.learner.forward import Tokens
from sapo_node.learner.generate import Draft, generate, prompts_of
from sapo_node.learner.model import Policy
from sapo_node.learner.server.checks import compared, differences, noisy, require_model
from sapo_node.learner.server.connection import REQUEST_SECONDS, Connection, ServerFailed, ServerLate
from sapo_node.learner.server.engines import Asked, Engine, Reply, find_engine
from sapo_node.learner.trainer import Trainer
from sapo_node.tasks.answer import THINK
from sapo_protocol.printable import excerpt, line_of

TOLERANCE: Mapping[Dtype, float] = {"float32": 0.005, "bfloat16": 0.045, "auto": 0.045}
"""Nats per token by which the log-probabilities of a server may differ from this node's, as a mean, by the format that
this node was told to compute in. SmolLM2 on vLLM with the right weights differs by 0.0001 if both compute in float32,
and by 0.010 to 0.036 if one computes in bfloat16. Another checkpoint of it, each weight changed by 1 %, differs by
0.053."""
OLDER_TOLERANCE = 0.1
"""The same for weights of the step before, which differ by a step of learning."""
MOST_OLD = 64
"""Weights of earlier processes of this node that it has a server forget. Each takes a request."""
MOST_BEHIND = 1
"""Steps by which the weights of a server may be older than this node's."""
FEW_TOKENS = 16
"""Tokens of a completion by the adapter of noise, at most."""
REMEMBERED_ROUNDS, PATIENCE, LEAST_SECONDS = 8, 3.0, 60.0
"""A round may take PATIENCE times as long as the longest of this many rounds before, and always LEAST_SECONDS."""
REST = 4.0
"""A server that took all of its deadline is left alone for this many times as long."""

FOLDER = "served"
"""Name of the folder, beside the checkpoints, from which a server reads the weights."""

_Sampler = Literal["node", "server", "server with the weights of the step before"]
_NOT_FOUND = 404
_DETAIL = re.compile(r"/v1/\w+|\b\d[\w.]*|\b(?=\w*\d)\w{6,}")
"""Paths, numbers, and names such as those of requests and adapters. What differs only in them is one reason."""
_FINISHES = {
    "length": "because of a limit of its own",
    "stop": "and says that it is complete",
    "abort": "because it gave it up",
}
"""Reason for the end of a completion, in the words of a server -> in words for an operator."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Weights that a server holds."""

    name: str
    step: int
    folder: Path


@dataclass(frozen=True, slots=True)
class _Turn:
    """The sampler of a round, and the reason for it."""

    sampler: _Sampler
    reason: str
    status: int = 0
    """HTTP status code of a reply that refuses; 0 for any other reason."""

    def is_like(self, other: "_Turn") -> bool:
        """Return whether the two differ only in details, such as numbers."""
        mine, theirs = ((each.sampler, each.status, _DETAIL.sub("", each.reason)) for each in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class _Round:
    """The prompts of a round as tokens, the request for their completions, and the trainer of the policy."""

    trainer: Trainer
    prompts: Sequence[Tokens]
    request: GenerateRequest
    max_bytes: int
    """Bytes of a completion, at most."""

    @property
    def policy(self) -> Policy:
        return self.trainer.policy

    @property
    def longest_prompt(self) -> int:
        return max(map(len, self.prompts), default=0)

    @property
    def size(self) -> int:
        """Tokens that may be sampled, and at least 1."""
        return max(1, len(self.prompts) * self.request.completions * self.request.max_tokens)


class ServerGeneration:
    """Completions of one policy by one server."""

    def __init__(self, options: LearnerOptions) -> None:
        """The server reads the weights from a folder beside the checkpoints, which this empties. Raises LocalError for
        an address or a key that must not be used.
        """
        self._model = options.model
        self._tolerance = TOLERANCE[options.dtype]
        self._connection = Connection(options.server, os.environ.get(KEY_VARIABLE))
        self._folder = Path(options.checkpoints).with_name(FOLDER).absolute()
        self._prefix = f"sapo-{hashlib.sha256(str(self._folder).encode()).hexdigest()[:8]}-"
        self._engine: Engine | None = None
        self._context: int | None = None
        """Tokens of prompt and completion together, at most, that the server takes."""
        self._loaded: _Loaded | None = None
        self._last: _Turn | None = None
        self._took: deque[float] = deque(maxlen=REMEMBERED_ROUNDS)
        """Seconds of the last rounds that the server sampled, for each token that it might sample."""
        self._rests_until = 0.0

    def generate(self, trainer: Trainer, request: GenerateRequest, max_completion_bytes: int) -> Generated:
        """Return the completions, and a notice if another samples than in the round before, or for another reason.

        Raises PromptRefused if the model cannot be asked one of the prompts.
        """
        asked = _Round(
            trainer=trainer,
            prompts=prompts_of(trainer.policy, request),
            request=request,
            max_bytes=max_completion_bytes,
        )
        started = time.monotonic()
        notice = None
        if started >= self._rests_until:
            try:
                return self._by_server(asked)
            except ServerFailed as failure:
                self.begin_anew()
                again = "tries the server each round"
                cost = time.monotonic() - started
                if isinstance(failure, ServerLate) and cost >= LEAST_SECONDS:
                    self._rests_until = time.monotonic() + REST * cost
                    again = f"tries the server again after {REST * cost:.0f} s"
                turn = _Turn("node", str(failure), failure.status)
                words = turn.reason.rstrip(".")
                notice = self._notice(turn, f"{words}. The node samples by itself, and {again}")
        assert self._last
        return Generated(tuple(generate(trainer.policy, request, max_completion_bytes)), notice, self._last.reason)

    def begin_anew(self) -> None:
        """Forget the protocol and the weights of the server: it was started again, or this node has other weights."""
        self._engine = self._loaded = None

    def _by_server(self, asked: _Round) -> Generated:
        started = time.monotonic()
        self._connection.allow(self._seconds(asked.size))
        known = self._engine is not None
        try:
            drafts, problem = self._sampled(asked)
        except ServerFailed as failure:
            if not known or failure.status != _NOT_FOUND:
                raise
            self.begin_anew()  # the server was started again, and has forgotten the weights
            drafts, problem = self._sampled(asked)
        self._took.append((time.monotonic() - started) / asked.size)
        difference = _mean(differences(asked.policy, asked.prompts, compared(drafts)))
        tolerance = OLDER_TOLERANCE if problem else self._tolerance
        if difference > tolerance:
            raise ServerFailed(
                f"its log-probabilities differ from this node's by {difference:.3f} nats per token, and may by "
                f"{tolerance}: it has other weights, or computes in another way; start it with the model of this "
                f"node, and both with the same --dtype"
            )
        if problem:
            turn = _Turn("server with the weights of the step before", problem)
        else:
            assert self._engine
            turn = _Turn(
                "server", f"it samples with {self._engine.name}, {difference:.4f} nats per token from this node"
            )
        notice = self._notice(turn, turn.reason)
        return Generated(tuple(tuple(draft.finished(asked.policy) for draft in group) for group in drafts), notice)

    def _seconds(self, size: int) -> float:
        """Return how long the server may take for a round of so many tokens."""
        if not self._took:
            return REQUEST_SECONDS
        return min(REQUEST_SECONDS, max(LEAST_SECONDS, float(round(PATIENCE * size * max(self._took)))))

    def _sampled(self, asked: _Round) -> tuple[list[list[Draft]], str]:
        """Return the completions of each prompt, and why older weights sampled them if so. Raises ServerFailed."""
        engine = self._engine = self._engine or self._found(asked)
        self._require_room(engine, asked)
        loaded, problem = self._with_weights(engine, asked.trainer)
        return _sampled(asked, by=engine, name=loaded.name), problem

    def _require_room(self, engine: Engine, asked: _Round) -> None:
        prompt, new = asked.longest_prompt, asked.request.max_tokens
        if self._context and prompt + new > self._context:
            raise ServerFailed(
                f"it takes {self._context} tokens, and a prompt of {prompt} tokens with {new} new ones takes "
                f"{prompt + new}; start it with {engine.limit} {prompt + new} or more, or give fewer --examples, or a "
                f"lower --max-tokens"
            )

    def _notice(self, turn: _Turn, text: str) -> str | None:
        """Return the notice for a turn; None if it is like the one before."""
        before, self._last = self._last, turn
        return None if before and turn.is_like(before) else f"server {self._connection.place}: {text}"

    def _with_weights(self, engine: Engine, trainer: Trainer) -> tuple[_Loaded, str]:
        """Have the server load the weights of now. Return them, or older ones and why they are. Raises ServerFailed."""
        before = self._loaded
        if before and before.step == trainer.step:
            return before, ""
        try:
            loaded = self._load(engine, trainer)
        except ServerFailed as failure:
            if before is None or trainer.step - before.step > MOST_BEHIND:
                raise
            return before, f"it samples with the weights of the step before, because {failure}"
        self._loaded = loaded
        if before:
            self._unload(engine, before)
        return loaded, ""

    def _found(self, asked: _Round) -> Engine:
        """Ask the server what it is, and have it forget the weights that this node has loaded before. Raises
        ServerFailed if the server has another model, or does not sample with the adapters that it loads.
        """
        engine, served = find_engine(self._connection, adapters=asked.policy.lora > 0)
        require_model(self._model, served)
        self._context = served.context
        self._require_room(engine, asked)
        old = [name for name in served.names if name.startswith(self._prefix)]
        if len(old) > MOST_OLD:
            raise ServerFailed(f"it lists {len(old)} weights of this node; start it again without them")
        for name in old:
            engine.unload(name)
        shutil.rmtree(self._folder, ignore_errors=True)
        if asked.policy.lora:
            few = replace(asked.request, max_tokens=min(asked.request.max_tokens, FEW_TOKENS))
            self._require_adapters(engine, replace(asked, prompts=asked.prompts[:1], request=few))
        return engine

    def _require_adapters(self, engine: Engine, asked: _Round) -> None:
        """Have the server sample with an adapter of noise: a new adapter changes nothing, so it shows nothing. Raise
        ServerFailed unless its log-probabilities are nearer to those of this node with that adapter than without.
        """
        with noisy(asked.policy):
            loaded = self._load(engine, asked.trainer)
            drafts = _sampled(asked, by=engine, name=loaded.name)
            with_adapter = _mean(differences(asked.policy, asked.prompts, drafts))
        without = _mean(differences(asked.policy, asked.prompts, drafts))
        self._unload(engine, loaded)
        if with_adapter > without / 2:
            ignored = "it does not sample with the adapter that it loads"
            cause = ignored if without < with_adapter / 2 else f"it has other weights, or {ignored}"
            raise ServerFailed(
                f"{cause}: with an adapter of noise its log-probabilities differ by {with_adapter:.4f} nats per token "
                f"from this node's with the adapter, and by {without:.4f} without it"
            )

    def _load(self, engine: Engine, trainer: Trainer) -> _Loaded:
        # A server may keep what it has computed with the weights of a name, so each name is used once.
        name = f"{self._prefix}{secrets.token_hex(4)}-{trainer.step}"
        folder = self._folder / name
        try:
            folder.mkdir(parents=True)
            trainer.policy.model.save_pretrained(folder)
        except (OSError, SafetensorError) as error:
            raise ServerFailed(f"the weights cannot be written for it ({line_of(error)})") from error
        try:
            engine.load(name, folder)
        except ServerFailed as failure:
            if not failure.status or not trainer.policy.lora:
                raise
            needed = engine.needs_for(trainer.policy.lora)
            raise ServerFailed(f"{failure}; {engine.name} needs {needed}", failure.status) from failure
        return _Loaded(name, trainer.step, folder)

    def _unload(self, engine: Engine, loaded: _Loaded) -> None:
        engine.unload(loaded.name)
        shutil.rmtree(loaded.folder, ignore_errors=True)


def server_of(options: LearnerOptions) -> ServerGeneration | None:
    """Return the generation by the server that the options name; None if they name none, or if the learner only reads.
    Raises LocalError for an address or a key that must not be used.
    """
    if not options.server or options.read_only:
        return None
    return ServerGeneration(options)


def _sampled(asked: _Round, *, by: Engine, name: str) -> list[list[Draft]]:
    """Return the completions of each prompt by the weights of this name. Raises ServerFailed if this node could not
    have sampled one of them.
    """
    policy, request = asked.policy, asked.request
    forbidden = tuple(policy.forbidden.tolist())
    replies = iter(
        by.sample(
            name,
            Asked(
                prompts=asked.prompts,
                completions=request.completions,
                max_tokens=request.max_tokens,
                ends=policy.ends,
                forbidden=forbidden,
                may_think=_may_think(policy),
            ),
        )
    )
    allowed = frozenset(range(policy.vocabulary)).difference(forbidden)
    return [[_draft(asked, next(replies), allowed) for _ in range(request.completions)] for _ in asked.prompts]


def _may_think(policy: Policy) -> bool:
    """Return True if a completion may hold thinking: its prompt begins it, or the vocabulary has its token."""
    return policy.thinks or THINK in policy.tokenizer.get_vocab()


def _draft(asked: _Round, reply: Reply, allowed: frozenset[int]) -> Draft:
    """Return a completion up to where this node would have ended it. Raises ServerFailed unless all its tokens are
    `allowed`.
    """
    max_tokens = asked.request.max_tokens
    draft = Draft(max_bytes=asked.max_bytes)
    if len(reply.tokens) != len(reply.logprobs):
        raise ServerFailed(f"it returns {len(reply.logprobs)} log-probabilities of {len(reply.tokens)} tokens")
    for token, logprob in zip(reply.tokens[:max_tokens], reply.logprobs, strict=False):
        if type(token) is not int or token not in allowed:
            raise ServerFailed(f"it samples {str(token)[:20]!r}, which is no token that this node could sample")
        if type(logprob) not in (int, float) or not LEAST_LOGPROB <= logprob <= 0:
            raise ServerFailed(f"it returns {str(logprob)[:20]!r} as a log-probability")
        draft.add(asked.policy, token, float(logprob))
        if draft.stopped:
            return draft
    if len(draft.tokens) < max_tokens:
        raise ServerFailed(
            f"it ends a completion after {len(draft.tokens)} of {max_tokens} tokens without an end, "
            f"{_FINISHES.get(str(reply.finish), f'and says {excerpt(str(reply.finish), 40)!r}')}"
        )
    return draft


def _mean(found: Tensor) -> float:
    return float(found.mean()) if len(found) else 0.0
