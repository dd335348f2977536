"""Finds the answer in a completion: the text between the last closing tag and the opening tag before it (ANS-1)."""

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
