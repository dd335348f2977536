"""Which tokens of an external completion to train on, in plain Python: for any tokenizer and without torch.

The two filters are those of `sapo_node.learner.filters`, which computes them on tensors. A test compares them.
"""

import math
from collections.abc import Collection, Sequence

from sapo_node.groups.answer import ANSWER_END, answer_span
from sapo_node.groups.bounds import Bounds
from sapo_node.groups.messages import FOLLOWS, FilterName

Span = tuple[int, int]


def is_kept(
    text: str,
    masked: Sequence[Span],
    offsets: Sequence[Span],
    logprobs: Sequence[float],
    filters: Collection[FilterName],
    *,
    bounds: Bounds,
) -> list[bool]:
    """Return for each token of a correct completion whether it is trained on.

    A token is not if it overlaps a masked span. `answer-likelihood` rejects all tokens if the probability of the answer
    is below FOLLOWS. `min-token-prob` rejects all tokens if those before the answer are below the bounds. `length`
    rejects all tokens if there are more than `bounds` allow, without the end.
    """
    answer = _answer(text, offsets)
    end = (len(text), len(text))
    if bounds.tokens is not None and sum(token != end for token in offsets) > bounds.tokens:
        return [False] * len(offsets)
    if "answer-likelihood" in filters and sum(logprobs[place] for place in answer) < math.log(FOLLOWS):
        return [False] * len(offsets)
    if "min-token-prob" in filters:
        work = [logprobs[place] for place, token in enumerate(offsets) if place not in answer and token != end]
        if min(work, default=0.0) < bounds.token or sum(work) < bounds.text:
            return [False] * len(offsets)
    return [not _overlaps(token, masked) for token in offsets]


def _answer(text: str, offsets: Sequence[Span]) -> frozenset[int]:
    """The places of the tokens of the answer and of the text after it, without the tags. An end has no text."""
    if (span := answer_span(text)) is None:
        return frozenset()
    others = [(0, span[0]), (span[1], span[1] + len(ANSWER_END))]
    return frozenset(
        place for place, token in enumerate(offsets) if token[0] < token[1] and not _overlaps(token, others)
    )


def _overlaps(token: Span, spans: Sequence[Span]) -> bool:
    return any(token[0] < last and first < token[1] for first, last in spans)
