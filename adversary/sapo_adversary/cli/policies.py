"""List and build the prepared policies: `policies`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from sapo_adversary.research.policies import POLICIES, default_folder, meta_of, prepare, require_known
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.cli.commands.options import as_json, stderr
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.terminal import Terminal


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--folder",
    type=PATH,
    default=default_folder,
    show_default="sapo-node/policies in the user's cache folder",
    help="Folder of the prepared policies.",
)
@as_json
def policies(names: tuple[str, ...], *, folder: Path, json_output: bool) -> None:
    """Build the policies NAME..., or list all policies.

    These are policies other than the packaged seed, for swarms whose nodes differ. The command builds each from the
    package alone, in one to twenty minutes of one core, and measures it. A policy that is there already stays as it is.
    An interrupted build continues where it last saved.

    \b
    sapo-adversary policies                        list all, with the measurements of those in the folder
    sapo-adversary policies scarce-4 llama         build two of them
    """  # noqa: D301 - click reads the backspace
    if names:
        prepare_all(names, folder, stderr)
    listed = [_row(name, folder) for name in names or POLICIES]
    if json_output:
        click.echo(json.dumps(listed))
    else:
        Terminal().print(_table(listed))


def prepare_for(simulations: Iterable[Simulation], folder: Path, console: Console) -> None:
    """Build the prepared policies that the nodes of these simulations begin with, where they are missing."""
    models = {spec.model for simulation in simulations for spec in simulation.nodes}
    prepare_all(sorted(models & POLICIES.keys()), folder, console)


def prepare_all(names: Iterable[str], folder: Path, console: Console) -> None:
    """Build those of the policies that are missing, with a bar for each. Raises LocalError for a name that is none."""
    names = tuple(names)
    require_known(names)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}"),
    )
    with Progress(*columns, console=console) as shown:
        for name in names:
            bar = shown.add_task(name, total=1.0, doing="")

            def advance(share: float, doing: str, bar: TaskID = bar) -> None:
                shown.update(bar, completed=share, doing=doing)

            prepare(name, folder, advance)
            advance(1.0, "there")


def _row(name: str, folder: Path) -> dict[str, Any]:
    """A policy with its measurements, where it is there."""
    meta = meta_of(folder / name)
    shown = ("start", "ceiling", "max_tokens", "parameters", "questions", "digest")
    return {"name": name, "about": POLICIES[name].about, **{key: meta[key] for key in shown if key in meta}}


def _table(listed: list[dict[str, Any]]) -> Table:
    table = Table(
        "name", "what it is", caption="pass@1 on held-out questions; the ceiling is with a careful opening forced"
    )
    for column in ("start", "per task", "ceiling", "max tokens"):
        table.add_column(column, justify="right")
    for row in listed:
        cells = ["not built", "", "", ""]
        if "start" in row:
            rates = row["start"]["per_task"].values()
            cells = [
                f"{row['start']['overall']:.3f}",
                f"{min(rates):.3f} to {max(rates):.3f}",
                f"{row['ceiling']['overall']:.2f}",
                str(row["max_tokens"]),
            ]
        table.add_row(row["name"], row["about"], *cells)
    return table
