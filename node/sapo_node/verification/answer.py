"""Where a completion answers: between the last closing tag and the last opening tag before it (ANS-1)."""

ANSWER_BEGIN, ANSWER_END = "<answer>", "</answer>"


def answer_span(completion: str) -> tuple[int, int] | None:
    """Return from which character to which the answer stands, with the blanks at its ends; None where there is none."""
    end = completion.rfind(ANSWER_END)
    begin = completion.rfind(ANSWER_BEGIN, 0, max(end, 0))
    return None if begin < 0 else (begin + len(ANSWER_BEGIN), end)
