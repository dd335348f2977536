"""The ranges of the numbers in messages and stored states. `codec` refuses a number outside of its range: a reader and
a writer refuse the same.

    tokens: Count = 0                                       a field names its range
    loss: float | None = None                               FLOAT is that of a plain `float`, INTEGER of a plain `int`

A tensor in float32 holds each number, so sums, means and squares of many of them are finite. SQLite holds each whole
number.
"""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Range:
    """The lowest and the highest number."""

    low: float
    high: float


FLOAT = Range(-3.4e38, 3.4e38)
INTEGER = Range(-(2**63), 2**63 - 1)

MAX_COUNT = 2**31
MAX_TIME = 1e11
"""In the year 5138: a later time cannot be printed as a date everywhere."""
LEAST_LOGPROB = -1e6
"""The lowest log-probability of a token that is believed. The loss computes with it in float32."""

Count = Annotated[int, Range(0, MAX_COUNT)]
"""Tokens, steps, or the number of an item in a list."""
Total = Annotated[int, Range(0, 2**53)]
"""A sum of counts."""
TokenId = Annotated[int, Range(0, 2**31 - 1)]
Share = Annotated[float, Range(0, 1)]
Amount = Annotated[float, Range(0, 1e12)]
"""A sum, or seconds."""
Time = Annotated[float, Range(0, MAX_TIME)]
"""Unix time."""
LogProb = Annotated[float, Range(LEAST_LOGPROB, 0)]
TextLogProb = Annotated[float, Range(MAX_COUNT * LEAST_LOGPROB, 0)]
"""The sum of the log-probabilities of a text."""
Advantage = Annotated[float, Range(-100, 100)]
Norm = Annotated[float, Range(0, FLOAT.high)]
Entropy = Annotated[float, Range(0, 64)]
"""In nats for each token: at most the logarithm of the size of the vocabulary."""
LearningRate = Annotated[float, Range(0, 1000)]
