"""Asks a person at the terminal for completions, one prompt at a time.

It reads lines from the terminal itself, not through readline. So waiting for a line can be cancelled, and a line that
was typed too late is discarded.
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
from sapo_node.groups.prompt import Prompt
from sapo_node.observability.condition import counted
from sapo_node.observability.overview import Overview
from sapo_node.training.rollout import TaskSkipped
from sapo_protocol import LocalError

_MAX_INPUT = 4096
"""Bytes of a typed line, at most: the kernel keeps no more."""


class Person:
    """Shows each prompt, reads the completions, and prints events. While a prompt is open, it holds events back."""

    def __init__(self, console: Console, *, max_bytes: int, seconds: float) -> None:
        """`seconds` is the time limit of a prompt: peers accept no later answer."""
        self._console = console
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._asking = False
        self._held: list[Text] = []

    @asynccontextmanager
    async def at_terminal(self) -> AsyncIterator["Person"]:
        """Yield this person. Raises LocalError if the input is not a terminal."""
        if not sys.stdin.isatty():
            raise LocalError("--terminal needs a terminal, and the standard input is none")
        yield self

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int
    ) -> list[tuple[Sampled, ...]]:
        """Return the typed completions of each prompt, up to G. Raises TaskSkipped."""
        del max_tokens, seed
        return [await self._group(prompt, completions) for prompt in prompts]

    def __call__(self, event: Event) -> None:
        """Print an event."""
        match event:
            case Noticed(notice):
                self._say(notice["text"], "yellow" if notice["level"] == "attention" else "dim")
            case Started(view):
                self._say(f"started as {view.session['peer_id']}", "dim")
            case Shared(report, view):
                given = sum(task.completions for task in report.tasks)
                correct = sum(task.right for task in report.tasks)
                self._say(f"shared; {correct} of {given} completions are correct. {_shared(view)} so far", "green")
            case Stopped(view):
                self._say(f"stopped; {_shared(view)} shared in all", "bold")

    async def _group(self, prompt: Prompt, completions: int) -> tuple[Sampled, ...]:
        self._asking = True
        try:
            # Discard what was typed for the previous prompt after its end.
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
            for example in prompt.examples:
                text = Text(f"{example.prompt.strip()}\n\n{example.completion.strip()}")
                self._console.print(Panel(text, title="example", title_align="left", style="dim"))
            self._console.print(Panel(Text(prompt.text.strip()), title="prompt", title_align="left"))
            minutes, seconds = divmod(int(self._seconds), 60)
            self._console.print(
                f"{minutes} min {seconds} s; type your result, or your reasoning and <answer>your result</answer>\n"
                "an empty line shares your answers, Ctrl-D skips the prompt, Ctrl-C stops the node",
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
            else:
                self._console.print("there is no answer to share yet; Ctrl-D skips the prompt", style="dim")
        return answers

    def _say(self, text: str, style: str) -> None:
        line = Text(text, style)
        if self._asking:
            self._held.append(line)
        else:
            self._console.print(line)


def _shared(view: Overview) -> str:
    return counted(sum(task.groups for task in view.answers), "prompt")


async def _typed_line() -> str:
    """Return one typed line. Raises TaskSkipped for Ctrl-D, and LocalError if the terminal was closed."""
    descriptor = sys.stdin.fileno()
    data = b""
    while not data.endswith(b"\n"):
        await trio.lowlevel.wait_readable(descriptor)
        chunk = os.read(descriptor, _MAX_INPUT)
        if not chunk:
            if not os.isatty(descriptor):
                raise LocalError("the terminal was closed")
            raise TaskSkipped("skipped")
        data += chunk
    return data.decode("utf-8", "replace")
