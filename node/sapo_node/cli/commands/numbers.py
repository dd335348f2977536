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


class _OrAuto(click.ParamType[float | str]):
    """A number of one type, or `auto`."""

    kind: type[int] | type[float]
    called: str

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Return the number, or AUTO. Fails with a usage error if the value is neither."""
        if value == AUTO:
            return AUTO
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither a {self.called} nor `auto`", param, ctx)


class WholeOrAuto(_OrAuto):
    """A whole number, or `auto`."""

    name = "number|auto"
    kind = int
    called = "whole number"


class NumberOrAuto(_OrAuto):
    """A number, or `auto`."""

    name = "number|auto"
    kind = float
    called = "number"
