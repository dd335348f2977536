"""Converts typed values to plain JSON and back with msgspec. Pipes, storage and the feed use this form.

- A frozen dataclass or a `msgspec.Struct` is an object with one key for each field. `from_json` takes the default for a
  missing field. `to_json` writes every field, so that a later version can change a default.
- No type is converted, except that a whole number is also a `float`.
- A number lies in the range that its type names, as `Count` does. A plain `float` may be NaN.
- A `Record` also refuses unknown keys, so that a misspelt field never passes as a default.

    tokens: Count = 0                           a field names its range
    body = to_json(TrainRequest(7, groups))
    request = from_json(TrainRequest, body)

A tensor in float32 holds each number in these ranges, so sums, means and squares of many of them are finite. SQLite
holds each whole number.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from sapo_protocol.errors import LocalError

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


T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the messages that programs outside of this package write."""


class MalformedError(LocalError, ValueError):
    """A JSON value has the wrong type. As any ValueError in a stored row, it says that the state is damaged."""


def to_json(value: Any) -> Any:
    """Return `value` as plain JSON. Keys of a mapping that are whole numbers become decimal text."""
    return msgspec.to_builtins(value, str_keys=True)


def from_json(kind: type[T], body: Any) -> T:
    """Return the value of type `kind` that `body` encodes.

    Raises MalformedError with the path to the first value of a wrong type. A LocalError of the type's own checks passes
    through.
    """
    try:
        return msgspec.convert(body, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise MalformedError(f"{kind.__name__}: {error}") from None


def to_object(value: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object that `from_json` reads. Raises MalformedError for a number out of range."""
    body: dict[str, Any] = to_json(value)
    from_json(type(value), body)
    return body
