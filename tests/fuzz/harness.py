"""What the fuzz harnesses share.

A harness is a module `fuzz_NAME` with `fuzz(data)`, which raises when the code under test breaks its promise, and
`seeds()`, valid inputs to start from. Inputs are programs: a `Source` reads choices off their bytes, so that every
input means something, and any of them replays without a fuzzer (test_corpus.py). run.py fuzzes.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nacl.signing import SigningKey

from sapo_node.storage.database import SCHEMA_VERSION
from sapo_protocol import LocalError, RemoteError, load_manifest, seal

NAMES = (
    *("checkpoint", "decode", "envelope", "evidence", "manifest", "model", "page"),
    *("pull", "rollout", "sandbox_reply", "scorer"),
)
CORPUS = Path(__file__).with_name("corpus")
STARTER = load_manifest("starter")
MANIFEST = replace(STARTER, tasks=(replace(STARTER.tasks[0], turns=3), *STARTER.tasks[1:]))
"""The starter swarm with three turns for its first task."""


class Key:
    """A key that signs envelopes of MANIFEST."""

    def __init__(self, number: int) -> None:
        self._key = SigningKey(bytes([number]) * 32)
        self.issuer = bytes(self._key.verify_key)

    def seal(self, payload: bytes) -> bytes:
        return seal(payload, issuer=self.issuer, sign=self._sign, network_id=MANIFEST.network_id)

    def _sign(self, signed: bytes) -> bytes:
        return self._key.sign(signed).signature


KEYS = (Key(1), Key(2))


@contextlib.contextmanager
def refusal_is_short() -> Iterator[None]:
    """Whoever sends what is refused must not fill a log with it."""
    try:
        yield
    except RemoteError as error:
        if len(str(error)) > 400:
            raise AssertionError("a refusal of more than 400 characters") from error
        raise


@contextlib.contextmanager
def refusal_is_a_line(kind: type[LocalError] = LocalError) -> Iterator[None]:
    """What is refused is refused by one error of ours, of one printable line."""
    try:
        yield
    except kind as error:
        told = str(error)
        if not told.isprintable() or len(told) > 2_000:
            raise AssertionError("an error that is no printable line") from error


def small_pages(path: Path) -> None:
    """Make an empty state database whose file stays small."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = 512; PRAGMA user_version = {SCHEMA_VERSION}; VACUUM;")


class Source:
    """Choices read off an input, front to back; past its end every byte is zero."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        self._position += len(taken)
        return taken

    def number(self, size: int = 1) -> int:
        """An unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big")

    def below(self, bound: int) -> int:
        return self.number(2 if bound > 256 else 1) % bound

    def string(self) -> bytes:
        """Some bytes, at most 255; their length comes first."""
        return self.take(self.number())

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def __bool__(self) -> bool:
        """Whether bytes are left."""
        return self._position < len(self._data)


def cbor_item(source: Source, depth: int = 0) -> bytes:
    """One CBOR item, mostly of the protocol's own types and in its shortest form; choices break either."""
    choice = source.below(16)
    if choice < 2:
        return bytes([0xF4 + choice])
    if choice < 4:
        return cbor_head(source, 0, source.number(8 if choice == 3 else 1))
    if choice < 8:
        content = source.string()
        return cbor_head(source, choice // 2, len(content)) + content
    if choice < 12 and depth < 12:
        major, size = choice // 2, source.below(5)
        items = b"".join(cbor_item(source, depth + 1) for _ in range(size * (major - 3)))
        return cbor_head(source, major, size) + items
    if choice == 12:
        return bytes.fromhex("6161") + cbor_item(source, depth + 1) if source and depth < 12 else b"\x60"
    return source.string() or b"\0"


def cbor_head(source: Source, major: int, argument: int) -> bytes:
    """A head in its shortest form, or wider by choice."""
    shortest = 0 if argument < 24 else next(width for width in (1, 2, 4, 8) if argument < 1 << 8 * width)
    width = max(shortest, (0, 0, 0, 0, 1, 2, 4, 8)[source.below(8)])
    if not width:
        return bytes([major << 5 | argument])
    return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[width]]) + argument.to_bytes(width, "big")
