"""Scores durations by value: days, hours, minutes and seconds, as clock time or with units."""

import re

from sapo_node.tasks.scorers.notation import with_ascii_minus
from sapo_node.tasks.task import Task

_AND = r"(?: ?,? ?(?:and )?)"
_DAYS = r"(?:(?P<days>-?[0-9]{1,7}) ?d(?:ays?)?)?"
_FORMS = (
    re.compile(
        rf"{_DAYS}{_AND}(?P<sign>-?)(?P<hours>[0-9]{{1,7}}):(?P<minutes>[0-9]{{2}})(?::(?P<seconds>[0-9]{{2}}))?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_DAYS}{_AND}(?P<sign>-?)(?:(?P<hours>[0-9]{{1,7}}) ?h(?:ours?|rs?)?)?{_AND}"
        rf"(?:(?P<minutes>[0-9]{{1,7}}) ?m(?:in(?:ute)?s?)?)?{_AND}(?:(?P<seconds>[0-9]{{1,9}}) ?s(?:ec(?:ond)?s?)?)?",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<days>-?[0-9]{1,7})"),
)
"""A day, then clock time; or numbers with their units; or a bare number, which counts days."""


def is_duration(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number of seconds.

    A minus before the days holds for the days alone, as in Python's timedelta; otherwise it holds for all.
    """
    expected = _seconds(task.answer)
    return expected is not None and _seconds(answer) == expected


def _seconds(text: str) -> int | None:
    text = with_ascii_minus(text)
    for form in _FORMS:
        if match := form.fullmatch(text):
            parts = match.groupdict()
            sign = -1 if parts.pop("sign", "") else 1
            if not any(parts.values()):
                return None
            days, hours, minutes, seconds = (
                int(parts.get(unit) or 0) for unit in ("days", "hours", "minutes", "seconds")
            )
            return days * 86_400 + sign * (hours * 3_600 + minutes * 60 + seconds)
    return None
