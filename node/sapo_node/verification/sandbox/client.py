"""The node's side of the sandbox: sends a batch, returns the results, and counts items that failed closed by cause."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import trio

from sapo_node.processes.frames import FrameError
from sapo_node.processes.worker import TaskStatus, Worker, WorkerFailed
from sapo_node.verification.sandbox.lockdown import LAYERS, REQUIRED
from sapo_node.verification.sandbox.messages import (
    MAX_BATCH,
    MAX_REPLY,
    MalformedReplyError,
    Scored,
    ScoreRequest,
    decode_results,
    encode_requests,
)

CPU_SECONDS = 5
"""Seconds of processor time for one batch, at most. A full batch takes tens of milliseconds."""

WALL_SECONDS = 15.0
"""Seconds after which the zygote kills the child of a batch."""

_MARGIN = 30.0
"""Seconds that the node waits beyond WALL_SECONDS, because the sandbox may be starting."""

_START_DEADLINE = 120.0

_CAUSES = frozenset({"fork", "died", "timeout", "malformed", "no_sandbox"})


class Sandbox:
    """Scores peers' completions in a confined process. `score` works only while `run` is running."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        """Items that failed closed, by cause."""
        self._worker = Worker(
            "sandbox", _argv(), start_deadline=_START_DEADLINE, env=_environment(), reply_limit=MAX_REPLY
        )

    @property
    def layers(self) -> Mapping[str, bool]:
        """Whether each layer holds on this platform; empty before the sandbox is ready."""
        found = self._worker.ready.get("layers")
        return {layer: bool(found.get(layer)) for layer in LAYERS} if isinstance(found, dict) else {}

    @property
    def confined(self) -> bool:
        """Whether the layers that scoring peers' text requires hold."""
        return all(self.layers.get(layer, False) for layer in REQUIRED)

    @property
    def reasoning_gym(self) -> str:
        """The installed version of reasoning-gym; empty before the sandbox is ready."""
        return str(self._worker.ready.get("reasoning_gym", ""))

    @property
    def plugins(self) -> Mapping[str, int]:
        """The datasets of other packages, with their scorer versions; empty before the sandbox is ready."""
        found: dict[str, int] = self._worker.ready.get("plugins", {})
        return found

    @property
    def broken_plugins(self) -> Mapping[str, str]:
        """The datasets of other packages that cannot be used, with the reason; empty before the sandbox is ready."""
        found: dict[str, str] = self._worker.ready.get("broken_plugins", {})
        return found

    @property
    def restarts(self) -> int:
        """How often the sandbox process was replaced."""
        return self._worker.restarts

    def describe(self) -> str:
        """Return one line for a person: which layers hold, which are missing, and whether that is enough."""
        layers = self.layers
        if not layers:
            return "the sandbox has not started"
        held = ", ".join(layer for layer in LAYERS if layers[layer]) or "no layer"
        missing = ", ".join(layer for layer in LAYERS if not layers[layer])
        if not missing:
            return f"the sandbox holds with all layers: {held}"
        verdict = "enough for peers' text" if self.confined else "too little for peers' text"
        return f"the sandbox holds with {held}; this platform lacks {missing}: {verdict}"

    async def run(self, task_status: TaskStatus = trio.TASK_STATUS_IGNORED) -> None:
        """Run the sandbox until cancelled; restart it if it dies. Raises LocalError if it cannot work here."""
        await self._worker.run(task_status)

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        """Score one peer's items, MAX_BATCH per child. Return a result per item; None means that it failed closed."""
        results: list[Scored | None] = []
        for start in range(0, len(batch), MAX_BATCH):
            results += await self._score_in_one_child(batch[start : start + MAX_BATCH])
        return results

    async def _score_in_one_child(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        request = {"cpu_seconds": CPU_SECONDS, "wall_seconds": WALL_SECONDS, "batch": encode_requests(batch)}
        try:
            reply = await self._worker.request(request, deadline=WALL_SECONDS + _MARGIN)
            results = _results(reply, batch)
        except WorkerFailed:
            return self._failed("restart", batch)
        except FrameError:
            return self._failed("request", batch)
        except MalformedReplyError:
            return self._failed("malformed", batch)
        if isinstance(results, str):
            return self._failed(results, batch)
        refused = results.count(None)
        if refused:
            self.failures["task"] += refused
        return results

    def _failed(self, cause: str, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        self.failures[cause] += len(batch)
        return [None] * len(batch)


def _results(reply: object, batch: Sequence[ScoreRequest]) -> list[Scored | None] | str:
    """Return the results in a reply, or the cause of a failure. Raises MalformedReplyError."""
    match reply:
        case {"failed": str(cause)} if cause in _CAUSES:
            return cause
        case {"results": results}:
            return decode_results(results, [len(item.completions) for item in batch])
        case _:
            raise MalformedReplyError("a reply has neither results nor a cause")


def _argv() -> list[str]:
    """Return the command of the zygote: this interpreter and import path, without user site or start-up files."""
    path = [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117 - entries are text
    code = f"import sys; sys.path[:] = {path!r}; from sapo_node.verification.sandbox.zygote import main; main()"
    return [sys.executable, "-s", "-P", "-c", code]


def _environment() -> dict[str, str]:
    """Return the smallest environment that an interpreter needs, with one thread and fixed hashes."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
