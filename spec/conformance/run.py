"""Runs the vectors of the standard through an implementation of the wire, in any language.

    python spec/conformance/run.py -- COMMAND [ARGUMENT ...]
    python spec/conformance/run.py --rule ENV -- node spec/conformance/js/cli.mjs

COMMAND starts the implementation: it reads one request per line and writes one response per line. The contract is in
README.md beside this file. Whatever the implementation does, `ask` returns within TIME_LIMIT: an Answer, or a Fault if
there is no valid response. After a fault the driver kills the process, and the next request starts it again.

This program needs Python and nothing else. The exit status is 0 if all verdicts agree, 1 if any differs, and 2 if the
implementation could not be run.
"""

import argparse
import json
import os
import re
import select
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO, Any, Self

VECTORS = Path(__file__).parents[1] / "vectors"

TIME_LIMIT = 10.0
"""Seconds in which the implementation must answer a request. For the first request they include its start."""

MAX_LINE = 1_000_000
"""Bytes of a response line, at most."""

_LAST_WORDS = 1.0
"""Seconds for which the driver waits for the exit status of a process that has closed its output, and for the rest of
what an ended process wrote to stderr.
"""

_MAX_WORDS = 4_000
"""Bytes of a line on stderr that are told as one, at most."""

UNKNOWN_KIND = "unknown kind"
"""The verdict of an implementation that does not know the kind of a request."""

MAY_BE_LEFT_OUT = frozenset({"mathematics"})
"""Kinds that an implementation need not know."""

PATIENCE = 3
"""If a process answers none of this many first requests, the driver gives up."""

_SHOWN = 72
"""Characters of a value shown to people, at most. The JSON report holds the whole value."""


class CannotRun(Exception):
    """The command cannot be started, or answers none of the first requests."""


class Wrong(StrEnum):
    """What the implementation did instead of answering."""

    SILENT = "silent"
    ENDED = "ended"
    NO_ANSWER = "not an answer"
    SECOND_LINE = "more than one line"
    UNASKED = "spoke before it was asked"
    LONG_LINE = "line too long"


@dataclass(frozen=True, slots=True)
class Answer:
    """A valid response."""

    verdict: str
    output: Any = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no valid response."""

    what: Wrong
    detail: str


class _Failed(Exception):
    def __init__(self, what: Wrong, detail: str) -> None:
        super().__init__(what, detail)
        self.fault = Fault(what, detail)


class Implementation:
    """The process of the implementation under test. Use it as a context manager.

    The process has its own session, so that the driver can kill its children with it.
    """

    def __init__(
        self, command: Sequence[str], *, hear: Callable[[str], object] | None = None, time_limit: float = TIME_LIMIT
    ) -> None:
        """`hear` gets each line that the process writes to stderr, printable. Without it they are discarded."""
        self._command = list(command)
        self._hear = hear
        self._time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, request: Mapping[str, Any]) -> Answer | Fault:
        """Send one request and return the response. Raises CannotRun if the process cannot be started."""
        process = self._process or self._start()
        try:
            return _answer(_exchange(process, json.dumps(request).encode() + b"\n", self._time_limit))
        except _Failed as failed:
            self._stop()
            return failed.fault

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if self._hear else subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotRun(f"cannot start the command {self._command[0]!r}: {error.strerror}") from error
        if self._hear and self._process.stderr:
            self._listener = Thread(target=_listen, args=(self._process.stderr, self._hear), daemon=True)
            self._listener.start()
        return self._process

    def _stop(self) -> None:
        if self._process is None:
            return
        # Leaving this context waits for the process and closes its pipes.
        with self._process as process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if self._listener:
                self._listener.join(_LAST_WORDS)
        self._process = None


def _listen(stream: IO[bytes], hear: Callable[[str], object]) -> None:
    """Tell each line of a stream until it ends, in a thread of its own: the process may write at any time."""
    with os.fdopen(os.dup(stream.fileno()), "rb") as lines:
        while line := lines.readline(_MAX_WORDS):
            if words := printable(line.decode("utf-8", "replace").rstrip("\n")):
                hear(words)


def _exchange(process: subprocess.Popen[bytes], request: bytes, time_limit: float) -> bytes:
    """Write the request while the process reads it, and read until the response line is complete."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + time_limit
    unsent, line = memoryview(request), b""
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.stdout, selectors.EVENT_READ)
        pipes.register(process.stdin, selectors.EVENT_WRITE)
        while b"\n" not in line:
            ready = {key.fileobj for key, _ in pipes.select(max(0.0, deadline - time.monotonic()))}
            if process.stdout in ready:
                chunk = os.read(process.stdout.fileno(), MAX_LINE)
                _check(process, chunk, asked=not unsent)
                line += chunk
                if len(line) > MAX_LINE:
                    raise _Failed(Wrong.LONG_LINE, f"more than {MAX_LINE:,} bytes")
            elif process.stdin in ready:
                # A pipe that is ready accepts PIPE_BUF bytes without blocking.
                unsent = unsent[_write(process, unsent[: select.PIPE_BUF]) :]
                if not unsent:
                    pipes.unregister(process.stdin)
            else:
                raise _Failed(Wrong.SILENT, f"no answer within {time_limit:g} s")
    answer, _, rest = line.partition(b"\n")
    if rest:
        raise _Failed(Wrong.SECOND_LINE, _excerpt(rest))
    return answer


