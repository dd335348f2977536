"""The wire by hand: joins bytes from heads and contents, so that a builder can write valid and invalid bytes.

Nothing of the implementation is imported. Only Ed25519 signing comes from a library (`cryptography`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG = range(7)
FALSE, TRUE, NULL, UNDEFINED = b"\xf4", b"\xf5", b"\xf6", b"\xf7"

ROLLOUT_DOMAIN = "sapo/rollout/2"


@cache
def head(major: int, argument: int, width: int | None = None) -> bytes:
    """A CBOR head. `width` is the bytes of its argument (0, 1, 2, 4 or 8); by default the shortest."""
    if width is None:
        width = next(size for size in (0, 1, 2, 4, 8) if argument < (24 if size == 0 else 1 << (8 * size)))
    if width == 0:
        return bytes([major << 5 | argument])
    return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[width]]) + argument.to_bytes(width, "big")


def uint(number: int) -> bytes:
    return head(UINT, number)


def bstr(content: bytes) -> bytes:
    return head(BYTES, len(content)) + content


def text(content: str) -> bytes:
    encoded = content.encode()
    return head(TEXT, len(encoded)) + encoded


def array(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return head(ARRAY, len(items)) + b"".join(items)


def table(*pairs: tuple[str, bytes]) -> bytes:
    """A map of text keys, in the given order, which may be invalid."""
    return head(MAP, len(pairs)) + b"".join(text(key) + value for key, value in pairs)


def sorted_table(values: Mapping[str, bytes]) -> bytes:
    """A map of text keys in deterministic order: shorter heads first, then bytewise."""
    return table(*sorted(values.items(), key=lambda pair: text(pair[0])))


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class Key:
    """A test key, made from its name."""

    def __init__(self, name: str) -> None:
        self.seed = sha256(f"sapo test key {name}".encode())
        self._private = Ed25519PrivateKey.from_private_bytes(self.seed)
        self.public = self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)


ALICE, BOB = Key("alice"), Key("bob")


@dataclass(frozen=True)
class TaskEntry:
    dataset: str
    config: bytes
    weight: int
    scorer: int = 2
    levels: int = 1
    turns: int = 1
    source: bytes | None = None

    def encoded(self) -> bytes:
        values = {
            "turns": uint(self.turns),
            "config": self.config,
            "levels": uint(self.levels),
            "scorer": uint(self.scorer),
            "weight": uint(self.weight),
            "dataset": text(self.dataset),
        }
        return sorted_table(values | ({"source": self.source} if self.source is not None else {}))


@dataclass(frozen=True)
class Swarm:
    """The example swarm, with limits low enough to reach; `fields` overrides encoded values by key."""

    fields: dict[str, bytes] = field(default_factory=dict)
    tasks: Sequence[TaskEntry] = (
        TaskEntry("interop_sum", table(("max", uint(9))), 1),
        TaskEntry("interop_reverse", table(("letters", uint(3))), 2),
        TaskEntry("interop_largest", table(("max", uint(99)), ("count", uint(3))), 1),
    )
    genesis: int = 1_767_225_600
    epoch_seconds: int = 600
    max_rounds: int = 100
    completions: int = 2
    max_completion_bytes: int = 64
    max_message_bytes: int = 4_000
    inline_bytes: int = 2_000

    @property
    def values(self) -> dict[str, bytes]:
        """Each key's encoded value."""
        values = {
            "name": text("example"),
            "tasks": array(task.encoded() for task in self.tasks),
            "shards": uint(1),
            "genesis": uint(self.genesis),
            "version": uint(2),
            "max_rounds": uint(self.max_rounds),
            "completions": uint(self.completions),
            "predecessor": text(""),
            "inline_bytes": uint(self.inline_bytes),
            "epoch_seconds": uint(self.epoch_seconds),
            "reasoning_gym": text(""),
            "max_message_bytes": uint(self.max_message_bytes),
            "max_completion_bytes": uint(self.max_completion_bytes),
        }
        return values | self.fields

    def encoded(self) -> bytes:
        return sorted_table(self.values)

    @property
    def network_id(self) -> bytes:
        return sha256(self.encoded())


EXAMPLE = Swarm()


def sig_structure(protected: bytes, payload: bytes, *, network_id: bytes, domain: str = ROLLOUT_DOMAIN) -> bytes:
    external_aad = array([text(domain), bstr(network_id)])
    return array([text("Signature1"), bstr(protected), bstr(external_aad), bstr(payload)])


def protected_header(public: bytes) -> bytes:
    return bytes.fromhex("a2 01 32 04 58 20") + public


def envelope(
    payload: bytes, key: Key = ALICE, *, network_id: bytes = EXAMPLE.network_id, domain: str = ROLLOUT_DOMAIN
) -> bytes:
    protected = protected_header(key.public)
    signature = key.sign(sig_structure(protected, payload, network_id=network_id, domain=domain))
    return bytes.fromhex("d2 84") + bstr(protected) + b"\xa0" + bstr(payload) + bstr(signature)


def envelope_id(payload: bytes, key: Key = ALICE, *, network_id: bytes = EXAMPLE.network_id) -> bytes:
    return sha256(sig_structure(protected_header(key.public), payload, network_id=network_id))


def completion(answer: str, finish: str = "stop") -> bytes:
    """A completion of one turn."""
    return completion_of([answer], finish)


def completion_of(turns: Iterable[str], finish: str = "stop") -> bytes:
    return table(("turns", array(text(turn) for turn in turns)), ("finish", text(finish)))


def body(completions: Iterable[bytes], *more: tuple[str, bytes]) -> bytes:
    return sorted_table(dict([("completions", array(completions)), *more]))


def group(body_bytes: bytes, claims: Sequence[int] = (1, 0), digest: bytes = bytes(32)) -> bytes:
    return table(
        ("body", bstr(sha256(body_bytes))),
        ("claims", bstr(bytes(claims))),
        ("digest", bstr(digest)),
    )


def header(groups: Iterable[bytes], *, epoch: int = 0, counter: int = 0, x: bytes | None = None) -> bytes:
    extension = [("x", x)] if x is not None else []
    return table(*extension, ("epoch", uint(epoch)), ("groups", array(groups)), ("counter", uint(counter)))


def message(envelope_bytes: bytes, bodies: Iterable[bytes]) -> bytes:
    return array([bstr(envelope_bytes), array(bstr(each) for each in bodies)])


def flipped(data: bytes) -> bytes:
    """The same with another last bit: a broken signature, where an envelope ends with one."""
    return data[:-1] + bytes([data[-1] ^ 1])
