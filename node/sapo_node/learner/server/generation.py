"""Samples the completions of rounds on an inference server, and on this machine whenever that fails.

Before a round the server gets the weights of now. If it cannot load them, it may sample with those of MOST_BEHIND steps
before: the loss weighs each token by its probability now over its probability when it was sampled (`grpo.importance`).

The node believes no reply:
- Each token is one that the node could have sampled, and each completion ends where the node would have ended it.
- The log-probabilities of the longest completion of each prompt differ from those of this node by at most TOLERANCE,
  on average. Else the server has other weights, or computes with them in another way.

After a failure the node samples by itself. For the next round it begins anew: it asks the server what it is, and loads
the weights again.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError

from sapo_node.contributors.address import KEY_VARIABLE
from sapo_node.groups.answer import THINK
from sapo_node.groups.messages import Generated, GenerateRequest, LearnerOptions
from sapo_node.groups.ranges import LEAST_LOGPROB
from sapo_node.learner.batch import Row, completion_logits, micro_batches
from sapo_node.learner.draft import Draft
from sapo_node.learner.forward import Tokens
from sapo_node.learner.generate import generate, prompts_of
from sapo_node.learner.grpo import token_logprobs
from sapo_node.learner.model import Policy
from sapo_node.learner.server.connection import Connection, ServerFailed
from sapo_node.learner.server.engines import Asked, Engine, Reply, find_engine
from sapo_node.learner.trainer import Trainer
from sapo_protocol.printable import line_of

TOLERANCE = 0.1
"""Nats per token by which the log-probabilities of a server may differ from this node's, as a mean. The seed policy
in 16 bits differs by 0.002 from the same in 32 bits."""
MOST_OLD = 64
"""Weights of earlier processes of this node that it has a server forget. Each takes a request."""
MOST_BEHIND = 1
"""Steps by which the weights of a server may be older than this node's."""

FOLDER = "served"
"""Name of the folder, beside the checkpoints, from which a server reads the weights."""