def _write(process: subprocess.Popen[bytes], data: memoryview) -> int:
    """Return the number of bytes written.

    If the process has closed its input, all bytes count as written: its output decides about the response.
    """
    assert process.stdin is not None
    try:
        return os.write(process.stdin.fileno(), data)
    except BrokenPipeError:
        return len(data)


def _check(process: subprocess.Popen[bytes], chunk: bytes, *, asked: bool) -> None:
    if not chunk:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
        status = process.returncode
        raise _Failed(Wrong.ENDED, "it closed its output" if status is None else f"its exit status is {status}")
    if not asked:
        raise _Failed(Wrong.UNASKED, _excerpt(chunk))


def _answer(line: bytes) -> Answer:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _Failed(Wrong.NO_ANSWER, _excerpt(line)) from None
    match value:
        case {"verdict": str(verdict), **rest} if rest.keys() <= {"output", "note"}:
            note = rest.get("note", "")
            if isinstance(note, str):
                return Answer(verdict, rest.get("output"), note)
    raise _Failed(Wrong.NO_ANSWER, _excerpt(line))


def _refuse_constant(name: str) -> None:
    """JSON has no NaN and no infinity, and Python's reader takes both."""
    raise ValueError(name)


def _excerpt(data: bytes) -> str:
    """Return the first 100 bytes of an output, for people."""
    return repr(data[:100])[1:]


@dataclass(frozen=True, slots=True)
class Case:
    """One vector: a request, and the response that every implementation must give."""

    path: str
    """Folder and file under spec/vectors."""
    kind: str
    rule: str
    input: Mapping[str, Any]
    expect: str
    """`accept`, or the layer that refuses."""
    output: Mapping[str, Any] | None
    """The output that must come with `accept`; None if only the verdict is compared."""
    note: str
    """Why this is the expected response."""

    @property
    def request(self) -> dict[str, Any]:
        """What the implementation receives. It receives neither the rule nor the expected response."""
        return {"kind": self.kind, "input": self.input}


def load_cases(rule: str = "") -> list[Case]:
    """Load all cases, sorted by path. With `rule`, load the cases of one rule ("ENC-3") or of one section ("ENC").

    Raises CannotRun if there are none.
    """
    cases = _every_case()
    if not cases:
        raise CannotRun(f"no vectors in {VECTORS}; run this program from a complete repository")
    chosen = [case for case in cases if not rule or rule in {case.rule, section(case.rule)}]
    if not chosen:
        sections = ", ".join(sorted({section(case.rule) for case in cases}))
        raise CannotRun(f"no vector is for the rule {rule!r}; give a rule (example: ENC-3) or a section: {sections}")
    return chosen


