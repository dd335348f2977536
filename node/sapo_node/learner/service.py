"""Runs the learner process: it reads a request and answers it, until its input ends. It writes only frames."""

import gc
import json
import os
import re
import sys
import warnings
from collections import deque
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sapo_node.groups.codec import from_json, to_json, to_object
from sapo_node.groups.messages import (
    Generated,
    GenerateRequest,
    KeepBestRequest,
    LearnerOptions,
    Ready,
    RequestError,
    Restored,
    RestoreRequest,
    Sampled,
    Saved,
    TrainReport,
    TrainRequest,
)
from sapo_node.learner import checkpoint
from sapo_node.learner.generate import PromptRefused, generate, refusal_of
from sapo_node.learner.memory import frugal_settings, require_memory
from sapo_node.learner.model import load, require_room
from sapo_node.learner.server.generation import server_of
from sapo_node.learner.trainer import Trainer
from sapo_node.learner.trial import require_trainable
from sapo_node.processes.frames import read_frame, write_frame
from sapo_protocol.errors import LocalError

NICENESS = 10
"""Niceness of the learner process: gossip and verification must not wait for training."""

MOST_TOLD = 64
"""The service remembers this many reasons for refused prompts, and reports each once."""

CHANGES_WEIGHTS = frozenset({"train", "restore"})
"""The requests that change weights."""


class Service:
    """Answers one request at a time on one trainer."""

    def __init__(self, options: LearnerOptions) -> None:
        self._options = options
        self._root = Path(options.checkpoints)
        self._server = server_of(options)
        require_room(options)
        # The packaged policy fits anywhere, and the estimate takes longer than loading it. It needs no trial either.
        self._memory = None if options.model == "seed" else require_memory(options)
        policy = load(options)
        if options.model != "seed":
            require_trainable(policy)
        self._trainer = Trainer(policy, options)
        self._fallback: str | None = None
        self._told: deque[str] = deque(maxlen=MOST_TOLD)
        """The reasons, without their numbers, that a notice has given for refused prompts."""
        trainable = self._trainer.policy.trainable() if options.lora else ()
        self._adapters = {name: value.detach().clone() for name, value in trainable}
        """The adapters as they are at step 0. Empty if all weights are trained."""
        if options.read_only:
            checkpoint.peek(self._trainer, self._root)
        else:
            self._fallback = checkpoint.restore(self._trainer, self._root)

    def ready(self) -> Ready:
        policy = self._trainer.policy
        return Ready(
            step=self._trainer.step,
            parameters=sum(value.numel() for value in policy.model.parameters()),
            model=policy.name,
            device=str(policy.device),
            memory=self._memory,
            fallback=self._fallback,
            fingerprint=policy.fingerprint,
        )

    def answer(self, request: Any) -> dict[str, Any]:
        """Return the reply. If the request is wrong, or this machine lacks something, that is an error in one line.

        If memory runs out in a request that changes weights, some may have changed: the process ends, and the node
        replays what follows the checkpoint. A learner that only reads has nothing to replay.
        """
        try:
            answer = self._dispatch(request)
        except LocalError as error:
            return {"error": str(error)}
        except (MemoryError, RuntimeError) as error:
            if not _is_of_memory(error):
                raise
            found = f"out of memory: {_first_line(error)}"
            words = "; ".join(filter(None, (found, self._memory, frugal_settings(self._options))))
            if CHANGES_WEIGHTS.isdisjoint(request) or self._options.read_only:
                return {"error": words}
            raise SystemExit(words) from error
        return to_object(answer)

    def _dispatch(self, request: Any) -> Generated | TrainReport | Saved | Restored:
        if not isinstance(request, dict) or len(request) != 1:
            raise RequestError("a request is an object with one key")
        [(kind, body)] = request.items()
        if kind == "generate":
            return self._generate(from_json(GenerateRequest, body))
        if kind == "train":
            return self._train(from_json(TrainRequest, body))
        if kind == "checkpoint":
            path = checkpoint.save(self._trainer, self._root)
            return Saved(self._trainer.step, str(path))
        if kind == "keep_best":
            return self._keep_best(from_json(KeepBestRequest, body))
        if kind == "restore":
            return self._restore(from_json(RestoreRequest, body).step)
        raise RequestError(f"unknown request {kind!r}")

    def _generate(self, asked: GenerateRequest) -> Generated:
        try:
            return self._sampled(asked)
        except PromptRefused:
            if self._options.read_only:
                raise
            return self._sampled_of_others(asked)

    def _sampled_of_others(self, asked: GenerateRequest) -> Generated:
        """Return empty completions of the refused prompts, and sample the others: one prompt costs no round."""
        refusals = [refusal_of(self._trainer.policy, prompt, asked) for prompt in asked.prompts]
        prompts = tuple(prompt for prompt, refusal in zip(asked.prompts, refusals, strict=True) if not refusal)
        generated = self._sampled(replace(asked, prompts=prompts)) if prompts else Generated(())
        sampled = iter(generated.groups)
        empty = (Sampled("", "length", ()),) * asked.completions
        notices = [generated.notice] if generated.notice else []
        for refusal in filter(None, refusals):
            reason = re.sub(r"\d+", "", str(refusal))
            if reason not in self._told:
                self._told.append(reason)
                notices.append(f"{refusal}. The completions of such prompts are empty")
        groups = tuple(empty if refusal else next(sampled) for refusal in refusals)
        return replace(generated, groups=groups, notice="; ".join(notices) or None)

    def _sampled(self, asked: GenerateRequest) -> Generated:
        if self._server and not asked.averaged and asked.temperature == 1:
            return self._server.generate(self._trainer, asked, self._options.max_completion_bytes)
        with self._trainer.averaged() if asked.averaged else nullcontext():
            return Generated(tuple(generate(self._trainer.policy, asked, self._options.max_completion_bytes)))

    def _train(self, asked: TrainRequest) -> TrainReport:
        start = None if asked.restart is None else checkpoint.load_best(self._trainer, self._root, asked.restart)
        return self._trainer.train(asked, start)

    def _keep_best(self, asked: KeepBestRequest) -> Saved:
        if asked.step != self._trainer.step:
            raise RequestError(f"the weights are of step {self._trainer.step}, not {asked.step}")
        return Saved(asked.step, str(checkpoint.save_best(self._trainer, self._root, needed=asked.needed)))

    def _restore(self, step: int) -> Restored:
        if self._trainer.step <= step:
            # A process that has just started stands at its newest checkpoint; best weights may be of later steps.
            checkpoint.remove_after(self._root, step)
        elif step:
            checkpoint.go_back(self._trainer, self._root, step)
        else:
            self._begin_anew()
        if self._server:
            self._server.begin_anew()  # steps repeat, with other weights
        return Restored(self._trainer.step)

    def _begin_anew(self) -> None:
        """Go back to the weights of step 0. Loading them may fail, so it comes before anything is removed or changed.

        Adapters are a small part of a model, so the service keeps them as they began. All weights are loaded a second
        time, which takes no more memory than their gradients do in a step.
        """
        # With gradient checkpointing the layers refer to themselves, and would stay until a garbage collection.
        options = replace(self._options, gradient_checkpointing=False)
        first = self._adapters or dict(load(options).trainable())
        checkpoint.remove_after(self._root, 0)
        self._trainer.restart(first)
        self._trainer.step = 0


