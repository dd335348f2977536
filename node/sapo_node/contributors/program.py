"""Gets answers from a program that the operator trusts. It reads one line of JSON per prompt and writes one line back.

If the program dies, hangs or writes an invalid line, the node ends it, and starts it again for the next prompt. If that
happens before its first answer, the program cannot work, and the node stops with LocalError.
"""

import json
import logging
import os
import re
import select
import shlex
import shutil
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from sapo_node.contributors.text import completion, filled
from sapo_node.groups.messages import Sampled
from sapo_node.groups.prompt import SYSTEM, Prompt
from sapo_node.processes.child import ChildProcess, listen
from sapo_node.training.rollout import AnswerFailed, TaskSkipped
from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt

logger = logging.getLogger("sapo.program")

ANSWER_SECONDS = 120.0
"""Seconds for one prompt, including the start of the program."""
STOP_GRACE = 10.0
LAST_WORDS = 10
"""Lines of stderr that an error quotes, at most. Node.js ends with nine lines that do not name the error."""
MAX_LINE_BYTES = 4_000_000
_CHUNK = 65_536
_TEXTS = re.compile(rb'\s*\[\s*(?:"(?:[^"\\]|\\.)*+"\s*(?:,\s*"(?:[^"\\]|\\.)*+"\s*)*+)?\]\s*')
"""A JSON list of texts. Parsing a long line of anything else could hold up the node for a second."""


@asynccontextmanager
async def program(command: str, *, max_bytes: int) -> AsyncIterator["Program"]:
    """Yield the program of a command line, run without a shell. Raises LocalError if it cannot be run."""
    argv = _argv(command)
    async with trio.open_nursery() as nursery:
        answerer = Program(argv, nursery, max_bytes=max_bytes)
        try:
            yield answerer
        finally:
            await answerer.end(grace=STOP_GRACE)
        nursery.cancel_scope.cancel()


def _argv(command: str) -> list[str]:
    """Return the words of a command line. Raises LocalError unless the first is a program."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise LocalError(f"--program {command!r} is not a command line: {error}") from error
    if not argv or shutil.which(argv[0]) is None:
        path = Path(argv[0]) if argv and "/" in argv[0] else None
        if path and path.is_dir():
            raise LocalError(f"--program {command!r} cannot be run: {argv[0]} is a folder; give a program in it")
        if path and path.exists():
            raise LocalError(
                f"--program {command!r} cannot be run: {argv[0]} is not executable; give what runs it, as in "
                f'"python3 solver.py", or run: chmod +x {argv[0]}'
            )
        raise LocalError(f"--program {command!r} cannot be found; give the path of a program or a name on PATH")
    return argv


class _Run:
    """One run of the program, and its output."""

    def __init__(self, argv: Sequence[str]) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SAPO_NODE_")}  # secrets
        self.process = ChildProcess(argv, env=env, capture_stderr=True)
        self.words: deque[str] = deque(maxlen=LAST_WORDS)
        """Lines of its stderr since its last answer."""
        self.silent = trio.Event()
        """Set when its stderr has ended."""
        self._buffer = bytearray()

    async def ask(self, line: bytes) -> bytes:
        """Write `line` to the program and return the line that it answers."""
        if self._buffer or await self._has_more():
            raise AnswerFailed("the program wrote more than one line for a prompt")
        await self.process.stdin.send_all(line)
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise AnswerFailed(f"the program wrote a line of more than {MAX_LINE_BYTES} bytes")
            chunk = await self.process.stdout.receive_some(_CHUNK)
            if not chunk:
                raise trio.BrokenResourceError
            self._buffer += chunk
        answer, _, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        return bytes(answer)

    async def _has_more(self) -> bool:
        """Return whether the program has written more than its answer. Each later answer would be one too late."""
        output = select.poll()
        output.register(self.process.stdout.fileno(), select.POLLIN)
        return bool(output.poll(0)) and bool(await self.process.stdout.receive_some(_CHUNK))

    async def log(self) -> None:
        """Copy the program's stderr to the log, line by line."""
        assert self.process.stderr is not None
        await listen(self.process.stderr, self._note)
        self.silent.set()

    def _note(self, words: str) -> None:
        self.words.append(words)
        logger.info("%s", words)


class Program:
    """Answers prompts by asking a child process, one prompt after the other."""

    def __init__(self, argv: Sequence[str], nursery: trio.Nursery, *, max_bytes: int) -> None:
        self._argv = argv
        self._nursery = nursery
        self._max_bytes = max_bytes
        self._current: _Run | None = None
        self._has_answered = False

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int
    ) -> list[tuple[Sampled, ...]]:
        """Return G completions for each prompt.

        Raises TaskSkipped if the program skips all of them, AnswerFailed if it fails or writes an invalid line, and
        LocalError if that happens before its first answer.
        """
        del max_tokens, seed
        try:
            given = [await self._texts(prompt, completions) for prompt in prompts]
        except AnswerFailed as failure:
            if self._has_answered:
                raise
            raise LocalError(f"{failure}; it never answered a prompt, so the node stops") from failure
        if not any(given):
            raise TaskSkipped("the program skipped all prompts of a round")
        return [filled([completion(text, "stop", self._max_bytes) for text in texts], completions) for texts in given]

    async def end(self, *, grace: float = 0.0) -> int | None:
        """End the program and return its exit status, or None if it did not run."""
        if self._current is None:
            return None
        run, self._current = self._current, None
        with trio.CancelScope(shield=True):
            return await run.process.end(grace=grace)

    async def _texts(self, prompt: Prompt, completions: int) -> list[str]:
        """Ask the program for completions of a prompt. Raises AnswerFailed."""
        examples = [[each.prompt, each.completion] for each in prompt.examples]
        asked = {"prompt": prompt.text, "system": SYSTEM, "completions": completions}
        line = json.dumps({**asked, "examples": examples} if examples else asked).encode() + b"\n"
        answered = False
        try:
            with trio.fail_after(ANSWER_SECONDS):
                texts = _texts(await self._running().ask(line), completions)
            answered = self._has_answered = True
            self._running().words.clear()
        except trio.TooSlowError:
            raise AnswerFailed(f"the program did not answer within {ANSWER_SECONDS:g} s and is ended") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise AnswerFailed(await self._how_it_ended()) from None
        finally:
            # After a failure or a cancellation, a late answer must not become the answer to the next prompt.
            if not answered:
                await self.end()
        return texts

    def _running(self) -> _Run:
        if self._current is None:
            self._current = _Run(self._argv)
            self._nursery.start_soon(self._current.log)
        return self._current

    async def _how_it_ended(self) -> str:
        """Return an error text with the exit status and the last lines of the program. Its pipes are closed already."""
        assert self._current is not None
        run = self._current
        with trio.move_on_after(STOP_GRACE):
            await run.process.exited()
            await run.silent.wait()
        status = await self.end()
        return f"the program ended with status {status}{': ' if run.words else ''}{' | '.join(run.words)}"


def _texts(line: bytes, completions: int) -> list[str]:
    """Return the texts in a line. Raises AnswerFailed if the line is not a JSON list of at most `completions` texts."""
    try:
        value = json.loads(line) if _TEXTS.fullmatch(line) else None
    except (ValueError, RecursionError):
        value = None
    if value is None or len(value) > completions:
        start = excerpt(line[:200].decode("utf-8", "replace"), 60)
        raise AnswerFailed(f"the program answered {start!r}, not a JSON list of at most {completions} texts")
    return list(value)
