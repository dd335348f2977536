"""Converts typed values to plain JSON and back with msgspec. Pipes, storage and the feed use this form.

- A frozen dataclass or a `msgspec.Struct` is an object with one key for each field. `from_json` takes the default for a
  missing field. `to_json` writes every field, so that a later version can change a default.
- No type is converted, except that a whole number is also a `float`.
- A number lies in the range that its type names, as `Count` does (`ranges`). A plain `float` may be NaN.
- A `Record` also refuses keys that it lacks, so that a misspelt field never passes as a default.

    body = to_json(TrainRequest(7, groups))
    request = from_json(TrainRequest, body)
"""

from typing import Any, TypeVar

import msgspec

from sapo_protocol.errors import LocalError

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
