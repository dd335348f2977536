# ruff: noqa: RUF001 - the signs of the dataset's notation
"""Rules that answer a prompt without solving it: they copy a part of it, or decide by its length or its last number."""

import re
from collections.abc import Iterator

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:/\d+)?")
_WHOLE = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]+")
_PLACES = 6
"""Numbers, words and lines that are copied, counted from each end of the prompt."""
_LENGTHS = range(50, 401, 50)
_FACTORS = range(2, 11)
_LETTER = re.compile(r"\b[A-Z]\b")
_OPERATORS = "∧∨→↔"
_PAIRS = (("Yes", "No"), ("No", "Yes"), ("True", "False"), ("False", "True"))


def answers(prompt: str) -> dict[str, str]:
    """What each rule answers, by the name of the rule."""
    return dict([*_copies(prompt), *_of_numbers(prompt), *_decisions(prompt), *_of_letters(prompt)])


def _copies(prompt: str) -> Iterator[tuple[str, str]]:
    parts = {
        "number": _NUMBER.findall(prompt),
        "whole number": _WHOLE.findall(prompt),
        "word": _WORD.findall(prompt),
        "line": [line.strip() for line in prompt.splitlines() if line.strip()],
    }
    yield "the prompt", prompt
    yield "the longest word", max(parts["word"], key=len)
    for name, found in parts.items():
        for place in range(min(_PLACES, len(found))):
            yield f"{name} {place + 1}", found[place]
            yield f"{name} {place + 1} from the end", found[-1 - place]


def _of_numbers(prompt: str) -> Iterator[tuple[str, str]]:
    numbers = [int(each) for each in _WHOLE.findall(prompt)]
    yield "how many numbers", str(len(numbers))
    if not numbers:
        return
    yield "the largest number", str(max(numbers))
    yield "the smallest number", str(min(numbers))
    yield "the median number", str(sorted(numbers)[len(numbers) // 2])
    for name, number in {"first": numbers[0], "last": numbers[-1]}.items():
        yield f"the {name} number and 1", str(number + 1)
        yield f"the {name} number less 1", str(number - 1)
        for factor in _FACTORS:
            yield f"{factor} times the {name} number", str(factor * number)


def _decisions(prompt: str) -> Iterator[tuple[str, str]]:
    last = next(reversed(_WHOLE.findall(prompt)), "0")
    for yes, no in _PAIRS:
        yield f"{yes} for an even length", no if len(prompt) % 2 else yes
        yield f"{yes} for an even last number", no if int(last) % 2 else yes
        for length in _LENGTHS:
            yield f"{yes} above {length} characters", yes if len(prompt) > length else no


def _of_letters(prompt: str) -> Iterator[tuple[str, str]]:
    letters = sorted(set(_LETTER.findall(prompt)))
    if letters:
        for operator in _OPERATORS:
            yield f"the first letter {operator} the last", f"{letters[0]} {operator} {letters[-1]}"
