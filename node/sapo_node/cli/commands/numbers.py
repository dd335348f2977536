"""Numbers on a command line."""

from math import isfinite
from typing import Any

import click


class Number(click.FloatRange):
    """A finite number within bounds: click itself lets `nan` pass any bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for anything else."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number
