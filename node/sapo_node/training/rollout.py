"""A node's contribution to the swarm: the first half of Algorithm 1, which needs no model that learns.

assign -> generate -> score -> share
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled, TrainReport, TrainRequest
from sapo_node.groups.prompt import NO_EXAMPLES, Examples, Prompt, task_name
from sapo_node.groups.record import LocalGroup
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters, Slot
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.verifier import Scorer
from sapo_protocol import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    LocalError,
    assign,
    encode_body,
    encode_header,
    encode_message,
    parse_envelope,
    seal,
)

logger = logging.getLogger(__name__)

Publish = Callable[[bytes], Awaitable[None]]


class RoundFailed(LocalError):
    """The round could not be played; nothing was published or trained on, and its counter is spent."""


class AnswerFailed(LocalError):
    """The answerer failed; the same prompts may be asked again."""


class TaskSkipped(LocalError):
    """The answerer declined; the round is left out."""


class NoText(LocalError):
    """No completion of the round has a text; the message says why. The completions may have cost money."""


class Answerer(Protocol):
    """Completes prompts: a model, a program or a person."""

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int
    ) -> list[tuple[Sampled, ...]]:
        """Return G completions for each prompt. An answerer that does not train may raise AnswerFailed, TaskSkipped or
        NoText, and LocalError if it can never answer.
        """
        ...


class Contribution:
    """Completes the prompts assigned to one identity, and shares the completions under its signature."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        answerer: Answerer,
        scorer: Scorer,
        counters: Counters,
        publish: Publish,
        max_tokens: int,
        model: str,
        examples: Examples = NO_EXAMPLES,
    ) -> None:
        """`model` is the free label of the shared rollouts, of at most MAX_MODEL_LABEL_BYTES. `examples` go before each
        prompt.
        """
        self._manifest = swarm.manifest
        self._identity = swarm.identity
        self._rng = swarm.rng
        self._answerer = answerer
        self._scorer = scorer
        self._counters = counters
        self._publish = publish
        self._max_tokens = max_tokens
        self._model = model
        self._examples = examples

    async def generate(self, slot: Slot, prompts: int) -> list[LocalGroup]:
        """Complete the first I = `prompts` prompts of a reserved counter G times each, and score the completions as
        those of a peer.
        """
        tasks = [assign(self._manifest, self._identity.public_key, slot.epoch, slot.counter, k) for k in range(prompts)]
        requests = [ScoreRequest(task.spec.dataset, task.spec.config, task.seed, ()) for task in tasks]
        names = [task_name(self._manifest, task.spec.dataset, task.spec.config) for task in tasks]
        built = await self._scorer.score(requests)
        asked = [
            self._examples.prompt(name, found.prompt)
            for name, found in zip(names, built, strict=True)
            if found is not None
        ]
        if len(asked) < len(tasks):
            raise RoundFailed("this node's own tasks could not be built; its log names the cause")
        groups = await self._answerer.generate(
            asked,
            completions=self._manifest.completions,
            max_tokens=self._max_tokens,
            seed=self._rng.getrandbits(31),
        )
        requests = [
            replace(request, completions=tuple(each.text for each in group), levels=task.spec.levels)
            for request, group, task in zip(requests, groups, tasks, strict=True)
        ]
        local = []
        scores = await self._scorer.score(requests)
        for k, (name, group, request, scored) in enumerate(zip(names, groups, requests, scores, strict=True)):
            if scored is None:
                raise RoundFailed(f"this node's own answers to {name} could not be scored; its log names the cause")
            levels = Levels(scored.levels, request.levels)
            local.append(
                LocalGroup(
                    dataset=name,
                    prompt=scored.prompt,
                    digest=scored.digest,
                    completions=group,
                    levels=levels,
                    advantages=local_advantages(levels),
                    epoch=slot.epoch,
                    counter=slot.counter,
                    k=k,
                )
            )
        return local

    async def share(self, slot: Slot, local: Sequence[LocalGroup]) -> None:
        """Sign the round, store the signed bytes, then publish them. Texts that fit into no message are not sent."""
        bodies = [
            encode_body(
                Body(tuple(Completion((each.text,), Finish(each.finish)) for each in group.completions), self._model)
            )
            for group in local
        ]
        header = Header(
            slot.epoch,
            slot.counter,
            tuple(
                GroupHeader(group.digest, group.levels.each, hashlib.sha256(body).digest())
                for group, body in zip(local, bodies, strict=True)
            ),
        )
        network = self._manifest.network_id
        envelope = seal(
            encode_header(header), issuer=self._identity.public_key, sign=self._identity.sign, network_id=network
        )
        message = self._message(envelope, bodies)
        self._counters.keep(slot, parse_envelope(envelope, network_id=network).envelope_id, message)
        await self._publish(message)

    def _message(self, envelope: bytes, bodies: Sequence[bytes]) -> bytes:
        """Return a message with as many bodies as it can hold: the longest are left out first."""
        kept: list[bytes | None] = list(bodies)
        message = encode_message(envelope, tuple(kept))
        while len(message) > self._manifest.max_message_bytes and any(kept):
            kept[max(range(len(kept)), key=lambda k: len(kept[k] or b""))] = None
            message = encode_message(envelope, tuple(kept))
        if left_out := kept.count(None):
            logger.warning("%d of %d groups did not fit into a message; share fewer at once", left_out, len(kept))
        return message


class Policy(Answerer, Protocol):
    """The model that learns: its own process, in a running node."""

    @property
    def step(self) -> int:
        """The step of the weights as they are now."""
        ...

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int, averaged: bool = False
    ) -> list[tuple[Sampled, ...]]:
        """Return G completions for each prompt, of the averaged weights or of those that train."""
        ...

    async def train(self, request: TrainRequest) -> TrainReport:
        """Make one update; its step is the one after the last. Raises RequestError if the step starts from best weights
        that are not there; nothing has changed then.
        """
        ...

    async def checkpoint(self) -> int:
        """Write a checkpoint, and keep the one before. Return its step."""
        ...

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        """Write the averaged weights of `step`, the one of now, as the best, and keep of the best weights before only
        those of the steps that are needed.
        """
        ...

    async def restore(self, step: int) -> None:
        """Go back to the checkpoint of a step, or for step 0 to the initial weights, and remove all later checkpoints
        and best weights. A policy at or before that step only removes them.

        A crash after this brings none of them back. Raises RequestError if the step cannot be restored; the weights
        are then as they were.
        """
        ...
