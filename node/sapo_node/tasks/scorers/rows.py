"""Scores answers to rows of a file, by the kind of answer that the manifest names."""

import re
from collections.abc import Mapping
from fractions import Fraction
from string import ascii_uppercase
from types import MappingProxyType

from sapo_node.tasks.mathematics import equal
from sapo_node.tasks.rows import in_lower_case
from sapo_node.tasks.scorers.words import is_text
from sapo_node.tasks.task import Scorer, Task
from sapo_node.tasks.wrappers import plain_number
from sapo_protocol import AnswerKind

_NUMBER = re.compile(r"([+-]?)([0-9]{0,100})(?:\.([0-9]{0,100}))?(?:/([0-9]{1,100}))?", re.ASCII)
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?", re.ASCII)


def is_number(task: Task, answer: str) -> bool:
    """Return whether the answer has the value of the reference: a whole number, a decimal or a fraction of whole
    numbers. A dollar sign may stand before it.
    """
    expected = _value(task.answer)
    return expected is not None and _value(answer) == expected


def _value(text: str) -> Fraction | None:
    match = _NUMBER.fullmatch(plain_number(text.removeprefix("$")))
    if match is None:
        return None
    sign, whole, decimals, denominator = match.groups(default="")
    digits = whole + decimals
    if not digits or (denominator and (decimals or int(denominator) == 0)):
        return None
    return Fraction(int(sign + digits), int(denominator or 10 ** len(decimals)))


def is_choice(task: Task, answer: str) -> bool:
    """Return whether the answer is the letter of the correct choice, or its text in any case, or both."""
    correct = str(task.metadata["choices"][ascii_uppercase.index(task.answer)])
    if letter := _LETTER.fullmatch(answer):
        return letter[1].upper() == task.answer
    texts = (correct, *(f"{task.answer}{mark} {correct}" for mark in (".", ")", ":")))
    return in_lower_case(answer) in map(in_lower_case, texts)


def is_math(task: Task, answer: str) -> bool:
    """Return whether the answer states the same mathematical object as the reference: see `mathematics.equal`."""
    return equal(task.answer, answer)


ROW_SCORERS: Mapping[AnswerKind, Scorer] = MappingProxyType(
    {
        AnswerKind.EXACT: is_text,
        AnswerKind.NUMBER: is_number,
        AnswerKind.CHOICE: is_choice,
        AnswerKind.MATH: is_math,
    }
)
