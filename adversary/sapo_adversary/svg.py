"""SVG from matplotlib: small, and the same bytes for the same numbers."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sapo_adversary.files import write_whole
from sapo_protocol.printable import printable_lines

_STYLE: Any = {
    # Text stays text, which is small, and without a salt the ids of clip paths differ from run to run.
    "svg.hashsalt": "sapo",
    "svg.fonttype": "none",
    # A name is no formula: a dollar sign in it could end the drawing by an error.
    "text.parse_math": False,
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_COORDINATES = re.compile(r' (?:d|points|x|y|transform)="[^"]*"')
_DECIMALS = re.compile(r"(\.\d)\d+")
_INDENTATION = re.compile(r"\s*\n\s*")


@contextmanager
def style(*, transparent: bool = False) -> Iterator[None]:
    """Within, figures are made in the style of this package, on white or on nothing."""
    with mpl.rc_context(_STYLE | {"savefig.transparent": transparent}):
        yield


def svg(figure: Figure) -> str:
    """The whole file of a figure, without indentation; coordinates have one decimal, a tenth of a point.

    It is printable: XML has no place for control characters, and names in it may be foreign.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    short = _COORDINATES.sub(lambda attribute: _DECIMALS.sub(r"\1", attribute[0]), text.getvalue())
    return printable_lines(_INDENTATION.sub("\n", short))


def write_svg(figure: Figure, path: Path) -> None:
    """Write the file of a figure. Raises LocalError if the file cannot be written."""
    write_whole(path, svg(figure))
