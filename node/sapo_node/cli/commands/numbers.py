"""Parameter types for numbers on the command line."""

from math import isfinite
from typing import Any

import click

from sapo_node.sampling.mix import AUTO


class Number(click.FloatRange):
    """A finite number within bounds. click's own type accepts `nan` for any bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Fails with a usage error if the value is none."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class WholeOrAuto(click.ParamType[int | str]):
    """A whole number, or `auto`."""

    name = "number|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or AUTO. Fails with a usage error if the value is neither."""
        if value == AUTO:
            return AUTO
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor `auto`", param, ctx)
