"""The options for where runs are played: `--engine`, `--jobs` and `--device`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import click

from sapo_adversary.simulator.engine import Engine, ThisMachine
from sapo_adversary.simulator.simulation import Device
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
