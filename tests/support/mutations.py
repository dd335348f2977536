"""Requests to a reader of the standard, made from the vectors by seeded changes: number N is the same request for ever.

Only what a vector judges is changed; the contract (spec/conformance/README.md) promises readers that the rest is valid.
"""

import hashlib
import random
from collections.abc import Callable, Sequence

from conformance.run import Case, load_cases

JUDGED = {
    "encoding": ("bytes",),
    "signature": ("public_key", "message", "signature"),
    "envelope": ("bytes", "network_id", "domain"),
    "header": ("bytes",),
    "body": ("bytes",),
    "message": ("bytes", "now_ms"),
    "evidence": ("bytes",),
    "request": ("bytes",),
    "listing": ("bytes",),
    "introductions": ("bytes",),
    "delivery": ("bytes",),
    "manifest": ("bytes",),
    "window": ("now_ms", "epoch"),
    "topic": ("topic",),
    "shard": ("issuer", "epoch"),
    "assignment": ("issuer", "epoch", "counter", "k"),
    "item": ("seed", "dataset"),
    "answer": ("completion", "seed"),
    "row": ("file", "file", "file", "seed"),
    "comparison": ("completion",),
    "rollout": ("bytes",),
}
"""By kind of request the inputs that are changed. The reader in JavaScript leaves out `mathematics`."""

OF_FIXED_LENGTH = {"public_key", "signature", "network_id", "issuer"}
LARGEST = {"seed": 2**32 - 1, "k": 255}
"""The largest number that an input takes; of others it is what JSON numbers of JavaScript can hold."""

HEADS = bytes.fromhex("00 17 18 19 1a 1b 20 40 58 59 60 78 80 98 9f a0 b8 bf c0 e0 f4 f5 f6 f7 f9 fb ff 7f")
"""First bytes of encoded values, allowed and forbidden ones."""
CHARACTERS = "aZ09 /-_.<>\\\n\0é€😀\u2028\u0301"


class Mutations:
    """All requests, by their number."""

    def __init__(self) -> None:
        self._cases: dict[str, list[Case]] = {kind: [] for kind in JUDGED}
        for case in load_cases():
            if case.kind in JUDGED:
                self._cases[case.kind].append(case)

    def request(self, number: int) -> tuple[Case, dict[str, object]]:
        """The vector that is changed, and the request that comes of it. Each kind has as many requests."""
        rng = random.Random(number)
        cases = self._cases[rng.choice(sorted(JUDGED))]
        case = rng.choice(cases)
        changed = dict(case.input)
        # A change of the time could make an earlier message one that was never accepted.
        keys = ("bytes",) if changed.get("earlier") else JUDGED[case.kind]
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            key = rng.choice(keys)
            changed[key] = _changed(rng, key, changed[key], rng.choice(cases).input[key])
        if "file" in changed:
            # The manifest names the changed file. Else its hash alone would refuse it.
            named, given = (_hash_in_manifest(each["file"]) for each in (case.input, changed))
            changed["manifest"] = str(changed["manifest"]).replace(named, given)
        return case, {"kind": case.kind, "input": changed}


def _hash_in_manifest(file: object) -> str:
    """The SHA-256 of a file as the hexadecimal bytes of a manifest have it: as text."""
    return hashlib.sha256(bytes.fromhex(str(file))).hexdigest().encode().hex()


def _changed(rng: random.Random, key: str, value: object, other: object) -> object:
    match value:
        case int():
            return _number(rng, value, LARGEST.get(key, 2**53 - 1))
        case str() if key in {"domain", "topic", "dataset", "completion"}:
            return _text(rng, value, str(other))
        case str():
            bytes_, others = bytes.fromhex(value), bytes.fromhex(str(other))
            return (_overwritten(rng, bytes_) if key in OF_FIXED_LENGTH else _bytes(rng, bytes_, others)).hex()
        case _:
            raise AssertionError(f"{key} is neither number nor text")


def _number(rng: random.Random, value: int, largest: int) -> int:
    near = value + rng.choice((-1, 1, -2, 2, -60_000, 60_000))
    chosen = rng.choice((near, near, value ^ 1 << rng.randrange(53), 0, largest, rng.randrange(largest + 1)))
    return max(0, min(chosen, largest))


def _text(rng: random.Random, value: str, other: str) -> str:
    at, end = sorted(rng.choices(range(len(value) + 1), k=2))
    put = rng.choice(("", rng.choice(CHARACTERS), value[at:end] * 2, other, value[at:end].swapcase()))
    return value[:at] + put + value[end:]


def _overwritten(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    change: Callable[[random.Random, bytes, bytes], bytes] = rng.choice(CHANGES)
    return change(rng, data or b"\0", other or b"\0")


def _spot(rng: random.Random, data: Sequence[int]) -> tuple[int, int]:
    """A short stretch of the data; rarely a long one, and often near the start, where the structure is."""
    at = min(rng.randrange(len(data)), rng.randrange(len(data)))
    return at, min(len(data), at + rng.choice((1, 1, 1, 2, 8, len(data))))


def _flip(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return _overwritten(rng, data)


def _replace(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at, _end = _spot(rng, data)
    return data[:at] + bytes([rng.choice(HEADS)]) + data[at + 1 :]


def _insert(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at, _end = _spot(rng, data)
    return data[:at] + bytes([rng.choice(HEADS)]) + data[at:]


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at, end = _spot(rng, data)
    return data[:at] + data[end:]


def _truncate(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _repeat(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at, end = _spot(rng, data)
    return data[:end] + data[at:end] + data[end:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at, end = _spot(rng, data)
    start, stop = _spot(rng, other)
    return data[:at] + other[start:stop] + data[end:]


def _nudge(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at, _end = _spot(rng, data)
    return data[:at] + bytes([(data[at] + rng.choice((-1, 1))) % 256]) + data[at + 1 :]


CHANGES = (_flip, _replace, _insert, _cut, _truncate, _repeat, _splice, _nudge)