_Sampler = Literal["node", "server", "server with the weights of the step before"]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Weights that a server holds."""

    name: str
    step: int
    folder: Path


class ServerGeneration:
    """Completions of one policy by one server."""

    def __init__(self, url: str, key: str | None, folder: Path) -> None:
        """The server reads the weights from `folder`, which this empties. Raises LocalError for an address or a key
        that must not be used.
        """
        self._connection = Connection(url, key)
        self._folder = folder
        self._prefix = f"sapo-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}-"
        self._engine: Engine | None = None
        self._loaded: _Loaded | None = None
        self._sampler: _Sampler | None = None
        """Who sampled the round before."""

    def generate(self, trainer: Trainer, request: GenerateRequest, max_completion_bytes: int) -> Generated:
        """Return the completions, and a notice if another samples than in the round before.

        Raises PromptRefused if the model cannot be asked one of the prompts.
        """
        prompts = prompts_of(trainer.policy, request)
        try:
            engine, loaded, problem = self._with_weights(trainer)
            drafts = _sampled(trainer.policy, engine, loaded.name, prompts, request, max_bytes=max_completion_bytes)
            difference = _require_agreement(trainer.policy, prompts, drafts)
        except ServerFailed as failure:
            self.begin_anew()
            notice = self._notice("node", f"{failure}. The node samples by itself, and tries the server each round")
            return Generated(tuple(generate(trainer.policy, request, max_completion_bytes)), notice, str(failure))
        if problem:
            notice = self._notice("server with the weights of the step before", problem)
        else:
            notice = self._notice(
                "server", f"it samples with {engine.name}, {difference:.4f} nats per token from this node"
            )
        done = [tuple(draft.finished(trainer.policy) for draft in group) for group in drafts]
        return Generated(tuple(done), notice)

    def begin_anew(self) -> None:
        """Expect nothing of the server: it or the weights of this node are not what they were."""
        self._engine = self._loaded = None

    def _notice(self, sampler: _Sampler, text: str) -> str | None:
        before, self._sampler = self._sampler, sampler
        return None if sampler == before else f"server {self._connection.place}: {text}"

    def _with_weights(self, trainer: Trainer) -> tuple[Engine, _Loaded, str]:
        """Return the server with the weights of now, or with older ones and why they are. Raises ServerFailed."""
        engine = self._engine = self._engine or self._found(trainer.policy)
        before = self._loaded
        if before and before.step == trainer.step:
            return engine, before, ""
        try:
            loaded = self._load(engine, trainer)
        except ServerFailed as failure:
            if before is None or trainer.step - before.step > MOST_BEHIND:
                raise
            return engine, before, f"it samples with the weights of the step before, because {failure}"
        self._loaded = loaded
        if before:
            engine.unload(before.name)
            shutil.rmtree(before.folder, ignore_errors=True)
        return engine, loaded, ""

    def _found(self, policy: Policy) -> Engine:
        """Return the server as it is now, without weights that this node has loaded before."""
        engine, names = find_engine(self._connection, adapters=policy.lora > 0)
        old = [name for name in names if name.startswith(self._prefix)]
        if len(old) > MOST_OLD:
            raise ServerFailed(f"it lists {len(old)} weights of this node; start it again without them")
        for name in old:
            engine.unload(name)
        shutil.rmtree(self._folder, ignore_errors=True)
        return engine

    def _load(self, engine: Engine, trainer: Trainer) -> _Loaded:
        # A server may keep what it has computed with the weights of a name, so each name is used once.
        name = f"{self._prefix}{secrets.token_hex(4)}-{trainer.step}"
        folder = self._folder / name
        try:
            folder.mkdir(parents=True)
            trainer.policy.model.save_pretrained(folder)
        except (OSError, SafetensorError) as error:
            raise ServerFailed(f"the weights cannot be written for it ({line_of(error)})") from error
        engine.load(name, folder)
        return _Loaded(name, trainer.step, folder)


def server_of(options: LearnerOptions) -> ServerGeneration | None:
    """Return the generation by the server that the options name, if they do. Raises LocalError as its address does."""
    if not options.server or options.read_only:
        return None
    return ServerGeneration(
        options.server, os.environ.get(KEY_VARIABLE), Path(options.checkpoints).with_name(FOLDER).absolute()
    )


def _sampled(
    policy: Policy, engine: Engine, name: str, prompts: Sequence[Tokens], request: GenerateRequest, *, max_bytes: int
) -> list[list[Draft]]:
    """Return the completions of each prompt. Raises ServerFailed if one is none that this node could sample."""
    forbidden = tuple(policy.forbidden.tolist())
    asked = Asked(prompts, request.completions, request.max_tokens, policy.ends, forbidden, _may_think(policy))
    replies = iter(engine.sample(name, asked))
    allowed = frozenset(range(policy.vocabulary)).difference(forbidden)
    return [
        [_draft(policy, next(replies), allowed, request.max_tokens, max_bytes) for _ in range(request.completions)]
        for _ in prompts
    ]


def _may_think(policy: Policy) -> bool:
    """Return whether a completion may hold thinking: its prompt ends inside of it, or a token stands for it."""
    return policy.thinks or THINK in policy.tokenizer.get_vocab()


def _draft(policy: Policy, reply: Reply, allowed: frozenset[int], max_tokens: int, max_bytes: int) -> Draft:
    """Return a completion up to where this node would have ended it."""
    draft = Draft(max_bytes=max_bytes)
    if len(reply.tokens) != len(reply.logprobs):
        raise ServerFailed(f"it returns {len(reply.logprobs)} log-probabilities of {len(reply.tokens)} tokens")
    for token, logprob in zip(reply.tokens[:max_tokens], reply.logprobs, strict=False):
        if type(token) is not int or token not in allowed:
            raise ServerFailed(f"it samples {str(token)[:20]!r}, which is no token that this node could sample")
        if type(logprob) not in (int, float) or not LEAST_LOGPROB <= logprob <= 0:
            raise ServerFailed(f"it returns {str(logprob)[:20]!r} as a log-probability")
        draft.add(policy, token, float(logprob))
        if draft.stopped:
            return draft
    if len(draft.tokens) < max_tokens:
        raise ServerFailed(f"it ends a completion after {len(draft.tokens)} of {max_tokens} tokens without an end")
    return draft


@torch.no_grad()
def _require_agreement(policy: Policy, prompts: Sequence[Tokens], groups: Sequence[Sequence[Draft]]) -> float:
    """Return the mean difference between the log-probabilities of a server and of this node, in nats per token. Compare
    the longest completion of each prompt.

    Raises ServerFailed if the difference is above TOLERANCE.
    """
    longest = [max(group, key=lambda draft: len(draft.tokens)) for group in groups]
    rows = [
        Row("", 0, "local", prompt, tuple(draft.tokens), 0.0, 0.0, sampled=tuple(draft.logprobs))
        for prompt, draft in zip(prompts, longest, strict=True)
        if draft.tokens
    ]
    differences = [torch.zeros(0)]
    for batch in micro_batches(policy, rows):
        own = token_logprobs(completion_logits(policy, batch), batch.targets)
        differences.append((own - batch.sampled).abs()[batch.mask.bool()].cpu())
    joined = torch.cat(differences)
    mean = float(joined.mean()) if len(joined) else 0.0
    if mean > TOLERANCE:
        raise ServerFailed(
            f"its log-probabilities differ from this node's by {mean:.3f} nats per token, and may by {TOLERANCE}: it "
            f"has other weights, or computes with them in another way"
        )
    return mean
