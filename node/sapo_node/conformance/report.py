"""Reports how an implementation answered the vectors: counts by rule, and every disagreement."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from sapo_node.conformance.cases import Case, in_order
from sapo_node.conformance.driver import Answer, CannotRun, Fault, Implementation
from sapo_protocol.printable import printable

UNKNOWN_KIND = "unknown kind"
"""The verdict of an implementation that does not know the kind of a request."""

PATIENCE = 3
"""If a process answers none of this many first requests, the driver gives up."""

_SHOWN = 72
"""Characters of a value shown to people, at most. The JSON report holds the whole value."""


class Outcome(StrEnum):
    """How the implementation answered one case."""

    AGREED = "agreed"
    DIFFERED = "differed"
    UNKNOWN_KIND = "unknown_kind"
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
            return Outcome.UNKNOWN_KIND
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
        """Whether the implementation gave the expected response to every case."""
        return not self.disagreements

    @property
    def disagreements(self) -> list[Result]:
        """Every result that differs from its case."""
        return [result for result in self.results if result.outcome is not Outcome.AGREED]

    def by_rule(self) -> dict[str, tuple[int, int]]:
        """Return for each rule, in order, the number of cases and the number that agreed."""
        cases = Counter(result.case.rule for result in self.results)
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


def run_cases(
    cases: Sequence[Case], reader: Implementation, *, progress: Callable[[], None] = lambda: None
) -> list[Result]:
    """Send the request of every case; call `progress` after each.

    Raises CannotRun if the command cannot be started, or answers none of the first PATIENCE requests.
    """
    results: list[Result] = []
    for case in cases:
        results.append(Result(case, reader.ask(case.request)))
        progress()
        if len(results) == PATIENCE and all(result.outcome is Outcome.NOT_ANSWERED for result in results):
            last = results[-1].as_dict()["note"]
            raise CannotRun(f"this command answered none of the first {PATIENCE} requests ({last})")
    return results


def render(report: Report) -> RenderableType:
    """Return the report for the terminal."""
    table = Table("rule", Column("cases", justify="right"), Column("agreed", justify="right"))
    for rule, (cases, agreed) in report.by_rule().items():
        table.add_row(rule, str(cases), str(agreed), style="" if cases == agreed else "red")
    total = len(report.results)
    table.add_section()
    table.add_row("all", str(total), str(total - len(report.disagreements)), style="bold")
    parts: list[RenderableType] = [table]
    unknown = Counter(each.case.kind for each in report.results if each.outcome is Outcome.UNKNOWN_KIND)
    if unknown:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(unknown.items()))
        parts.append(Text(f"kinds that the implementation does not know: {kinds}", style="yellow"))
    parts += [_told(each) for each in report.disagreements if each.outcome is not Outcome.UNKNOWN_KIND]
    return Group(*parts)


def _told(result: Result) -> Text:
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
    return Text("\n".join(lines))


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