def section(rule: str) -> str:
    """Return the name of a rule without its number."""
    return rule.partition("-")[0]


def in_order(rule: str) -> tuple[str, int]:
    """Return a sort key that puts ENC-2 before ENC-10."""
    number = re.search(r"\d+$", rule)
    return section(rule), int(number[0]) if number else 0


@cache
def _every_case() -> tuple[Case, ...]:
    return tuple(_load(file) for file in sorted(VECTORS.glob("*/*.json")))


def _load(file: Path) -> Case:
    vector = json.loads(file.read_text("utf-8"))
    return Case(
        path=file.relative_to(VECTORS).as_posix(),
        kind=vector["kind"],
        rule=vector["rule"],
        input=vector["input"],
        expect=vector["expect"],
        output=vector.get("output"),
        note=vector.get("note", ""),
    )


class Outcome(StrEnum):
    """How the implementation answered one case."""

    AGREED = "agreed"
    DIFFERED = "differed"
    UNKNOWN_KIND = "unknown_kind"
    LEFT_OUT = "left_out"
    NOT_ANSWERED = "not_answered"


@dataclass(frozen=True, slots=True)
class Result:
    """One case, and the response to it."""

    case: Case
    answer: Answer | Fault

    @property
    def outcome(self) -> Outcome:
        """Compare the verdict and, if the case has an output, the output."""
        if isinstance(self.answer, Fault):
            return Outcome.NOT_ANSWERED
        if self.answer.verdict == UNKNOWN_KIND:
            return Outcome.LEFT_OUT if self.case.kind in MAY_BE_LEFT_OUT else Outcome.UNKNOWN_KIND
        same = self.answer.verdict == self.case.expect
        if self.case.output is not None:
            # Compare as JSON: in Python, true equals 1.
            same = same and _json(self.answer.output) == _json(self.case.output)
        return Outcome.AGREED if same else Outcome.DIFFERED

    def as_dict(self) -> dict[str, Any]:
        """Return the expected and the actual response, for scripts."""
        case, answer = self.case, self.answer
        got = None if isinstance(answer, Fault) else _content(answer.verdict, answer.output)
        return {
            "case": case.path,
            "kind": case.kind,
            "rule": case.rule,
            "outcome": self.outcome,
            "expected": _content(case.expect, case.output),
            "got": got,
            "note": f"{answer.what}: {answer.detail}" if isinstance(answer, Fault) else answer.note,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all cases, in the order of the cases."""

    command: tuple[str, ...]
    results: list[Result]

    @property
    def all_agree(self) -> bool:
        """Whether the implementation gave the expected response to every case of a kind that it did not leave out."""
        return not self.disagreements

    @property
    def disagreements(self) -> list[Result]:
        """Every result that differs from its case, except those of kinds that were left out."""
        return [result for result in self.results if result.outcome not in {Outcome.AGREED, Outcome.LEFT_OUT}]

    def by_rule(self) -> dict[str, tuple[int, int]]:
        """Return for each rule, in order, the number of cases that were not left out and the number that agreed."""
        cases = Counter(result.case.rule for result in self.results if result.outcome is not Outcome.LEFT_OUT)
        agreed = Counter(result.case.rule for result in self.results if result.outcome is Outcome.AGREED)
        return {rule: (cases[rule], agreed[rule]) for rule in sorted(cases, key=in_order)}

    def as_dict(self) -> dict[str, Any]:
        """Return the report for scripts."""
        outcomes = Counter(result.outcome for result in self.results)
        return {
            "reader": self.command,
            "totals": {"cases": len(self.results)} | {outcome: outcomes[outcome] for outcome in Outcome},
            "rules": {rule: {"cases": cases, "agreed": agreed} for rule, (cases, agreed) in self.by_rule().items()},
            "disagreements": [result.as_dict() for result in self.disagreements],
        }


def run_cases(cases: Sequence[Case], reader: Implementation) -> list[Result]:
    """Send the request of every case.

    Raises CannotRun if the command cannot be started, or answers none of the first PATIENCE requests.
    """
    results: list[Result] = []
    for case in cases:
        results.append(Result(case, reader.ask(case.request)))
        if len(results) == PATIENCE and all(result.outcome is Outcome.NOT_ANSWERED for result in results):
            last = results[-1].as_dict()["note"]
            raise CannotRun(f"this command answered none of the first {PATIENCE} requests ({last})")
    return results


_TOLD = {
    Outcome.UNKNOWN_KIND: "kinds that the implementation does not know",
    Outcome.LEFT_OUT: "kinds that the implementation leaves out, as it may",
}


def render(report: Report) -> str:
    """Return the report for people."""
    total = sum(cases for cases, _ in report.by_rule().values())
    rows = [*report.by_rule().items(), ("all", (total, total - len(report.disagreements)))]
    lines = [f"{'rule':<8}{'cases':>8}{'agreed':>8}"]
    lines += [f"{rule:<8}{cases:>8}{agreed:>8}{'' if cases == agreed else '  !'}" for rule, (cases, agreed) in rows]
    for outcome, told in _TOLD.items():
        if found := Counter(each.case.kind for each in report.results if each.outcome is outcome):
            kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(found.items()))
            lines.append(f"{told}: {printable(kinds)}")
    lines += [_told(each) for each in report.disagreements if each.outcome is not Outcome.UNKNOWN_KIND]
    return "\n".join(lines)


def _told(result: Result) -> str:
    """Return a disagreement for a person: the case, the expected response, the actual one, and the reason."""
    case, answer = result.case, result.answer
    lines = [f"\n{case.rule}  {case.path}"]
    if isinstance(answer, Fault):
        lines += [f"  expected  {case.expect}", f"  got       no answer: {answer.what}, {answer.detail}"]
    else:
        lines += [f"  expected  {case.expect}", f"  got       {printable(answer.verdict)}"]
        if answer.verdict == case.expect:
            lines += _differences(case.output, answer.output)
        if answer.note:
            lines.append(f"  note      {printable(answer.note)}")
    if case.note:
        lines.append(f"  why       {case.note}")
    return "\n".join(lines)


def _differences(expected: Any, got: Any) -> list[str]:
    """Return a line for each value in which two outputs differ."""
    if not isinstance(got, dict):
        return [f"  output    expected an object, got {_shown(got)}"]
    pairs = {key: (expected.get(key), got.get(key)) for key in sorted(expected.keys() | got.keys())}
    return [
        f"  {printable(key)}: expected {_shown(want)}, got {_shown(have)}"
        for key, (want, have) in pairs.items()
        if _json(want) != _json(have)
    ]


def _content(verdict: str, output: Any) -> dict[str, Any]:
    return {"verdict": verdict} if output is None else {"verdict": verdict, "output": output}


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    text = _json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def printable(text: str) -> str:
    """Return the text with an escape in place of each character that could steer a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the vectors, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(description="Test an implementation of the wire with the vectors.")
    parser.add_argument("--rule", default="", help="only the vectors of one rule (ENC-3) or of one section (ENC)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="starts the implementation")
    given = parser.parse_args(arguments)
    try:
        cases = load_cases(given.rule)
        with Implementation(given.command, hear=lambda line: print(line, file=sys.stderr, flush=True)) as reader:
            report = Report(tuple(given.command), run_cases(cases, reader))
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.as_dict()) if given.json else render(report))
    return 0 if report.all_agree else 1


if __name__ == "__main__":
    sys.exit(main())