def _is_of_memory(error: Exception) -> bool:
    # torch's CPU allocator has no error class of its own.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def _claim_stdout() -> int:
    """Keep the pipe for frames alone: whatever a library prints goes to stderr."""
    frames = os.dup(1)
    os.dup2(2, 1)
    return frames


def main() -> None:
    """Serve until the input ends."""
    frames = _claim_stdout()
    options = from_json(LearnerOptions, json.loads(sys.argv[1]))
    os.nice(NICENESS)
    torch.set_num_threads(options.threads or max(1, (os.cpu_count() or 1) - 1))
    # A policy that is very sure of itself makes denormals, which are many times slower.
    torch.set_flush_denormal(True)
    # Libraries warn on the operator's terminal of names that will change.
    warnings.simplefilter("ignore", FutureWarning)
    try:
        service = Service(options)
    except LocalError as error:
        write_frame(frames, {"fatal": str(error)})
        return
    # Imported modules stay, so no garbage collection needs to visit them. `__main__` has allowed none until here.
    gc.freeze()
    gc.enable()
    # If the node was killed meanwhile, it reads no reply. Its checkpoints hold all that it needs.
    with suppress(BrokenPipeError):
        write_frame(frames, {"ready": to_json(service.ready())})
        while (request := read_frame(0)) is not None:
            write_frame(frames, service.answer(request))
