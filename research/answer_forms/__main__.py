"""`python -m research.answer_forms`."""

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from research.answer_forms.measure import cases, figures, scored_here, scored_in
from sapo_adversary.files import to_json
from sapo_node.cli.commands.options import PATH, as_json, run_command_line
from sapo_node.cli.terminal import Terminal


@click.command()
@click.option("--items", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Items of each dataset.")
@click.option("--seed", type=click.IntRange(0, 1_000), default=1, show_default=True, help="Seed of items and choices.")
@click.option("--before", type=PATH, help="Also score them by the scorers of this checkout of another commit.")
@as_json
def answer_forms(*, items: int, seed: int, before: Path | None, json_output: bool) -> None:
    """Count which forms of correct answers the scorers accept, and how many incorrect answers.

    \b
    git worktree add /tmp/before 1eab1b87
    python -m research.answer_forms --before /tmp/before
    """  # noqa: D301 - click reads the backspace
    listed = cases(items, seed)
    before_too = " --before FOLDER" if before else ""
    found: dict[str, Any] = {
        "command": f"python -m research.answer_forms --items {items} --seed {seed}{before_too} --json"
    }
    if before:
        found["before"] = figures(listed, *scored_in(before, listed))
    found["after"] = figures(listed, *scored_here(listed))
    if json_output:
        click.echo(to_json(found), nl=False)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("scorers", "dataset", "right forms", "accepted", "wrong answers", "accepted"):
        table.add_column(name, justify="left" if name in {"scorers", "dataset"} else "right")
    for part in ("before", "after"):
        if part in found:
            rows = {**found[part]["datasets"], "all": found[part]}
            for dataset, row in rows.items():
                shown = (str(row["right"]), f"{row['accepted']:.1%}", str(row["wrong"]), str(row["wrong_accepted"]))
                table.add_row(f"version {found[part]['scorer_version']}", dataset, *shown)
    Terminal().print(table)


if __name__ == "__main__":
    run_command_line(answer_forms)
