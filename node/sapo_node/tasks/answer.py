"""Finds the answer of a completion: the text from its last opening tag to the first closing tag behind that."""

import re

from sapo_node.tasks.wrappers import BLANKS

ANSWER_BEGIN, ANSWER_END = "<answer>", "</answer>"
THINK, THOUGHT = "<think>", "</think>"
"""Tags around the thinking of a model."""
_STOP = re.compile(f"{THINK}|{THOUGHT}|{ANSWER_END}")

_TAG = re.compile(r"(</?answer[ \t\r\n]*>)", re.ASCII | re.IGNORECASE)
"""An answer tag as models write it: in any case, with blanks before its end."""


def answer_span(completion: str) -> tuple[int, int] | None:
    """Return the first character of the answer and the one after its last, blanks included; None if there is none.

    The answer stands between the last opening tag that a closing tag follows, and the first of these closing tags.
    """
    pieces = _TAG.split(completion)  # text, tag, text, tag ... text
    for place in range(len(pieces) - 3, 0, -2):
        if not pieces[place - 1].startswith("</") and pieces[place + 1].startswith("</"):
            begin = sum(map(len, pieces[:place]))
            return begin, begin + len(pieces[place])
    return None


def answer_end(completion: str, *, thinks: bool = False) -> int | None:
    """Return the character after the first closing tag of an answer outside thinking, where sampling ends. None if
    there is none: while it thinks, a model may only name the tags. `thinks` says that the prompt began to think.
    """
    for tag in _STOP.finditer(completion):
        if tag[0] != ANSWER_END:
            thinks = tag[0] == THINK
        elif not thinks:
            return tag.end()
    return None


MAX_COMPLETION = 65_536
"""Characters of a completion, at most. A longer completion has no answer."""


def extract_answer(completion: str) -> str | None:
    """Return the text of the answer without blanks at its ends; None if there is no answer."""
    if len(completion) > MAX_COMPLETION:
        return None
    span = answer_span(completion)
    return completion[slice(*span)].strip(BLANKS) if span else None
