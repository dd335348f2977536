"""The options of commands that play runs, the files that `run` and `matrix` write, and their exit code."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from sapo_adversary.files import to_json, writable_folder, write_whole
from sapo_adversary.scenarios.metrics import ABOUT
from sapo_adversary.scenarios.outcome import COLUMNS, Outcome, rows
from sapo_adversary.scenarios.page import page
from sapo_adversary.simulator.engine import Engine, ThisMachine
from sapo_adversary.simulator.simulation import Device
from sapo_adversary.simulator.versions import versions_now
from sapo_node.cli.commands.options import PATH, Command, as_json, stderr
from sapo_node.processes.extras import command_for
from sapo_protocol import LocalError

on_device = click.option(
    "--device",
    type=click.Choice(get_args(Device)),
    default="cpu",
    show_default=True,
    help="Where real language models learn. Results of a GPU do not repeat byte for byte.",
)
"""Adds --device."""


def with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Add --engine and --jobs, and hand the command one Engine."""

    @click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where runs are played: this machine, or the Ray cluster of RAY_ADDRESS.",
    )
    @click.option("--jobs", type=click.IntRange(1, 1_024), help="Number of runs at a time.  [default: one per core]")
    @wraps(command)
    def wrapped(*arguments: Any, engine: str, jobs: int | None, **options: Any) -> None:
        command(*arguments, engine=_on_ray(jobs) if engine == "ray" else ThisMachine(jobs), **options)

    return wrapped


def _on_ray(jobs: int | None) -> Engine:
    try:
        from sapo_adversary.simulator.cluster import Cluster  # noqa: PLC0415 - an extra of its own
    except ModuleNotFoundError as missing:
        raise LocalError(f"Ray is not installed, which --engine ray needs: {command_for('cluster')}") from missing
    return Cluster(jobs)


DEFAULT_OUTPUT = Path("results")

to_output = click.option("--output", type=PATH, default=DEFAULT_OUTPUT, show_default=True, help="Where results go.")


def with_records(command: Callable[..., None]) -> Callable[..., None]:
    """Add --output and --records, and hand the command both folders."""

    @to_output
    @click.option("--records", type=PATH, help="Where the records of single runs go.  [default: OUTPUT/runs]")
    @wraps(command)
    def wrapped(*arguments: Any, output: Path, records: Path | None, **options: Any) -> None:
        command(*arguments, output=output, records=records or output / "runs", **options)

    return wrapped


def warn_of_versions(played: Iterable[Mapping[str, str]], records: Path) -> None:
    """Say on standard error with what else than the code and packages of today the judged runs were played."""
    now = versions_now()
    others = {
        f"{name} {told} (now {now[name]})": None for each in played for name, told in each.items() if told != now[name]
    }
    if others:
        stderr.print(
            f"runs that were played earlier are not played again: those in {records} are of {'; '.join(others)}; remove"
            " them to play them with today's, or give another --records",
            highlight=False,
            soft_wrap=True,
        )


MOST_SEEDS = 1_000
"""Most seeds that one command plays. Each seed takes one swarm per arm, and a swarm takes a minute or more."""
WRITTEN_BY = "`sapo-adversary matrix` or `run`"


def played(command: Command) -> Command:
    """Add the options of a command that plays runs."""
    for option in (as_json, with_engine, with_records):
        command = option(command)
    return command


def make_folders(output: Path, records: Path) -> None:
    """Make both folders before anything is played: hours of play must not end in a folder that nobody can write."""
    for each in (output, records):
        writable_folder(each)


def write_results(
    outcomes: Sequence[Outcome], output: Path, name: str, command: str, more: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write `name`.json, .csv and .html into `output`, and return their paths; `more` goes into the JSON."""
    summary = {
        "command": command,
        "about": dict(ABOUT),
        "version": version("sapo-node"),
        "outcomes": [outcome.as_dict() for outcome in outcomes],
        **(more or {}),
    }
    written = {
        output / f"{name}.json": to_json(summary),
        output / f"{name}.csv": _csv(outcomes),
        output / f"{name}.html": page(summary),
    }
    for path, text in written.items():
        write_whole(path, text)
    return list(written)


def _csv(outcomes: Iterable[Outcome]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    # Outcomes that differ in their undefended arm alone have the defended one in common.
    writer.writerows(dict.fromkeys(row for outcome in outcomes for row in rows(outcome)))
    return text.getvalue()


def verdict_line(met: bool, text: str) -> Text:  # noqa: FBT001
    """A tick or a cross, and what was asked."""
    return Text.assemble(("✓ ", "green") if met else ("✗ ", "bold red"), text)


def show_written(written: Iterable[Path]) -> None:
    """Print where the results are."""
    stderr.print(f"written to {', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def exit_by_verdicts(outcomes: Iterable[Outcome]) -> None:
    """Exit with 1 where an attack did no harm or a defence did not hold."""
    if not all(outcome.held and outcome.harmful is not False for outcome in outcomes):
        raise click.exceptions.Exit(1)
