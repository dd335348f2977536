"""Our own scorers, one per dataset of the catalogue: what a completion's answer must be to earn its reward.

Guarantees: the result is right or wrong, nothing between; any text at all gets a result, within milliseconds; text is
compared, parsed by small linear grammars of ASCII digits, and never evaluated. reasoning-gym's scorers are never
called: nine of them execute the answer, and most pay for answers that solve nothing.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from math import gcd
from types import MappingProxyType

from sapo_node.verification.answer import answer_span
from sapo_node.verification.tasks import interop, plugins
from sapo_node.verification.tasks.logic import follows_from_premises
from sapo_node.verification.tasks.task import Task

SCORER_VERSION = 1
"""Version of every scorer here, which a manifest names for each task."""

MAX_COMPLETION = 65_536
"""Characters of a completion that is looked at; a longer one is wrong."""

MAX_ANSWER = 4_096
"""Characters of an answer; a longer one is wrong."""

_BLANK = " \t\r\n"


def score(dataset: str, task: Task, completion: str) -> bool:
    """Whether the last `<answer>...</answer>` of `completion` answers `task`; never raises on any completion, unless
    another package's scorer does.
    """
    answer = extract_answer(completion)
    if answer is None or not 0 < len(answer) <= min(MAX_ANSWER, 4 * len(task.answer) + 64):
        return False
    if not answer.replace("\n", "").isprintable():
        return False
    if plugins.is_foreign(dataset):
        return plugins.of(dataset).earns(task.prompt, task.answer, answer) is True
    return _SCORERS[dataset](task, answer)


def extract_answer(completion: str) -> str | None:
    """The text of the answer, stripped of blanks."""
    if len(completion) > MAX_COMPLETION:
        return None
    span = answer_span(completion)
    return completion[slice(*span)].strip(_BLANK) if span else None


def _is_text(task: Task, answer: str) -> bool:
    """The very text."""
    return answer == task.answer.strip(_BLANK)


def _is_text_in_any_case(task: Task, answer: str) -> bool:
    return answer.isascii() and answer.lower() == task.answer.lower()


def _is_integer(task: Task, answer: str) -> bool:
    """The same whole number in decimal ASCII digits, with an optional sign."""
    expected = _integer(task.answer)
    return expected is not None and _integer(answer) == expected


_INTEGER = re.compile(r"[+-]?[0-9]{1,1000}", re.ASCII)


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


_FRACTIONS = (
    re.compile(r"([0-9]{1,100}) ?/ ?([0-9]{1,100})", re.ASCII),
    re.compile(r"\\d?frac ?\{ ?([0-9]{1,100}) ?\} ?\{ ?([0-9]{1,100}) ?\}", re.ASCII),
)


def _is_simplified_fraction(task: Task, answer: str) -> bool:
    """The same fraction in its lowest terms, as a/b or in LaTeX by frac or dfrac, bare or within dollar signs."""
    expected, given = _fraction(task.answer), _fraction(answer)
    if expected is None or given is None or gcd(*given) != 1:
        return False
    return given[0] * expected[1] == given[1] * expected[0]


def _fraction(text: str) -> tuple[int, int] | None:
    """Numerator and denominator as written; None for no fraction or a zero denominator."""
    if len(text) >= 2 and text[0] == text[-1] == "$":
        text = text[1:-1].strip(" ")
    for style in _FRACTIONS:
        if match := style.fullmatch(text):
            numerator, denominator = int(match[1]), int(match[2])
            return (numerator, denominator) if denominator else None
    return None


def _is_calendar_answer(task: Task, answer: str) -> bool:
    """The same count where the reference is one, else the same weekday, yes or no in any case."""
    if _integer(task.answer) is not None:
        return _is_integer(task, answer)
    return _is_text_in_any_case(task, answer)


_DECIMAL = re.compile(r"[+-]?[0-9]{1,60}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_SIGNIFICANT = re.compile(r"to a maximum of ([0-9]{1,3}) significant digits", re.ASCII)
_EXACTLY = Context(prec=2_500)


def _is_decimal(task: Task, answer: str) -> bool:
    """The same number, give or take one unit in the last of the significant digits that the question asks for.

    The reference is itself rounded after every step, so the true result, rightly rounded, may differ by that unit.
    reasoning-gym allows an absolute 10^-places instead, which is below the reference's own precision for large
    results and a tenth of small ones.
    """
    if not (_DECIMAL.fullmatch(answer) and _DECIMAL.fullmatch(task.answer)):
        return False
    expected, given = Decimal(task.answer), Decimal(answer)
    digits = _SIGNIFICANT.search(task.prompt)
    if digits is None or not expected:
        return given == expected
    unit = Decimal(1).scaleb(expected.adjusted() - int(digits[1]) + 1, _EXACTLY)
    return _EXACTLY.abs(_EXACTLY.subtract(given, expected)) <= unit


def _is_row(task: Task, answer: str) -> bool:
    """The same cells; blanks between them may differ."""
    return answer.split() == task.answer.split()


_ROWS = re.compile(r"(\[[0-9, ]*\])(?:[,\s]*\[[0-9, ]*\])*", re.ASCII)


def _is_matrix(task: Task, answer: str) -> bool:
    """The same matrix of whole numbers: a row per line, or rows in brackets, with blanks or commas between cells."""
    return _matrix(answer) == _matrix(task.answer)


def _matrix(text: str) -> list[list[str]] | None:
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip(_BLANK + ",")
        body = inner if inner.startswith("[") else text
        if not _ROWS.fullmatch(body):
            return None
        lines = re.findall(r"\[([0-9, ]*)\]", body)
    else:
        lines = text.split("\n")
    rows = [line.replace(",", " ").split() for line in lines]
    return [[cell.lstrip("0") or "0" for cell in row] for row in rows]


_SCORERS: Mapping[str, Callable[[Task, str], bool]] = MappingProxyType(
    {
        "arc_1d": _is_row,
        "base_conversion": _is_text,
        "basic_arithmetic": _is_integer,
        "bf": _is_text,
        "binary_matrix": _is_matrix,
        "calendar_arithmetic": _is_calendar_answer,
        "chain_sum": _is_integer,
        "decimal_arithmetic": _is_decimal,
        "fraction_simplification": _is_simplified_fraction,
        "interop_largest": _is_integer,
        "interop_reverse": _is_text,
        "interop_sum": _is_integer,
        "leg_counting": _is_integer,
        "products": _is_integer,
        "propositional_logic": follows_from_premises,
        "spell_backward": _is_text_in_any_case,
    }
)

DATASETS = frozenset(_SCORERS) - interop.DATASETS
"""The allow-list of reasoning-gym: its datasets that a manifest may name. Each rebuilds identically everywhere."""
