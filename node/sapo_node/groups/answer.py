"""Finds the answer in a completion: the text between the last closing tag and the opening tag before it (ANS-1)."""

ANSWER_BEGIN, ANSWER_END = "<answer>", "</answer>"


def answer_span(completion: str) -> tuple[int, int] | None:
    """Return the first character of the answer and the one after its last, blanks included; None if there is none."""
    end = completion.rfind(ANSWER_END)
    begin = completion.rfind(ANSWER_BEGIN, 0, max(end, 0))
    return None if begin < 0 else (begin + len(ANSWER_BEGIN), end)
