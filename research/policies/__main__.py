"""`python -m research.policies`."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from research.policies import POLICIES, meta_of, prepare_all
from sapo_adversary.simulator.runs import default_policies
from sapo_node.cli.commands.options import PATH, as_json, run_command_line, stderr
from sapo_node.cli.terminal import Terminal


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--folder",
    type=PATH,
    default=default_policies,
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
    python -m research.policies                        list all, with the measurements of those in the folder
    python -m research.policies scarce-4 llama         build two of them
    """  # noqa: D301 - click reads the backspace
    if names:
        prepare_all(names, folder, stderr)
    listed = [_row(name, folder) for name in names or POLICIES]
    if json_output:
        click.echo(json.dumps(listed))
    else:
        Terminal().print(_table(listed))


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


if __name__ == "__main__":
    run_command_line(policies)
