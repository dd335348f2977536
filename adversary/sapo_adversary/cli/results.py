"""Where a command leaves its results: `--output`, and `--records` of those that play runs."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from sapo_adversary.simulator.versions import versions_now
from sapo_node.cli.commands.options import stderr
from sapo_node.cli.commands.paths import PATH

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
