"""Takes off the wrappers in which people and models write an answer, and the separators in which they write numbers.

`stages` yields an answer as it is, then what is left after each wrapper. `score` asks the dataset's scorer about every
stage and keeps the best verdict, so a dataset whose own answers hold quotes or brackets loses nothing. The rules are
ANS-4 and ANS-2 (spec/verification.md).

Trying several stages does not make an incorrect answer correct. A wrapper is one of the fixed texts below, at the ends
of the answer; it holds no digit and no word that answers a prompt. So all stages of an answer hold the same value. Who
writes two values, as in `12 or 13`, has both in every stage, and a scorer compares the whole stage.

Every function here is linear in the length of its text, never raises, and depends on the characters alone.
"""

import re
from collections.abc import Iterator

MAX_WRAPPERS = 4
"""Wrappers that are taken off one answer, at most."""

BLANKS = " \t\r\n"

_FENCE = "```"
_LANGUAGES = frozenset({"bash", "json", "latex", "markdown", "math", "plaintext", "python", "text", "txt"})
"""Words that may stand alone on the first line inside a fence. Any other word belongs to the answer."""

_PAIRS = (
    *((mark, mark) for mark in (_FENCE, "`", "**", "__", "*", "_", "$$", "$")),
    *((r"\(", r"\)"), (r"\[", r"\]"), (r"\boxed{", "}"), (r"\text{", "}")),
    *((rf"\{command}{{", "}") for command in ("textbf", "mathbf", "mathrm")),
    *(('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u201e", "\u201c"), ("\u00ab", "\u00bb")),
)
"""The beginning and the end of each wrapper, in the order of trying: a longer mark before its half."""

_PHRASE = "(?:the )?(?:final |correct )?answer"
_LEAD = re.compile(
    rf"=|{_PHRASE} is(?=[ \n:]):?|{_PHRASE}:|\*\*{_PHRASE}(?: is)?(?::\*\*|\*\*:)", re.ASCII | re.IGNORECASE
)
"""Texts before an answer: an equals sign, or "the answer is", "answer:" or "**Answer:**" and their like."""


def stages(answer: str) -> Iterator[str]:
    """Yield the answer, and what is left of it after each of its outer wrappers; five texts at most, none empty."""
    yield answer
    for _ in range(MAX_WRAPPERS):
        answer = _unwrapped(answer)
        if not answer:
            return
        yield answer


def _unwrapped(text: str) -> str:
    """Return the text without its outermost wrapper and the blanks inside; empty if it has no wrapper."""
    if lead := _LEAD.match(text):
        return text[lead.end() :].strip(BLANKS)
    for begin, end in _PAIRS:
        if len(text) > len(begin) + len(end) and text.startswith(begin) and text.endswith(end):
            inner = text[len(begin) : -len(end)]
            return (_without_language(inner) if begin == _FENCE else inner).strip(BLANKS)
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1].strip(BLANKS)
    return ""


def _without_language(text: str) -> str:
    first, line_feed, rest = text.partition("\n")
    named = first.isascii() and first.strip(BLANKS).lower() in _LANGUAGES
    return rest if line_feed and named else text


_NUMBER = re.compile(
    r"([+\-\u2212]?) ?"
    r"([0-9]*|[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+|(?:\{,\}[0-9]{3})+))"
    r"((?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)",
    re.ASCII,
)
_SEPARATORS = str.maketrans("", "", ", {}")


def plain_number(text: str) -> str:
    """Return a number in ASCII, without the blank behind its sign and without separators between groups of three
    digits. Any other text is returned as it is.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    sign, whole, rest = match.groups()
    return sign.replace("\u2212", "-") + whole.translate(_SEPARATORS) + rest
