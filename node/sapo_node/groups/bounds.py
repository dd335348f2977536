"""The bounds of the filters `min-token-prob` and `length` on an external correct completion."""

import math
from dataclasses import dataclass

from sapo_node.groups.ranges import Count, LogProb, TextLogProb

MIN_TOKEN_PROB = 1e-3
"""Least probability of each token before the answer, where this policy writes no less probable ones itself."""
MIN_TEXT_PROB = 1e-9
"""Least probability of all tokens before the answer together, where this policy writes no less probable texts itself.
However a tokenizer cuts a text, a policy gives the text about the same probability."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least log-probabilities of the text before the answer under this policy, and the most tokens of the whole."""

    token: LogProb = math.log(MIN_TOKEN_PROB)
    """The least log-probability of each token."""
    text: TextLogProb = math.log(MIN_TEXT_PROB)
    """The least log-probability of all tokens together."""
    tokens: Count | None = None
    """The most tokens of the completion in this model's tokenizer, without the end; None for any number."""
