"""Where a command leaves its results: `--output`."""

from pathlib import Path

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
