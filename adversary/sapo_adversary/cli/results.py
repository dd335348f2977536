"""Where a command leaves its results: `--output`, and `--records` of those that play runs."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

_IN_CLONE = Path("tests/benchmarks/results")

folder = click.Path(path_type=Path)


def default_output() -> Path:
    """Where results go: beside the committed ones in a clone, so that `git diff` shows what differs."""
    return _IN_CLONE if _IN_CLONE.is_dir() else Path("results")


to_output = click.option(
    "--output",
    type=folder,
    default=default_output,
    help="Where results go.  [default: tests/benchmarks/results, or results]",
)


def with_records(command: Callable[..., None]) -> Callable[..., None]:
    """Add --output and --records, and hand the command both folders."""

    @to_output
    @click.option("--records", type=folder, help="Where the records of single runs go.  [default: OUTPUT/runs]")
    @wraps(command)
    def wrapped(*arguments: Any, output: Path, records: Path | None, **options: Any) -> None:
        command(*arguments, output=output, records=records or output / "runs", **options)

    return wrapped
