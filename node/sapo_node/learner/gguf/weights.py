"""Converts the tensors of a GGUF file, and writes them as one file of safetensors, tensor by tensor.

A tensor in float32, float16 or bfloat16 keeps its values. A quantised tensor becomes float16: its rounding error is far
smaller than that of the quantisation.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from sapo_node.learner.gguf.reader import GgufError, Header, Tensor

_SAME: Mapping[Kind, tuple[str, Any]] = {
    Kind.F32: ("F32", np.float32),
    Kind.F16: ("F16", np.float16),
    Kind.BF16: ("BF16", np.uint16),  # numpy has no bfloat16; nothing here computes with the values
}
"""Format of a tensor that keeps its values -> its name in safetensors, and a type of numpy of this size."""
_QUANTISED = ("F16", np.float16)


def write_weights(header: Header, names: Mapping[str, str], heads: Mapping[str, int], path: Path) -> None:
    """Write the tensors of a file to `path`, under the names that `names` gives. Raises GgufError or OSError.

    `heads` has the number of heads of each tensor whose rows the file holds in another order; see `_in_halves`.
    """
    # The format asks for an offset that a number's size divides, so the larger numbers come first.
    ordered = sorted(map(header.tensors.__getitem__, names), key=lambda each: each.kind != Kind.F32)
    data = np.memmap(header.path, mode="r")
    with path.open("wb") as file:
        file.write(_contents(ordered, names))
        for tensor in ordered:
            values = _converted(data, tensor)
            if tensor.name in heads:
                values = _in_halves(tensor.name, values, heads[tensor.name])
            file.write(values.tobytes())


def _contents(tensors: list[Tensor], names: Mapping[str, str]) -> bytes:
    """Return the head of a file of safetensors: the size of a JSON object, and the object."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        name, kind = _SAME.get(tensor.kind, _QUANTISED)
        begin, end = end, end + math.prod(tensor.shape) * np.dtype(kind).itemsize
        described[names[tensor.name]] = {"dtype": name, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _converted(data: Any, tensor: Tensor) -> Any:
    """Return the values of a tensor."""
    raw = data[tensor.offset : tensor.offset + tensor.size]
    if tensor.kind in _SAME:
        return raw.view(_SAME[tensor.kind][1]).reshape(tensor.shape)
    try:
        values = dequantize(raw.reshape(*tensor.shape[:-1], -1), tensor.kind)
    except NotImplementedError as error:
        raise GgufError(f"the installed gguf cannot convert the format {tensor.kind.name}") from error
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise GgufError(f"the tensor {tensor.name!r} has values beyond float16")
    return half


def _in_halves(name: str, values: Any, heads: int) -> Any:
    """Return the rows of a projection to queries or keys in the order of transformers.

    The rotation pairs row i of a head with row i + half in transformers. llama.cpp writes the two side by side.
    """
    if values.shape[0] % (2 * heads):
        raise GgufError(f"the {values.shape[0]} rows of {name!r} are not pairs of rows for {heads} heads")
    return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
