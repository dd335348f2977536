"""Many runs: the record of each finished run is a file, and no run is played twice.

Stop it at any time. Started again, it plays the runs whose records are missing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sapo_adversary.files import read_results, writable_folder, write_whole
from sapo_adversary.simulator.engine import Engine, Record, Tick
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.storage.user_folders import cache_folder
from sapo_protocol import LocalError


def default_policies() -> Path:
    """Return the folder of prepared policies in the cache of this user. Raises LocalError if the user has none."""
    return cache_folder() / "policies"


def require_policies(simulations: Iterable[Simulation], folder: Path) -> None:
    """Raise LocalError if a node begins with a prepared policy that is not in `folder`."""
    named = {name for simulation in simulations for name in simulation.prepared_policies}
    missing = sorted(name for name in named if not (folder / name).is_dir())
    if missing:
        raise LocalError(
            f"{folder} has no policy {', '.join(missing)}; in a checkout, python -m research.policies "
            f"{' '.join(missing)} builds it"
        )


def record_path(folder: Path, simulation: Simulation) -> Path:
    """The path of a run's record. Its name is the digest of the simulation, so that experiments share the arms that
    they have in common.
    """
    return folder / f"{simulation.digest()[:24]}.json"


def load_record(folder: Path, simulation: Simulation) -> Record:
    """The record of a finished run. Raises LocalError if there is none, or the file holds that of another run."""
    path = record_path(folder, simulation)
    if not path.exists():
        raise LocalError(f"no record of {simulation.name}, seed {simulation.seed}, in {folder}: run it first")
    record = read_results(path, "remove it, and a new run")
    if record.get("digest") != simulation.digest():
        run = f"{simulation.name}, seed {simulation.seed}"
        raise LocalError(f"{path} is not the record of {run}; remove it, and a new run writes the right one")
    return record


def play_all(
    simulations: Sequence[Simulation], folder: Path, *, policies: Path, engine: Engine, console: Console
) -> None:
    """Play the runs that have no record in `folder` yet."""
    writable_folder(folder)
    missing = [simulation for simulation in simulations if not record_path(folder, simulation).exists()]
    if not missing:
        return
    require_policies(missing, policies)
    with (
        _progress(missing, len(simulations), console) as (tick, done),
        closing(engine.play(missing, policies, tick)) as played,
    ):
        for simulation, record in played:
            write_whole(record_path(folder, simulation), json.dumps(record, separators=(",", ":")) + "\n")
            done()


@contextmanager
def _progress(missing: Sequence[Simulation], runs: int, console: Console) -> Iterator[tuple[Tick, Callable[[], None]]]:
    """Show a bar over all node-rounds with the time left; yields a function for played rounds and one for a finished
    run.
    """
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

        def done() -> None:
            nonlocal finished
            finished += 1
            progress.update(bar, description=f"{finished} of {runs} runs")
            if not console.is_terminal:
                console.print(f"{finished} of {runs} runs")

        yield lambda count: progress.advance(bar, count), done
