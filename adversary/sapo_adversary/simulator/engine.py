"""Plays runs on this machine, each in its own process with one thread, or on a cluster."""

import logging
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from sapo_adversary.simulator.simulation import Simulation

Record = dict[str, Any]
Tick = Callable[[int], None]
"""Told how many node-rounds were just played."""
Played = Generator[tuple[Simulation, Record], None, None]
"""Finished runs with their records. A command that takes no more of them closes it, which ends the runs in work."""


class Engine(Protocol):
    """Plays runs, as many at a time as there is room for."""

    def play(self, simulations: Sequence[Simulation], policies: Path, tick: Tick) -> Played:
        """Each run and its record, as soon as it is over; prepared policies lie in `policies`."""
        ...


class ThisMachine:
    """Plays `jobs` runs at a time on this machine, by default one per core."""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs or os.cpu_count()

    def play(self, simulations: Sequence[Simulation], policies: Path, tick: Tick) -> Played:
        """See `Engine.play`."""
        context = multiprocessing.get_context("spawn")
        ticks: Queue[int] = context.Queue()
        counting = Thread(target=_count, args=(ticks, tick), daemon=True)
        counting.start()
        theirs, ours = context.Pipe(duplex=False)
        executor = ProcessPoolExecutor(
            self._jobs,
            mp_context=context,
            initializer=_begin,
            initargs=(ticks, theirs),
            # A process that trained models is not used again: its memory does not come back.
            max_tasks_per_child=1 if any(simulation.learner == "model" for simulation in simulations) else None,
        )
        try:
            with _interrupts_blocked():
                waiting = {executor.submit(_play_here, simulation, policies): simulation for simulation in simulations}
            for finished in as_completed(waiting):
                yield waiting.pop(finished), finished.result()
            executor.shutdown()
            ticks.put(0)
            counting.join()
        finally:
            ours.close()
            executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Within, SIGINT is blocked, and remains so in processes and threads that start here. Ctrl-C goes to all processes
    of a command; a worker that took it would drop its run and begin the next one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_ticks: "Queue[int] | None" = None


def _count(ticks: "Queue[int]", tick: Tick) -> None:
    for count in iter(ticks.get, 0):
        tick(count)


def _begin(ticks: "Queue[int]", parent: "Connection[None, None]") -> None:
    global _ticks  # noqa: PLW0603 - a worker process has one queue, given at its start
    _ticks = ticks
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: "Connection[None, None]") -> None:
    """End this process as soon as its parent closes the pipe, or ends. Otherwise the run would go on for minutes, and
    no process reads its record.
    """
    with suppress(EOFError):
        parent.recv()
    os._exit(1)


def _play_here(simulation: Simulation, policies: Path) -> Record:
    return play_one(simulation, policies, _ticks.put if _ticks else lambda _: None)


def play_one(simulation: Simulation, policies: Path, tick: Tick) -> Record:
    """Play one run in this process."""
    # Bans and refusals are what these runs are about; the record has them all.
    logging.getLogger("sapo_node").setLevel(logging.ERROR)
    # As in the learner's own process: libraries tell each other what will be renamed.
    warnings.simplefilter("ignore", FutureWarning)
    # torch and libp2p are imported by the workers alone.
    if simulation.network == "libp2p":
        from sapo_adversary.simulator.libp2p.realtime import simulate_realtime  # noqa: PLC0415

        return simulate_realtime(simulation, progress=tick)
    from sapo_adversary.simulator.swarm import simulate  # noqa: PLC0415

    return simulate(simulation, policies=policies, progress=tick)
