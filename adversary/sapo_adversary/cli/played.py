"""What `run` and `matrix` have in common: their options, the files that they write, and the exit code."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from sapo_adversary.cli.engines import with_engine
from sapo_adversary.cli.results import with_records
from sapo_adversary.files.records import to_json, writable_folder, write_whole
from sapo_adversary.scenarios.metrics import ABOUT
from sapo_adversary.scenarios.outcome import COLUMNS, Outcome, rows
from sapo_adversary.scenarios.page import page
from sapo_node.cli.commands.options import Command, as_json, stderr

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
