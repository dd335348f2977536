"""The bounds of the filter `min-token-prob` on a correct completion of others."""

import math
from dataclasses import dataclass

MIN_TOKEN_PROB = 1e-3
"""Least probability of each token before the answer, where this policy writes no less probable ones itself."""
MIN_TEXT_PROB = 1e-9
"""Least probability of all tokens before the answer together, where this policy writes no less probable texts itself.
However a tokenizer cuts a text, a policy gives the text about the same probability."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least log-probabilities that this policy must give to the text before the answer."""

    token: float = math.log(MIN_TOKEN_PROB)
    """Of each token."""
    text: float = math.log(MIN_TEXT_PROB)
    """Of all tokens together."""
