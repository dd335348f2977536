"""The completions of one group (spec: rollout, BODY). The header names them by the SHA-256 of these bytes."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from . import limits
from .cbor import Value, decode, encode
from .errors import Layer, RemoteError
from .manifest import Manifest


class Finish(StrEnum):
    """The end of a completion: the model stopped, or a limit cut the text."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion, decoded to text: what the policy wrote in each turn of its task."""

    turns: tuple[str, ...]
    """One text for a task of one turn, which is the usual case."""
    finish: Finish

    @property
    def text(self) -> str:
        """The texts of all turns, one after another."""
        return "".join(self.turns)


@dataclass(frozen=True, slots=True)
class Body:
    """The G completions of one group."""

    completions: tuple[Completion, ...]
    model: str = ""
    """The sender's label for its model; nothing depends on it."""


def encode_body(body: Body) -> bytes:
    """The bytes whose SHA-256 the header names."""
    completions: list[Value] = [{"finish": each.finish.value, "turns": list(each.turns)} for each in body.completions]
    value: dict[str, Value] = {"completions": completions}
    if body.model:
        value["model"] = body.model
    return encode(value)


def decode_body(data: bytes, manifest: Manifest) -> Body:
    """The body that `data` encodes. Raises RemoteError (body); charge the issuer, who signed its hash."""
    value = decode(data, limit=manifest.max_message_bytes, layer=Layer.BODY)
    table = _table(value, {"completions"}, {"model", "x"})
    entries = table["completions"]
    if not isinstance(entries, list) or len(entries) != manifest.completions:  # BODY-3
        raise RemoteError(Layer.BODY, f"a group has exactly {manifest.completions} completions in this swarm")
    model = table.get("model", "")
    if not isinstance(model, str) or len(model.encode()) > limits.MAX_MODEL_LABEL_BYTES:  # BODY-6
        raise RemoteError(Layer.BODY, f"a model label is text of at most {limits.MAX_MODEL_LABEL_BYTES} bytes")
    extension = table.get("x", {})
    if not isinstance(extension, dict) or len(encode(extension)) > limits.MAX_EXTENSION_BYTES:  # EXT-1
        raise RemoteError(Layer.BODY, f"x is a map of at most {limits.MAX_EXTENSION_BYTES} bytes")
    return Body(tuple(_completion(entry, manifest) for entry in entries), model)


def _completion(value: Value, manifest: Manifest) -> Completion:
    table = _table(value, {"finish", "turns"})
    finish = table["finish"]
    turns = [text for text in _list(table["turns"]) if isinstance(text, str)]
    if not 1 <= len(turns) <= manifest.max_turns or turns != table["turns"]:  # BODY-7
        raise RemoteError(Layer.BODY, f"a completion has 1 to {manifest.max_turns} turns, each a text")
    if sum(len(text.encode()) for text in turns) > manifest.max_completion_bytes:  # BODY-4
        raise RemoteError(Layer.BODY, f"a completion has at most {manifest.max_completion_bytes} bytes of text")
    if finish not in tuple(Finish):  # BODY-5
        raise RemoteError(Layer.BODY, "finish is neither stop nor length")
    return Completion(tuple(turns), Finish(finish))


def _list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []


def _table(value: Value, required: AbstractSet[str], optional: AbstractSet[str] = frozenset()) -> Mapping[str, Value]:
    """A map that has all required keys, and beyond them only optional ones."""
    if not isinstance(value, dict):
        raise RemoteError(Layer.BODY, "a map was expected")
    if not required <= value.keys() <= required | optional:  # EXT-2
        raise RemoteError(Layer.BODY, f"a map with keys other than {', '.join(sorted(required | optional))}")
    return value
