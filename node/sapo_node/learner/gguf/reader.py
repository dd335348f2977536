"""Reads the header of a GGUF file: its metadata, and where each tensor lies.

A GGUF file is untrusted data. Every count and every length is checked against a limit and against the bytes that are
there, before anything of that size is made. Every error of a file is a GgufError.
"""

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from sapo_protocol.errors import LocalError
from sapo_protocol.files import open_regular

MAX_HEADER_BYTES = 64 * 2**20
"""Bytes before the tensors, at most. The vocabularies in wide use take up to 12 MB there."""
MAX_FIELDS = 1024
"""Entries of metadata, at most."""
MAX_TENSORS = 2**14
"""Tensors, at most. A Llama of 126 layers has 1,137."""
MAX_ITEMS = 2**20
"""Items of a list in the metadata, at most. The largest vocabulary in wide use has 262,144 tokens."""
MAX_DIMENSIONS = 4

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
"""Bytes to which tensors are aligned, unless `general.alignment` says otherwise."""
_MAX_ALIGNMENT = 4096
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value in the file -> its letter in `struct`."""
_TEXT, _LIST = 8, 9


class GgufError(LocalError):
    """The file is no GGUF file that the node can convert."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies in the file, and in which format."""

    name: str
    shape: tuple[int, ...]
    """Sizes, the slowest dimension first, as torch has them."""
    kind: GGMLQuantizationType
    offset: int
    """Bytes from the start of the file."""
    size: int
    """Bytes in the file."""


@dataclass(frozen=True, slots=True)
class Header:
    """Everything in a GGUF file except the contents of the tensors."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Return a value of the metadata, or `default` if there is none. Raises GgufError if it is no `kind`."""
        value = self.metadata.get(key, default)
        if value is not None and type(value) is not kind:
            raise GgufError(f"the metadata {key} is no {kind.__name__}")
        return value

    def require(self, key: str, kind: type) -> Any:
        """Return a value of the metadata. Raises GgufError if it is missing or no `kind`."""
        if (value := self.get(key, kind)) is None:
            raise GgufError(f"the metadata {key} is missing")
        return value


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file. Raises GgufError."""
    try:
        with open_regular(path, "GGUF file") as file:
            size = os.fstat(file.fileno()).st_size
            cursor = _Cursor(file.read(MAX_HEADER_BYTES))
        return _parsed(path, cursor, size)
    except OSError as error:
        raise GgufError(f"it cannot be read: {error.strerror}") from error
    except struct.error as error:
        raise GgufError("it ends too early; copy it again") from error
    except UnicodeDecodeError as error:
        raise GgufError("a text in it is not UTF-8") from error


def _parsed(path: Path, cursor: "_Cursor", size: int) -> Header:
    if cursor.raw(4) != _MAGIC:
        raise GgufError("it does not begin with GGUF, so it is no GGUF file")
    if (version := cursor.number("I")) not in _VERSIONS:
        raise GgufError(f"it has version {version} of the format; the node reads version 2 and 3, little-endian")
    tensor_count = _limited("tensors", cursor.number("Q"), MAX_TENSORS)
    field_count = _limited("entries of metadata", cursor.number("Q"), MAX_FIELDS)
    metadata: dict[str, Any] = {}
    for _ in range(field_count):
        key = cursor.text()
        metadata[key] = cursor.value()
    entries = [(cursor.text(), cursor.shape(), cursor.number("I"), cursor.number("Q")) for _ in range(tensor_count)]
    start = _aligned(cursor.at, metadata.get("general.alignment", _ALIGNMENT))
    tensors = [_tensor(name, shape, kind, start + offset, size) for name, shape, kind, offset in entries]
    by_name = {tensor.name: tensor for tensor in tensors}
    if len(by_name) < len(tensors):
        raise GgufError("two of its tensors have the same name")
    return Header(path, metadata, by_name)


def _tensor(name: str, shape: tuple[int, ...], number: int, offset: int, file_size: int) -> Tensor:
    try:
        kind = GGMLQuantizationType(number)
        in_block, block_size = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise GgufError(f"the tensor {name!r} has format {number}, which the installed gguf does not know") from error
    if not shape or shape[-1] % in_block:
        raise GgufError(f"the tensor {name!r} has no whole blocks of {kind.name}")
    size = math.prod(shape) // in_block * block_size
    if offset + size > file_size:
        raise GgufError(f"the tensor {name!r} of {size} bytes ends beyond the end of the file; copy the file again")
    return Tensor(name, shape, kind, offset, size)


def _aligned(at: int, alignment: object) -> int:
    if not isinstance(alignment, int) or not 0 < alignment <= _MAX_ALIGNMENT:
        raise GgufError(f"it aligns tensors to {alignment!r} bytes")
    return -(-at // alignment) * alignment


def _limited(what: str, count: int, limit: int) -> int:
    if count > limit:
        raise GgufError(f"it claims {count} {what}, over the limit of {limit}")
    return count


class _Cursor:
    """Reads the values of a header one after the other. Raises struct.error where the bytes end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def number(self, letter: str) -> Any:
        return self.numbers(letter, 1)[0]

    def numbers(self, letter: str, count: int) -> tuple[Any, ...]:
        form = f"<{count}{letter}"
        found = struct.unpack_from(form, self._data, self.at)
        self.at += struct.calcsize(form)
        return found

    def raw(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise struct.error
        self.at += size
        return self._data[self.at - size : self.at]

    def text(self) -> str:
        return self.raw(self.number("Q")).decode("utf-8")

    def shape(self) -> tuple[int, ...]:
        count = _limited("dimensions of a tensor", self.number("I"), MAX_DIMENSIONS)
        return tuple(reversed(self.numbers("Q", count)))

    def value(self) -> Any:
        kind = self.number("I")
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            return self.number(_letter(kind))
        kind = self.number("I")
        count = _limited("items in a list", self.number("Q"), MAX_ITEMS)
        if kind == _TEXT:
            return [self.text() for _ in range(count)]
        return list(self.numbers(_letter(kind), count))


def _letter(kind: int) -> str:
    if kind not in _SCALARS:
        raise GgufError(f"a value of its metadata has type {kind}, which the node does not read")
    return _SCALARS[kind]
