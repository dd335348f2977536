"""The parameter type for paths on the command line."""

import os
from pathlib import Path
from typing import Any

import click

from sapo_protocol.files import expanded


class _PathOf(click.Path):
    """A path as a Path. A shell leaves `~` as it is in --state=~/x and in quotes, so it is expanded here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises LocalError for `~` of a user without a home folder."""
        return super().convert(expanded(os.fspath(value)), param, ctx)


PATH = _PathOf(path_type=Path)
