"""Scorers of numbers, words and matrices: they decide whether an answer is correct.

Rules:
- Every text gets a result within milliseconds.
- They see an answer without its wrappers (`forms.stages`), and compare all of it.
- Scorers compare text, and parse it with small linear grammars of ASCII digits. They never evaluate it.
- They never call reasoning-gym's scorers: nine of those execute the answer, and most reward incorrect answers.
"""

import re
from decimal import Context, Decimal
from fractions import Fraction
from math import gcd

from sapo_node.tasks.forms import BLANKS, plain_number
from sapo_node.tasks.task import Task, Verdict


def is_text(task: Task, answer: str) -> bool:
    """Return whether the answer is exactly the reference, but for blanks at its ends."""
    return answer == task.answer.strip(BLANKS)


def is_text_in_any_case(task: Task, answer: str) -> bool:
    return answer.isascii() and answer.lower() == task.answer.strip(BLANKS).lower()


def letters_in_place(task: Task, answer: str) -> Verdict:
    """Return the share of letters that stand where the reference has them, of those of the longer text, in any case."""
    given, expected = answer.lower(), task.answer.strip(BLANKS).lower()
    if not answer.isascii() or not given:
        return False
    return Fraction(sum(map(str.__eq__, given, expected)), max(len(given), len(expected)))


def is_integer(task: Task, answer: str) -> bool:
    """Return whether the answer is the same whole number: `1234`, `+1,234`, `1 234.00`, in decimal ASCII digits."""
    expected = _integer(task.answer)
    return expected is not None and _integer(answer) == expected


_INTEGER = re.compile(r"([+-]?[0-9]{1,1000})(?:\.0*)?", re.ASCII)


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(plain_number(text))
    return int(match[1]) if match else None


_PART = r"(?:\{ ?([0-9]{1,100}) ?\}|([0-9]))"
_FRACTIONS = (
    re.compile(r"([0-9]{1,100})(?: ?/ ?([0-9]{1,100}))?", re.ASCII),
    re.compile(rf"\\[dt]?frac ?{_PART} ?{_PART}", re.ASCII),
)
_MAX_SIDES = 4


def is_simplified_fraction(task: Task, answer: str) -> bool:
    """Return whether the answer is the same fraction in lowest terms: `3/4`, LaTeX frac, dfrac, tfrac, or `3` for 3/1.

    It may be an equation such as `9/12 = 3/4`, of at most four sides. Then every side must be the same fraction, and
    the last in lowest terms.
    """
    expected = _fraction(task.answer.strip("$ "))
    sides = [_fraction(side.strip(BLANKS)) for side in answer.split("=", _MAX_SIDES)]
    last = sides[-1]
    if expected is None or last is None or len(sides) > _MAX_SIDES or gcd(*last) != 1:
        return False
    return all(side and side[0] * expected[1] == side[1] * expected[0] for side in sides)


def _fraction(text: str) -> tuple[int, int] | None:
    """Return numerator and denominator as written; None if the text is no fraction or the denominator is 0."""
    for style in _FRACTIONS:
        if match := style.fullmatch(text.removeprefix("+")):
            numerator, denominator = (int(part) for part in (*filter(None, match.groups()), "1")[:2])
            return (numerator, denominator) if denominator else None
    return None


def is_calendar_answer(task: Task, answer: str) -> bool:
    """Return whether the answer is the same whole number, or the same weekday, yes or no in any case."""
    if _integer(task.answer) is not None:
        return is_integer(task, answer)
    return is_text_in_any_case(task, answer)


_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SIGNIFICANT = re.compile(r"to a maximum of ([0-9]{1,3}) significant digits", re.ASCII)
_EXACTLY = Context(prec=2_500)


def is_decimal(task: Task, answer: str) -> bool:
    """Return whether the answer differs from the reference by at most one unit of the last significant digit.

    The prompt says how many digits are significant. The dataset rounds its reference after every step, so the exact
    result, rounded once, may differ by this unit. It differs by more where a difference of close numbers loses digits:
    then the exact result earns nothing (docs/trust/limits.md has how often). reasoning-gym's scorer allows an absolute
    error of 10^-places instead: less than the precision of a large reference, and a tenth of a small one.
    """
    written = plain_number(answer)
    if not (_DECIMAL.fullmatch(written) and _DECIMAL.fullmatch(task.answer)):
        return False
    expected, given = Decimal(task.answer), Decimal(written)
    digits = _SIGNIFICANT.search(task.prompt)
    if digits is None or not expected:
        return given == expected
    unit = Decimal(1).scaleb(expected.adjusted() - int(digits[1]) + 1, _EXACTLY)
    return _EXACTLY.abs(_EXACTLY.subtract(given, expected)) <= unit


def is_row(task: Task, answer: str) -> bool:
    """Return whether the answer has the same cells. Blanks or commas separate them; brackets may surround them."""
    if answer.startswith("[") and answer.endswith("]"):
        answer = answer[1:-1]
    return answer.replace(",", " ").split() == task.answer.split()


_ROWS = re.compile(r"(\[[0-9, ]*\])(?:[,\s]*\[[0-9, ]*\])*", re.ASCII)


def is_matrix(task: Task, answer: str) -> bool:
    """Return whether the answer is the same matrix of whole numbers.

    A row stands on a line or in brackets. Blanks or commas separate cells. Lines without cells do not count.
    """
    return _matrix(answer) == _matrix(task.answer)


def _matrix(text: str) -> list[list[str]] | None:
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip(BLANKS + ",")
        body = inner if inner.startswith("[") else text
        if not _ROWS.fullmatch(body):
            return None
        lines = re.findall(r"\[([0-9, ]*)\]", body)
    else:
        lines = text.split("\n")
    rows = [line.replace(",", " ").split() for line in lines]
    return [[cell.lstrip("0") or "0" for cell in row] for row in rows if row]
