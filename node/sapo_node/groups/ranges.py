"""The ranges of the numbers in messages and stored states. `codec` refuses a number outside of its range when it reads
and when it writes.

    tokens: Count = 0                                       a field names its range

A tensor in float32 holds each number, so sums, means and squares of many of them are finite. SQLite holds each whole
number.
"""

from typing import Annotated

from msgspec import Meta

MAX_FLOAT = 3.4e38
MAX_COUNT = 2**31
MAX_TIME = 1e11
"""In the year 5138: a later time cannot be printed as a date everywhere."""
LEAST_LOGPROB = -1e6
"""The lowest log-probability of a token that is believed. The loss computes with it in float32."""

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""Tokens, steps, or the number of an item in a list."""
Total = Annotated[int, Meta(ge=0, le=2**53)]
"""A sum of counts."""
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Finite = Annotated[float, Meta(ge=-MAX_FLOAT, le=MAX_FLOAT)]
"""A loss, or another number of either sign."""
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=1e12)]
"""A sum, or seconds."""
Time = Annotated[float, Meta(ge=0, le=MAX_TIME)]
"""Unix time."""
LogProb = Annotated[float, Meta(ge=LEAST_LOGPROB, le=0)]
TextLogProb = Annotated[float, Meta(ge=MAX_COUNT * LEAST_LOGPROB, le=0)]
"""The sum of the log-probabilities of a text."""
Advantage = Annotated[float, Meta(ge=-100, le=100)]
Norm = Annotated[float, Meta(ge=0, le=MAX_FLOAT)]
Entropy = Annotated[float, Meta(ge=0, le=64)]
"""In nats for each token: at most the logarithm of the size of the vocabulary."""
LearningRate = Annotated[float, Meta(ge=0, le=1000)]
