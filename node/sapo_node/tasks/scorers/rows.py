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

_DECIMAL = re.compile(r"([+-]?)([0-9]{0,100})(?:\.([0-9]{0,100}))?", re.ASCII)
_DENOMINATOR = re.compile(r"(?=0*[1-9])[0-9]{1,100}", re.ASCII)
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?", re.ASCII)
_LABELLED = re.compile(r"\(?([A-Za-z])[).:] (.+)", re.ASCII | re.DOTALL)
"""A letter, and behind it the text of its choice."""


def is_number(task: Task, answer: str) -> bool:
    """Return whether the answer has the value of the reference: a whole number, a decimal or a fraction of whole
    numbers. A dollar sign may stand before it (ROW-6).
    """
    expected = _value(task.answer)
    return expected is not None and _value(answer) == expected


def _value(text: str) -> Fraction | None:
    above, slash, below = text.removeprefix("$").partition("/")
    match = _DECIMAL.fullmatch(plain_number(above))
    if match is None:
        return None
    sign, whole, decimals = match.groups()
    digits = whole + (decimals or "")
    if not digits or (slash and (decimals is not None or not _DENOMINATOR.fullmatch(below))):
        return None
    return Fraction(int(sign + digits), int(below or 10 ** len(decimals or "")))


def is_choice(task: Task, answer: str) -> bool:
    """Return whether the answer is the letter of the correct choice, or its text in any case, or both (ROW-7)."""
    choices = task.metadata["choices"]
    letter = _LETTER.fullmatch(answer)
    if letter and letter[1].upper() in ascii_uppercase[: len(choices)]:
        return letter[1].upper() == task.answer
    texts = [answer]
    if (labelled := _LABELLED.fullmatch(answer)) and labelled[1].upper() == task.answer:
        texts.append(labelled[2])
    correct = str(choices[ascii_uppercase.index(task.answer)])
    return in_lower_case(correct) in map(in_lower_case, texts)


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
