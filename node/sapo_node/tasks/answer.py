"""Finds the answer of a completion: the text between its last pair of answer tags."""

import re

ANSWER_BEGIN, ANSWER_END = "<answer>", "</answer>"
THINK, THOUGHT = "<think>", "</think>"
"""Tags around the thinking of a model."""
_TAG = re.compile(f"{THINK}|{THOUGHT}|{ANSWER_END}")


def answer_span(completion: str) -> tuple[int, int] | None:
    """Return the first character of the answer and the one after its last, blanks included; None if there is none."""
    end = completion.rfind(ANSWER_END)
    begin = completion.rfind(ANSWER_BEGIN, 0, max(end, 0))
    return None if begin < 0 else (begin + len(ANSWER_BEGIN), end)


def answer_end(completion: str, *, thinks: bool = False) -> int | None:
    """Return the character after the first closing tag of an answer outside thinking, where sampling ends. None if
    there is none: while it thinks, a model may only name the tags. `thinks` says that the prompt began to think.
    """
    for tag in _TAG.finditer(completion):
        if tag[0] != ANSWER_END:
            thinks = tag[0] == THINK
        elif not thinks:
            return tag.end()
    return None


_BLANK = " \t\r\n"

MAX_COMPLETION = 65_536
"""Characters of a completion, at most. A longer completion has no answer."""


def extract_answer(completion: str) -> str | None:
    """Return the text of the answer without blanks at its ends; None if there is no answer."""
    if len(completion) > MAX_COMPLETION:
        return None
    span = answer_span(completion)
    return completion[slice(*span)].strip(_BLANK) if span else None
