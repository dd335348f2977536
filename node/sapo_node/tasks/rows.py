"""Rows of a file as tasks: the form of a row, the split into assigned and held-out rows, and the row of a seed.

The rules are ROW-2 to ROW-5 (spec/verification.md).

A file is JSON Lines. A row is `{"prompt": text, "answer": text}`. A question with choices also has
`"choices": [texts]`. `parse_row` reads a row as an operator writes it: with other keys, with blanks at the ends of a
text, and with a choice as a letter, an index from 0 or a text. `normal_line` writes a row in its only form, so that
files with the same rows have the same SHA-256. `normal_row` reads this form alone, so that no two programs can read
other rows in a file of a swarm.

- The split depends on the prompts alone. A held-out row stays held out if the file gets more rows.
- An assigned seed draws an assigned row. A held-out seed draws a held-out row, and the seed of a worked example draws
  an example row. No row is of two kinds.
- An assigned seed also shuffles the choices.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sapo_node.tasks.task import FIRST_EXAMPLE_SEED, Task, TaskError
from sapo_node.tasks.wrappers import BLANKS
from sapo_protocol import ASSIGNED_SEEDS, AnswerKind
from sapo_protocol.cbor import encode

ROW_DOMAIN, SPLIT_DOMAIN = "sapo/row/2", "sapo/split/2"

MAX_LINE = 1 << 18
"""Bytes of a line, at most."""
MAX_TEXT = 16_384
"""Characters of a prompt and of all its choices, at most."""
MAX_REFERENCE = 1_024
"""Characters of a reference answer, at most."""
MAX_CHOICES = 10

_HELD_OUT, _EXAMPLES = 16, 64
"""One of 64 rows is for worked examples. Three more of each 64 are held out, so together one of 16."""

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class RowError(ValueError):
    """A line is no row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row."""

    prompt: str
    answer: str
    """The reference answer. With choices, the letter of the correct one."""
    choices: tuple[str, ...] = ()


def parse_row(line: bytes) -> Row:
    """Return the row in a line, without blanks at the ends of its texts. Raises RowError."""
    if len(line) > MAX_LINE:
        raise RowError(f"it has more than {MAX_LINE} bytes")
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RowError("it is not JSON") from error
    if not isinstance(value, dict):
        raise RowError("it is not an object")
    prompt, choices = _text(value, "prompt"), _choices(value.get("choices"))
    if len(prompt) + sum(map(len, choices)) > MAX_TEXT:
        raise RowError(f"its prompt has more than {MAX_TEXT} characters")
    if choices:
        return Row(prompt, _letter(value.get("answer"), choices), choices)
    answer = _text(value, "answer")
    if len(answer) > MAX_REFERENCE:
        raise RowError(f"its answer has more than {MAX_REFERENCE} characters")
    return Row(prompt, answer)


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise RowError(f"its {key} is not text")
    return _clean(found, key)


def _clean(text: str, what: str) -> str:
    text = text.replace("\r\n", "\n").strip(BLANKS)
    if not text:
        raise RowError(f"its {what} is empty")
    if _CONTROL.search(text):
        raise RowError(f"its {what} has a control character")
    return text


def _choices(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise RowError("its choices are not a list of texts")
    choices = tuple(_clean(each, "choice") for each in value)
    if not 2 <= len(choices) <= MAX_CHOICES:
        raise RowError(f"it has {len(choices)} choices; give 2 to {MAX_CHOICES}")
    if len({in_lower_case(each) for each in choices}) < len(choices):
        raise RowError("two of its choices are the same")
    return choices


def in_lower_case(text: str) -> str:
    """Return a text with small letters for A to Z. `str.lower` depends on the tables of this version of Python."""
    return text.translate(_LOWER)


def _letter(answer: object, choices: Sequence[str]) -> str:
    letters = ascii_uppercase[: len(choices)]
    if type(answer) is int and 0 <= answer < len(choices):
        return letters[answer]
    if isinstance(answer, str):
        answer = answer.strip(BLANKS)
        for letter in letters:
            if in_lower_case(answer) == in_lower_case(letter):
                return letter
        if answer in choices:
            return letters[choices.index(answer)]
    raise RowError("its answer is none of its choices")


def normal_line(row: Row) -> bytes:
    """Return the line of a row, with its line feed."""
    value: dict[str, Any] = {"answer": row.answer, "prompt": row.prompt}
    if row.choices:
        value["choices"] = row.choices
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def normal_row(line: bytes) -> Row:
    """Return the row in a line that has the form of `normal_line` (ROW-2). Raises RowError."""
    row = parse_row(line)
    if normal_line(row) != line:
        raise RowError("it is not in the normal form, which `sapo-node task file` writes")
    return row


@dataclass(frozen=True, slots=True)
class Split:
    """The numbers of the rows of each kind."""

    assigned: Sequence[int]
    held_out: Sequence[int]
    examples: Sequence[int]

    def draw(self, file: str, seed: int) -> int:
        """Return the number of the row that a seed draws from the file with this SHA-256 in hexadecimal (ROW-4)."""
        rows = self._rows_for(seed)
        return rows[_number(ROW_DOMAIN, file, seed) % len(rows)]

    def _rows_for(self, seed: int) -> Sequence[int]:
        if seed < ASSIGNED_SEEDS:
            return self.assigned
        return self.held_out if seed < FIRST_EXAMPLE_SEED else self.examples


def split_mark(prompt: str) -> int:
    """Return the number by which the split places a prompt."""
    return _number(SPLIT_DOMAIN, prompt)


def split(marks: Iterable[int]) -> Split:
    """Return the split of a file, given the mark of each prompt in order (ROW-3).

    Raises TaskError if the file has no row for one of the kinds.
    """
    assigned, held_out, examples = array("L"), array("L"), array("L")
    lowest: list[tuple[int, int]] = []
    for number, mark in enumerate(marks):
        kind = examples if mark % _EXAMPLES == 0 else held_out if mark % _HELD_OUT == 0 else assigned
        kind.append(number)
        if kind is assigned:
            lowest = sorted([*lowest, (mark, number)])[:2]
    # A small file may have none of a kind. Then the assigned rows with the lowest marks serve.
    for kind in (held_out, examples):
        if not kind and lowest:
            _, number = lowest.pop(0)
            assigned.remove(number)
            kind.append(number)
    if not (assigned and held_out and examples):
        raise TaskError("the prompts of this file give no row to one of: assigned, held out, examples; change them")
    return Split(assigned, held_out, examples)


def task_of(dataset: str, row: Row, answers: AnswerKind, seed: int) -> Task:
    """Return a row as a task (ROW-5). Choices stand below the prompt. An assigned seed shuffles them; all other seeds
    give them one order, so that a held-out row has one prompt.
    """
    if not row.choices:
        return Task(dataset, row.prompt, row.answer, answers=answers)
    correct = row.choices[ascii_uppercase.index(row.answer)]
    drawn = min(seed, ASSIGNED_SEEDS)
    shuffled = sorted(row.choices, key=lambda choice: _digest(ROW_DOMAIN, row.prompt, drawn, choice))
    lines = "".join(f"\n{letter}. {choice}" for letter, choice in zip(ascii_uppercase, shuffled, strict=False))
    letter = ascii_uppercase[shuffled.index(correct)]
    return Task(dataset, row.prompt + lines, letter, {"choices": shuffled}, answers)


def _number(*parts: str | int) -> int:
    return int.from_bytes(_digest(*parts)[:8], "big")


def _digest(*parts: str | int) -> bytes:
    return hashlib.sha256(encode(list(parts))).digest()
