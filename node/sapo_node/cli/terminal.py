"""Prints text for people. Text of peers, manifests and plug-ins cannot send control characters to the terminal."""

import logging
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sapo_protocol.printable import is_printable, printable, printable_lines


class Terminal(Console):
    """A console that makes all text printable. It keeps its own colours and cursor movements.

    A string has neither markup nor names of emoji. Foreign text could style itself by markup, hide an address behind a
    link, or end the command by a tag that nothing opened. What has a style is a Text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of `renderable`, each with printable text and a printable link."""
        for segment in super().render(renderable, options):
            link = segment.style.link if segment.style else None
            if segment.control or is_printable(segment.text + (link or "")):
                yield segment
            else:
                style = segment.style.update_link(printable(link)) if segment.style and link else segment.style
                yield segment._replace(text=printable_lines(segment.text), style=style)


class PrintableFormatter(logging.Formatter):
    """Makes log lines printable. Tracebacks keep their line breaks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Return the line without the traceback."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        """Return the traceback."""
        return printable_lines(super().formatException(ei))


def say(text: str) -> None:
    """Print lines for people on standard output."""
    click.echo(printable_lines(text))
