"""The tasks that spec/verification.md defines completely, so that a node in any language can build them.

An item is a formula over eight numbers. The numbers are a hash of the dataset's name and the seed. Building an item
needs no library, no random generator and no file.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

from sapo_node.tasks.task import TaskError
from sapo_protocol.cbor import encode

ITEM_DOMAIN = "sapo/item/1"

_Formula = Callable[[Sequence[int], Mapping[str, int]], tuple[str, str]]
"""Computes prompt and answer from an item's numbers and the configuration."""


def _numbers(dataset: str, seed: int) -> tuple[int, ...]:
    """Return the eight 32-bit numbers of an item: SHA-256 of the CBOR of [domain, dataset, seed], big-endian."""
    return struct.unpack(">8I", hashlib.sha256(encode([ITEM_DOMAIN, dataset, seed])).digest())


def _sum(drawn: Sequence[int], config: Mapping[str, int]) -> tuple[str, str]:
    a, b = (number % (config["max"] + 1) for number in drawn[:2])
    return f"What is {a} + {b}?", str(a + b)


def _reverse(drawn: Sequence[int], config: Mapping[str, int]) -> tuple[str, str]:
    word = "".join(ascii_lowercase[number % 26] for number in drawn[: config["letters"]])
    return f"Write {word} backwards.", word[::-1]


def _largest(drawn: Sequence[int], config: Mapping[str, int]) -> tuple[str, str]:
    values = [number % (config["max"] + 1) for number in drawn[: config["count"]]]
    return f"Which is the largest of {', '.join(map(str, values[:-1]))} and {values[-1]}?", str(max(values))


@dataclass(frozen=True, slots=True)
class _Definition:
    formula: _Formula
    bounds: Mapping[str, tuple[int, int]]
    """The keys that a configuration must have, with the lowest and highest value of each."""


_DEFINITIONS: Mapping[str, _Definition] = MappingProxyType(
    {
        "interop_sum": _Definition(_sum, {"max": (1, 1_000_000)}),
        "interop_reverse": _Definition(_reverse, {"letters": (2, 7)}),
        "interop_largest": _Definition(_largest, {"count": (2, 7), "max": (1, 1_000_000)}),
    }
)

DATASETS = frozenset(_DEFINITIONS)
"""The datasets that the wire spec defines."""


class Items:
    """The items of one dataset with one configuration, by seed, in reasoning-gym's form."""

    def __init__(self, dataset: str, config: Mapping[str, Any]) -> None:
        """Raises TaskError unless the configuration has exactly the dataset's keys, within their bounds."""
        bounds = _DEFINITIONS[dataset].bounds
        if config.keys() != bounds.keys() or not all(_is_within(config[key], *bounds[key]) for key in bounds):
            allowed = ", ".join(f"{key} = {low} to {high}" for key, (low, high) in bounds.items())
            raise TaskError(f"the configuration of {dataset} is {dict(config)}; give exactly {allowed}")
        self._dataset = dataset
        self._config = config

    def __getitem__(self, seed: int) -> Mapping[str, str]:
        prompt, answer = _DEFINITIONS[self._dataset].formula(_numbers(self._dataset, seed), self._config)
        return {"question": prompt, "answer": answer}


def _is_within(value: object, low: int, high: int) -> bool:
    # isinstance would accept True, which is not a number in CBOR.
    return type(value) is int and low <= value <= high
