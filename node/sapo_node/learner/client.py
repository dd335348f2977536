"""Sends typed requests from the main process to the learner process, and returns typed replies.

Each request has a deadline. This never imports torch.
"""

import json
import logging
import os
import sys
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from importlib.util import find_spec
from typing import Any

import trio

from sapo_node.groups.codec import from_json, to_json
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
from sapo_node.groups.prompt import Prompt
from sapo_node.processes.extras import command_for
from sapo_node.processes.worker import TaskStatus, Worker, WorkerFailed
from sapo_protocol import LocalError

logger = logging.getLogger(__name__)

START_DEADLINE = 300.0
GENERATE_DEADLINE = 3600.0
TRAIN_DEADLINE = 3600.0
"""Seconds after which a learner counts as hung. A large model on a slow machine takes many minutes for a round."""
CHECKPOINT_DEADLINE = 300.0
RESTORE_DEADLINE = 300.0


_NEEDED = ("torch", "transformers", "peft", "safetensors", "tokenizers", "psutil", "jinja2")


def require_installed() -> None:
    """Raises LocalError if a package of the learner is not installed."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise LocalError(
            f"{missing[0]} is not installed, without which nothing is learnt here: {command_for('train')}; or start "
            f"with --no-train"
        )


def offline() -> dict[str, str]:
    """Return the environment of a process that reads a model. Whatever the folder names, that process neither asks the
    hub nor runs kernels of the hub.
    """
    return {**os.environ, "HF_HUB_OFFLINE": "1", "USE_HUB_KERNELS": "NO"}


class Learner:
    """Starts the learner process, and starts it again when it dies. A request needs `run` to be running.

    Each request raises WorkerFailed if the process died or was late, and RequestError if the learner refused it. After
    a restart `step` is that of the newest checkpoint: the caller replays the steps after it.
    """

    def __init__(self, options: LearnerOptions, standing: MutableMapping[str, str] | None = None) -> None:
        """While the generation server does not sample, `standing["server"]` holds the reason. While requests to the
        process fail in a row, `standing["learner"]` holds their number and the last failure.
        """
        self._standing = {} if standing is None else standing
        self._asks_server = bool(options.server)
        arguments = json.dumps(to_json(options))
        self._worker = Worker(
            "learner",
            [sys.executable, "-P", "-m", "sapo_node.learner", arguments],
            start_deadline=START_DEADLINE,
            env=offline(),
        )
        self._failures = 0
        """Requests in a row that were not answered."""
        self._seen: Mapping[str, Any] | None = None
        self._step = 0

    async def run(self, task_status: TaskStatus = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the process alive until cancelled. Raises LocalError if a restart cannot help."""
        await self._worker.run(task_status)

    @property
    def ready(self) -> Ready:
        """The state in which the newest process started; only after `run` has started."""
        return from_json(Ready, self._worker.ready)

    def describe(self) -> str:
        """Return one line for a person: which model, how large it is, and where it computes."""
        ready = self.ready
        return f"{ready.model}, {ready.parameters:,} parameters, on {ready.device}"

    @property
    def step(self) -> int:
        """The last step that the living process has trained."""
        self._notice_restart()
        return self._step

    @property
    def restarts(self) -> int:
        return self._worker.restarts

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        completions: int,
        max_tokens: int,
        seed: int,
        temperature: float = 1.0,
        averaged: bool = False,
    ) -> list[tuple[Sampled, ...]]:
        """Sample the completions of each prompt, in the order of the prompts."""
        request = GenerateRequest(tuple(prompts), completions, max_tokens, seed, temperature, averaged)
        generated = from_json(Generated, await self._ask({"generate": to_json(request)}, GENERATE_DEADLINE))
        if self._asks_server and not averaged:  # the server samples no evaluation
            if generated.failure:
                self._standing["server"] = generated.failure
            else:
                self._standing.pop("server", None)
        if generated.notice:
            logger.log(logging.ERROR if generated.failure else logging.WARNING, "%s", generated.notice)
        return list(generated.groups)

    async def train(self, request: TrainRequest) -> TrainReport:
        """Take the step of the request, which must follow the last one directly."""
        report = from_json(TrainReport, await self._ask({"train": to_json(request)}, TRAIN_DEADLINE))
        self._step = report.step
        return report

    async def checkpoint(self) -> int:
        """Write a checkpoint, and return its step. From then on the checkpoint survives any crash."""
        return from_json(Saved, await self._ask({"checkpoint": {}}, CHECKPOINT_DEADLINE)).step

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        """Write the averaged weights of now, those of `step`, as the best. Remove all older ones except the needed."""
        request = {"keep_best": to_json(KeepBestRequest(step, tuple(sorted(needed))))}
        from_json(Saved, await self._ask(request, CHECKPOINT_DEADLINE))

    async def restore(self, step: int) -> None:
        """Go back to the checkpoint of a step, or for step 0 to the initial weights, and remove all later checkpoints
        and best weights. A learner at or before that step only removes them.

        A crash after this brings none of them back. When the learner refuses, its weights are as they were.
        """
        request = {"restore": to_json(RestoreRequest(step))}
        self._step = from_json(Restored, await self._ask(request, RESTORE_DEADLINE)).step

    async def _ask(self, request: dict[str, Any], deadline: float) -> Mapping[str, Any]:
        if self._seen is None:
            self._notice_restart()
        asked = self._seen
        try:
            reply: Mapping[str, Any] = await self._worker.request(request, deadline=deadline)
        except WorkerFailed as failure:
            self._failures += 1
            if self._failures > 1:
                self._standing["learner"] = f"{self._failures} requests in a row failed; the last: {failure}"
            raise
        self._failures = 0
        self._standing.pop("learner", None)
        self._notice_restart()
        if "error" in reply:
            if self._seen is not asked:
                # The request was meant for the process before: its step may be another one's.
                raise WorkerFailed("the learner restarted before the request reached it")
            raise RequestError(f"the learner refused: {reply['error']}")
        return reply

    def _notice_restart(self) -> None:
        if self._worker.ready is not self._seen:
            self._seen = self._worker.ready
            self._step = self.ready.step if self._seen else 0
