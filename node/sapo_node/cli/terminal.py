"""Prints text for people and JSON for scripts.

- Text of peers, manifests and plug-ins cannot send control characters to the terminal.
- If standard output cannot be written, these functions raise OutputLost. What is printed later goes nowhere.
"""

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from errno import EPIPE
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sapo_protocol import LocalError
from sapo_protocol.printable import is_printable, printable, printable_lines

_STDOUT = 1
"""The file descriptor of standard output."""


class OutputLost(LocalError):
    """Standard output cannot be written: its disk is full, for instance."""


class ReaderGone(OutputLost):
    """The program that read standard output has ended, as `head` does after a few lines."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Without this, the interpreter fails at its exit, when it writes what is left in the buffer.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
        kind = ReaderGone if error.errno == EPIPE else OutputLost
        raise kind(f"cannot write to standard output: {error.strerror}") from error


class Terminal(Console):
    """A console that makes all text printable. It keeps its own colours and cursor movements.

    A string has neither markup nor names of emoji. Foreign text could style itself by markup, hide an address behind a
    link, or end the command by a tag that nothing opened. What has a style is a Text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does. Raises OutputLost if this is standard output and cannot be written."""
        with nullcontext() if self.stderr else _writing():
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Raise the error as for a full disk; rich would end the process."""
        raise BrokenPipeError(EPIPE, os.strerror(EPIPE))

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
    with _writing():
        # click.echo would write UTF-8 to a stream whose encoding is ASCII.
        if sys.stdout is not None:  # the shell's `>&-` closes it
            sys.stdout.write(f"{printable_lines(text)}\n")
            sys.stdout.flush()


def say_json(facts: Any) -> None:
    """Print one line of JSON on standard output. It is ASCII, so it cannot steer a terminal."""
    with _writing():
        click.echo(json.dumps(facts))
