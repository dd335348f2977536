"""Answers from a person at the terminal, one prompt at a time.

The terminal's own line editing does, so that waiting for a line can be cancelled and a late line is thrown away.
"""

import os
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from sapo_node.app.events import Event, Noticed, Shared, Started, Stopped
from sapo_node.contributors.text import completion, filled
from sapo_node.groups.messages import Sampled
from sapo_node.observability.overview import Overview
from sapo_node.training.rollout import TaskSkipped
from sapo_protocol import LocalError

_MAX_INPUT = 4096
"""Bytes the kernel keeps of a line."""


class Person:
    """Asks, shows what came of the answers, and keeps what else happens back until the prompt is over."""

    def __init__(self, console: Console, *, max_bytes: int, seconds: float) -> None:
        """`seconds` is how long peers would take an answer."""
        self._console = console
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._asking = False
        self._held: list[Text] = []

    @asynccontextmanager
    async def at_terminal(self) -> AsyncIterator["Person"]:
        """This person, if there is one: raises LocalError where nobody can type."""
        if not sys.stdin.isatty():
            raise LocalError("--terminal needs somebody at a terminal, and the input is none")
        yield self

    async def generate(
        self, prompts: Sequence[str], *, completions: int, max_tokens: int, seed: int
    ) -> list[tuple[Sampled, ...]]:
        """What is typed for each prompt, up to G answers. Raises TaskSkipped."""
        del max_tokens, seed
        return [await self._group(prompt, completions) for prompt in prompts]

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        match event:
            case Noticed(text):
                self._say(text, "dim")
            case Started(view):
                self._say(f"started as {view.session['peer_id']}", "dim")
            case Shared(report, view):
                right = sum(task.right for task in report.tasks)
                self._say(f"shared, {right} correct; prompts so far: {_shared(view)}", "green")
            case Stopped(view):
                self._say(f"stopped; prompts shared in all: {_shared(view)}", "bold")

    async def _group(self, prompt: str, completions: int) -> tuple[Sampled, ...]:
        self._asking = True
        try:
            # Typed for the prompt before, which is over.
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
            self._console.print(Panel(Text(prompt.strip()), title="prompt", title_align="left"))
            minutes, seconds = divmod(int(self._seconds), 60)
            self._console.print(
                f"{minutes} min {seconds} s; type your result, or thoughts and <answer>your result</answer>\n"
                "Enter alone shares what you gave, Ctrl-D skips the prompt, Ctrl-C stops",
                style="dim",
                highlight=False,
            )
            given = [completion(text, "stop", self._max_bytes) for text in await self._lines(completions)]
            return filled(given, completions)
        finally:
            self._asking = False
            for text in self._held:
                self._console.print(text)
            self._held.clear()

    async def _lines(self, most: int) -> list[str]:
        answers: list[str] = []
        while len(answers) < most:
            self._console.print(f"answer {len(answers) + 1} of at most {most}: ", style="bold", end="")
            try:
                line = (await _typed_line()).strip()
            except (TaskSkipped, trio.Cancelled):
                self._console.print()
                raise
            if line:
                answers.append(line if "<answer>" in line else f"<answer>{line}</answer>")
            elif answers:
                break
        return answers

    def _say(self, text: str, style: str) -> None:
        line = Text(text, style)
        if self._asking:
            self._held.append(line)
        else:
            self._console.print(line)


def _shared(view: Overview) -> int:
    return sum(task.groups for task in view.answers)


async def _typed_line() -> str:
    """Raises TaskSkipped for Ctrl-D, and LocalError once the terminal is gone."""
    descriptor = sys.stdin.fileno()
    data = b""
    while not data.endswith(b"\n"):
        await trio.lowlevel.wait_readable(descriptor)
        chunk = os.read(descriptor, _MAX_INPUT)
        if not chunk:
            if not os.isatty(descriptor):
                raise LocalError("the terminal is gone")
            raise TaskSkipped("skipped")
        data += chunk
    return data.decode("utf-8", "replace")
