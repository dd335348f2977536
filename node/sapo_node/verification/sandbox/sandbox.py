"""The node's side of the sandbox: sends a batch, returns the results, and logs and counts items that failed closed.

The reason for which an item failed comes from a process that has read peers' text. So it is one short printable line.
"""

import logging
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import trio

from sapo_node.processes.frames import FrameError
from sapo_node.processes.worker import TaskStatus, Worker, WorkerFailed
from sapo_node.verification.sandbox.lockdown import LAYERS, REQUIRED
from sapo_node.verification.sandbox.requests import (
    MAX_BATCH,
    MAX_REASON,
    MAX_REPLY,
    MalformedReplyError,
    Scored,
    ScoreRequest,
    decode_results,
    encode_requests,
)
from sapo_protocol.printable import excerpt

logger = logging.getLogger(__name__)

CPU_SECONDS = 5
"""Seconds of processor time for one batch, at most. A full batch takes tens of milliseconds."""

WALL_SECONDS = 15.0
"""Seconds after which the zygote kills the child of a batch."""

_MARGIN = 30.0
"""Seconds that the node waits beyond WALL_SECONDS, because the sandbox may be starting."""

_START_DEADLINE = 120.0

_CAUSES = {
    "fork": "the system can start no more processes",
    "died": "the process that scored them died",
    "timeout": f"they took more than {CPU_SECONDS} s of processor time, or {WALL_SECONDS:g} s",
    "malformed": "the process that scored them wrote something that is no result",
    "no_sandbox": "the process that should have scored them could not confine itself",
}
"""Why the zygote returns no results, for the log."""


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
        """Return whether each layer holds on this platform; empty before the sandbox is ready."""
        found = self._worker.ready.get("layers")
        return {layer: bool(found.get(layer)) for layer in LAYERS} if isinstance(found, dict) else {}

    @property
    def confined(self) -> bool:
        """Return whether the layers that scoring peers' text requires hold."""
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
        """Number of times that the sandbox process was replaced."""
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
        """Score one peer's items, MAX_BATCH per child. Return a result per item.

        None means that the item failed closed. Then the log says why.
        """
        results: list[Scored | None] = []
        for start in range(0, len(batch), MAX_BATCH):
            results += await self._score_in_one_child(batch[start : start + MAX_BATCH])
        return results

    async def _score_in_one_child(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        request = {"cpu_seconds": CPU_SECONDS, "wall_seconds": WALL_SECONDS, "batch": encode_requests(batch)}
        try:
            reply = await self._worker.request(request, deadline=WALL_SECONDS + _MARGIN)
            results = _results(reply, batch)
        except WorkerFailed as error:
            return self._none_of(batch, "restart", str(error))
        except FrameError as error:
            return self._none_of(batch, "request", str(error))
        except MalformedReplyError as error:
            return self._none_of(batch, "malformed", str(error))
        if isinstance(results, str):
            return self._none_of(batch, results, _CAUSES[results])
        return self._those_that_hold(batch, results)

    def _those_that_hold(self, batch: Sequence[ScoreRequest], results: Sequence[Scored | str]) -> list[Scored | None]:
        failed = [
            (item.dataset, result) for item, result in zip(batch, results, strict=True) if isinstance(result, str)
        ]
        if failed:
            self.failures["task"] += len(failed)
            dataset, reason = failed[0]
            said = excerpt(reason, MAX_REASON)
            counts = (len(failed), len(batch))
            logger.warning("%d of %d tasks failed in the sandbox; the first, of %s: %s", *counts, dataset, said)
        return [None if isinstance(result, str) else result for result in results]

    def _none_of(self, batch: Sequence[ScoreRequest], cause: str, said: str) -> list[Scored | None]:
        self.failures[cause] += len(batch)
        datasets = ", ".join(sorted({item.dataset for item in batch}))
        logger.warning("the sandbox scored none of %d tasks (%s): %s", len(batch), datasets, excerpt(said, MAX_REASON))
        return [None] * len(batch)


def _results(reply: object, batch: Sequence[ScoreRequest]) -> list[Scored | str] | str:
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
