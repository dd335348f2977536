"""The node's side of the sandbox: sends a batch, returns the results, and logs and counts items that failed closed.

The reason for which an item failed comes from a process that has read peers' text. So it is one short printable line.
"""

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import trio

from sapo_node.processes.frames import FrameError
from sapo_node.processes.worker import TaskStatus, Worker, WorkerFailed
from sapo_node.storage.row_files import Rows, open_rows
from sapo_node.verification.sandbox.lockdown import LAYERS, REQUIRED
from sapo_node.verification.sandbox.requests import (
    MAX_BATCH,
    MAX_REASON,
    MAX_REPLY,
    Failed,
    MalformedReplyError,
    Scored,
    ScoreRequest,
    decode_results,
    encode_requests,
)
from sapo_protocol import TaskSpec
from sapo_protocol.printable import excerpt

logger = logging.getLogger(__name__)

ITEM_SECONDS = 2.0
"""Seconds of processor time for one item, at most. An item takes milliseconds, the slowest of a good task some 100."""

CPU_SECONDS = 5
"""Seconds of processor time for one batch, at most. A full batch takes tens of milliseconds."""

WALL_SECONDS = 15.0
"""Seconds for one batch, at most. A process that sleeps uses no processor time."""

_MARGIN = 30.0
"""Seconds that the node waits beyond WALL_SECONDS, because the sandbox may be starting."""

_START_DEADLINE = 120.0


class Sandbox:
    """Scores peers' completions in a confined process. `score` works only while `run` is running."""

    def __init__(self, tasks: Sequence[TaskSpec] = (), files: Path | None = None) -> None:
        """`tasks` are those of the swarm. Of other datasets the sandbox builds only those that the wire spec defines:
        once confined, it can import nothing. `files` is the folder with the files of rows.

        Raises LocalError if a file of a task is missing.
        """
        self._rows: Rows = open_rows(tasks, files)
        self.failures: Counter[str] = Counter()
        """Items that failed closed, by cause."""
        self._worker = Worker(
            "sandbox", _argv(tasks), start_deadline=_START_DEADLINE, env=_environment(), reply_limit=MAX_REPLY
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
        """The tasks of other packages, with their scorer versions; empty before the sandbox is ready."""
        found: dict[str, int] = self._worker.ready.get("plugins", {})
        return found

    @property
    def broken_plugins(self) -> Mapping[str, str]:
        """The tasks of other packages that cannot be used, with the reason; empty before the sandbox is ready."""
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
        resolved = with_rows(batch, self._rows)
        for start in range(0, len(resolved), MAX_BATCH):
            results += await self._score_in_one_child(resolved[start : start + MAX_BATCH])
        return results

    async def _score_in_one_child(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        request = {
            "batch": encode_requests(batch),
            "item_seconds": ITEM_SECONDS,
            "cpu_seconds": CPU_SECONDS,
            "wall_seconds": WALL_SECONDS,
        }
        try:
            reply = await self._worker.request(request, deadline=WALL_SECONDS + _MARGIN)
            results = _results(reply, batch)
        except WorkerFailed as error:
            results = [Failed("restart", str(error))] * len(batch)
        except FrameError as error:
            results = [Failed("request", str(error))] * len(batch)
        except MalformedReplyError as error:
            results = [Failed("malformed", str(error))] * len(batch)
        self._note_failures(batch, results)
        return [result if isinstance(result, Scored) else None for result in results]

    def _note_failures(self, batch: Sequence[ScoreRequest], results: Sequence[Scored | Failed]) -> None:
        failed = [(item, result) for item, result in zip(batch, results, strict=True) if isinstance(result, Failed)]
        if failed:
            self.failures.update(result.cause for _, result in failed)
            item, first = failed[0]
            said = excerpt(first.reason, MAX_REASON)
            counts = (len(failed), len(batch))
            logger.warning("%d of %d tasks failed in the sandbox; the first, of %s: %s", *counts, item.dataset, said)


def with_rows(batch: Sequence[ScoreRequest], rows: Rows) -> list[ScoreRequest]:
    """Return the requests, with the task of each whose dataset is a file. Raises TaskError if a row cannot be read."""
    return [replace(item, task=rows[item.dataset].task(item.seed)) if item.dataset in rows else item for item in batch]


def _results(reply: object, batch: Sequence[ScoreRequest]) -> list[Scored | Failed]:
    """Return the results in a reply. Raises MalformedReplyError."""
    match reply:
        case {"results": results}:
            return decode_results(results, batch)
        case _:
            raise MalformedReplyError("a reply has no results")


def _argv(tasks: Iterable[TaskSpec]) -> list[str]:
    """Return the command of the zygote: this interpreter and import path, without user site or start-up files."""
    path = [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117 - entries are text
    code = "from sapo_node.verification.sandbox.zygote import main; main(sys.argv[1])"
    prepared = [pair for task in tasks if (pair := _as_json(task))]
    return [sys.executable, "-s", "-P", "-c", f"import sys; sys.path[:] = {path!r}; {code}", f"[{','.join(prepared)}]"]


def _as_json(task: TaskSpec) -> str:
    """Return dataset and configuration; empty if the configuration has bytes, and so fits no dataset."""
    try:
        return json.dumps([task.dataset, dict(task.config)])
    except TypeError:
        return ""


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
