"""Where a command leaves its results: `--output`, and `--records` of those that play runs."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

DEFAULT_OUTPUT = Path("results")

folder = click.Path(path_type=Path)

to_output = click.option("--output", type=folder, default=DEFAULT_OUTPUT, show_default=True, help="Where results go.")


def with_records(command: Callable[..., None]) -> Callable[..., None]:
    """Add --output and --records, and hand the command both folders."""

    @to_output
    @click.option("--records", type=folder, help="Where the records of single runs go.  [default: OUTPUT/runs]")
    @wraps(command)
    def wrapped(*arguments: Any, output: Path, records: Path | None, **options: Any) -> None:
        command(*arguments, output=output, records=records or output / "runs", **options)

    return wrapped
