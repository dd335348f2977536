"""Many simulations: each in a process of its own with one thread, each finished one a file, none played twice.

Stop it at any time; started again, it goes on with the runs whose records are not there yet.
"""

import json
import logging
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sapo_adversary.records import write_whole
from sapo_adversary.simulator.scenario import Scenario
from sapo_protocol import LocalError

Record = dict[str, Any]

_ticks: "Queue[int] | None" = None


def record_path(folder: Path, scenario: Scenario) -> Path:
    """Where the record of a run lies: by all of its numbers, so that experiments share the arms they have in common."""
    return folder / f"{scenario.digest()[:24]}.json"


def load_record(folder: Path, scenario: Scenario) -> Record:
    """The record of a finished run. Raises LocalError where there is none."""
    path = record_path(folder, scenario)
    try:
        record: Record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"no record of {scenario.name}, seed {scenario.seed}, in {folder}: run it first") from error
    return record


def play_all(
    scenarios: Sequence[Scenario], folder: Path, *, policies: Path, jobs: int | None = None, console: Console
) -> None:
    """Play the runs that have no record in `folder` yet, `jobs` at a time (by default one per core)."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [scenario for scenario in scenarios if not record_path(folder, scenario).exists()]
    if not missing:
        return
    context = multiprocessing.get_context("spawn")
    ticks: Queue[int] = context.Queue()
    with (
        _progress(missing, len(scenarios), ticks, console) as done,
        ProcessPoolExecutor(
            jobs or os.cpu_count(),
            mp_context=context,
            initializer=_begin,
            initargs=(ticks,),
            # A process that trained models is not used again: its memory does not come back.
            max_tasks_per_child=1 if any(scenario.learner == "model" for scenario in missing) else None,
        ) as executor,
    ):
        waiting: list[Future[None]] = [executor.submit(_play, scenario, folder, policies) for scenario in missing]
        try:
            for finished in as_completed(waiting):
                finished.result()
                done()
        finally:
            executor.shutdown(cancel_futures=True)


def _begin(ticks: "Queue[int]") -> None:
    global _ticks  # noqa: PLW0603 - a worker process has one queue, given at its start
    _ticks = ticks
    Thread(target=_end_with_parent, daemon=True).start()
    # Bans and refusals are what these runs are about; the record has them all.
    logging.getLogger("sapo_node").setLevel(logging.ERROR)


def _end_with_parent() -> None:
    """A run of which nobody waits for the record would go on for minutes."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _play(scenario: Scenario, folder: Path, policies: Path) -> None:
    # torch and libp2p are imported by the workers alone.
    progress = _ticks.put if _ticks else lambda _: None
    if scenario.network == "libp2p":
        from sapo_adversary.simulator.realtime import simulate_realtime  # noqa: PLC0415

        record = simulate_realtime(scenario, progress=progress)
    else:
        from sapo_adversary.simulator.swarm import simulate  # noqa: PLC0415

        record = simulate(scenario, policies=policies, progress=progress)
    write_whole(record_path(folder, scenario), json.dumps(record, separators=(",", ":")) + "\n")


@contextmanager
def _progress(missing: Sequence[Scenario], runs: int, ticks: "Queue[int]", console: Console) -> Iterator[Any]:
    """A bar over all node-rounds, with time left; yields what to call when a run is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("node-rounds"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    finished = runs - len(missing)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"{finished} of {runs} runs", total=sum(each.total_rounds for each in missing))

        def advance() -> None:
            for count in iter(ticks.get, 0):
                progress.advance(bar, count)

        def done() -> None:
            nonlocal finished
            finished += 1
            progress.update(bar, description=f"{finished} of {runs} runs")
            if not console.is_terminal:
                console.print(f"{finished} of {runs} runs")

        counting = Thread(target=advance, daemon=True)
        counting.start()
        try:
            yield done
        finally:
            ticks.put(0)
            counting.join()
