"""The swarm manifest (spec: manifest): what all nodes of one swarm agree on before they connect.

People write it as TOML. The network id is the SHA-256 of its deterministic CBOR, so layout and comments do not matter.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from . import limits
from .cbor import Value, decode, encode
from .errors import Layer, LocalError, RemoteError
from .files import NoSuchFile, expanded
from .toml import parse_toml, read_toml, toml_value

MAJOR_VERSION = 2

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)

T = TypeVar("T")


class AnswerKind(StrEnum):
    """How an answer is compared with the reference answer in a row of a file."""

    EXACT = "exact"
    NUMBER = "number"
    CHOICE = "choice"
    MATH = "math"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file of rows, each a prompt with its reference answer, which every node of the swarm must have."""

    file: str
    """SHA-256 of the file, 64 hexadecimal digits."""
    rows: int
    answers: AnswerKind
    origin: str = ""
    """Where people get the file. Text for people: no program opens it."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One entry of the catalogue: a dataset, its configuration, and how often it is drawn."""

    dataset: str
    """The name of the dataset; of a file, any name that the swarm gives it."""
    config: Mapping[str, Value]
    """Configuration of the dataset. A missing key has the default of the manifest's reasoning-gym version."""
    weight: int
    scorer: int = 2
    """Version of this project's scorer for the dataset, so that all nodes compute the same rewards."""
    levels: int = 1
    """L, the level of a correct completion. 1 makes the reward a bit; a higher L counts parts of an answer."""
    turns: int = 1
    """Turns of a completion, at most."""
    source: FileSource | None = None
    """The file that has the items; None for a dataset of reasoning-gym, of the wire spec or of a package."""


@dataclass(frozen=True)
class Manifest:
    """A valid manifest. Raises LocalError for a value outside the limits of the protocol."""

    name: str
    version: int
    """Major version of the wire protocol."""
    genesis: int
    """Unix time, seconds, at which epoch 0 begins."""
    epoch_seconds: int
    max_rounds: int
    """Counters per issuer and epoch."""
    tasks: tuple[TaskSpec, ...]
    completions: int
    """G, completions per group."""
    max_completion_bytes: int
    """UTF-8 bytes of one completion."""
    max_message_bytes: int
    inline_bytes: int
    """Bytes of a message. In a swarm of more than nine peers a larger round is published without its bodies."""
    shards: int
    """Number of topics among which rollouts are divided; TOP-3."""
    reasoning_gym: str
    """Version of reasoning-gym that defines the datasets; empty if no task uses it."""
    predecessor: str = ""
    """Network id (hex) of the swarm that this one continues; empty for none."""
    x: Mapping[str, Value] | None = None
    """Keys of later minor versions: hashed, otherwise ignored."""
    bootstrap: tuple[str, ...] = field(default=(), compare=False)
    """A hint beside the manifest that is not hashed: multiaddresses of peers through which a node may join."""

    def __post_init__(self) -> None:
        if self.version is True or self.version != MAJOR_VERSION:  # in Python, True equals 1
            raise LocalError(
                f"manifest {self.name!r} is for protocol version {self.version}; this is version {MAJOR_VERSION}"
            )
        bounds = {
            "genesis": (0, 2**40),
            "epoch_seconds": (limits.MIN_EPOCH_SECONDS, limits.MAX_EPOCH_SECONDS),
            "max_rounds": (1, limits.MAX_ROUNDS_PER_EPOCH),
            "completions": (limits.MIN_COMPLETIONS, limits.MAX_COMPLETIONS),
            "max_completion_bytes": (limits.MIN_COMPLETION_LIMIT, limits.MAX_COMPLETION_BYTES),
            "max_message_bytes": (limits.MIN_MESSAGE_LIMIT, limits.MAX_MESSAGE_BYTES),
            "inline_bytes": (0, limits.MAX_MESSAGE_BYTES),
            "shards": (1, limits.MAX_SHARDS),
        }
        for key, (low, high) in bounds.items():
            _bounded(f"manifest {self.name!r}: {key}", getattr(self, key), low, high)
        self._check_texts()
        if not 1 <= len(self.tasks) <= limits.MAX_TASKS:
            raise LocalError(f"manifest {self.name!r}: lists {len(self.tasks)} tasks; give 1 to {limits.MAX_TASKS}")
        for task in self.tasks:
            _bounded(f"manifest {self.name!r}: weight of {task.dataset}", task.weight, 1, 2**32)
            _bounded(f"manifest {self.name!r}: scorer of {task.dataset}", task.scorer, 1, 2**16)
            _bounded(f"manifest {self.name!r}: levels of {task.dataset}", task.levels, 1, limits.MAX_LEVELS)
            _bounded(f"manifest {self.name!r}: turns of {task.dataset}", task.turns, 1, limits.MAX_TURNS)
            if not 1 <= len(task.dataset.encode()) <= limits.MAX_DATASET_BYTES:
                raise LocalError(f"manifest {self.name!r}: a dataset's name has 1 to {limits.MAX_DATASET_BYTES} bytes")
            if task.source is not None:
                self._check_source(task.dataset, task.source)
        try:
            decode(self.encoded, limit=limits.MAX_MANIFEST_BYTES, layer=Layer.MANIFEST)
        except RemoteError as error:
            raise LocalError(f"manifest {self.name!r} cannot be encoded: {error}") from error

    def _check_texts(self) -> None:
        # The name becomes part of a file name, and anybody may have written the manifest.
        if not _NAME.fullmatch(self.name):
            raise LocalError(f"manifest name {self.name!r}: give 1 to 32 of a-z, 0-9 and -, not beginning with -")
        if self.predecessor and not _SHA256.fullmatch(self.predecessor):
            raise LocalError(f"manifest {self.name!r}: predecessor is a network id of 64 hexadecimal digits, or empty")
        if len(self.reasoning_gym.encode()) > limits.MAX_REASONING_GYM_BYTES:
            raise LocalError(f"manifest {self.name!r}: reasoning_gym is a version such as 0.1.25, or empty")
        if self.x is not None and len(encode(self.x)) > limits.MAX_EXTENSION_BYTES:
            raise LocalError(f"manifest {self.name!r}: x has more than {limits.MAX_EXTENSION_BYTES} bytes")
        if len(self.bootstrap) > limits.MAX_BOOTSTRAP_PEERS:
            raise LocalError(f"manifest {self.name!r}: give at most {limits.MAX_BOOTSTRAP_PEERS} bootstrap peers")
        if any(len(str(each).encode()) > limits.MAX_BOOTSTRAP_BYTES for each in self.bootstrap):
            raise LocalError(f"manifest {self.name!r}: an address has at most {limits.MAX_BOOTSTRAP_BYTES} bytes")

    def _check_source(self, dataset: str, source: FileSource) -> None:
        where = f"manifest {self.name!r}, source of {dataset}"
        if not _SHA256.fullmatch(source.file):
            raise LocalError(f"{where}: file is a SHA-256 of 64 hexadecimal digits")
        _bounded(f"{where}: rows", source.rows, limits.MIN_FILE_ROWS, limits.MAX_FILE_ROWS)
        if len(source.origin.encode()) > limits.MAX_ORIGIN_BYTES:
            raise LocalError(f"{where}: origin has more than {limits.MAX_ORIGIN_BYTES} bytes")

    @cached_property
    def max_turns(self) -> int:
        """The most turns that any task of the catalogue has."""
        return max(task.turns for task in self.tasks)

    @cached_property
    def encoded(self) -> bytes:
        """The deterministic CBOR whose SHA-256 is the network id."""
        return encode(_plain(self))

    @cached_property
    def network_id(self) -> bytes:
        """SHA-256 of the encoded manifest (32 bytes); MAN-6."""
        return hashlib.sha256(self.encoded).digest()

    def restarted(self, *, name: str, genesis: int, epoch_seconds: int, max_rounds: int) -> "Manifest":
        """A manifest with the same catalogue and limits but another name and clock, so another swarm."""
        return replace(self, name=name, genesis=genesis, epoch_seconds=epoch_seconds, max_rounds=max_rounds)


def _bounded(what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise LocalError(f"{what} is {value!r}; give a whole number from {low} to {high}")


def _plain(value: object) -> Any:
    """A manifest value in the types that the encoder accepts."""
    if isinstance(value, Manifest | TaskSpec | FileSource):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.compare}
        return {key: each for key, each in found.items() if each is not None}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def parse_manifest(text: str, source: str) -> Manifest:
    """The manifest that TOML `text` describes; `source` names it in errors.

    Raises LocalError on bad TOML, missing or unknown keys, and values the protocol forbids.
    """
    return _from_table(parse_toml(text, source), source)


def decode_manifest(data: bytes) -> Manifest:
    """The manifest that `data` encodes; MAN-1 to MAN-5. Raises RemoteError (manifest) for any other bytes."""
    value = decode(data, limit=limits.MAX_MANIFEST_BYTES, layer=Layer.MANIFEST)
    try:
        manifest = _from_table(value, "the manifest")
    except LocalError as error:
        raise RemoteError(Layer.MANIFEST, str(error)) from error
    if manifest.encoded != data:
        raise RemoteError(Layer.MANIFEST, "a key is missing, or bootstrap is in the manifest")
    return manifest


def _from_table(table: object, source: str) -> Manifest:
    if not isinstance(table, dict):
        raise LocalError(f"{source} is not a table")
    tasks = table.get("tasks", [])
    if not isinstance(tasks, list):
        raise LocalError(f"{source}: tasks must be a list of [[tasks]] tables")
    specs = tuple(_spec(entry, f"{source}, task {number}") for number, entry in enumerate(tasks, 1))
    for spec in specs:
        _require_wire_values(spec.config, f"{source}, config of {spec.dataset}")
    _require_wire_values(table.get("x", {}), f"{source}, x")
    bootstrap = table.get("bootstrap", [])
    if not isinstance(bootstrap, list) or not all(isinstance(each, str) for each in bootstrap):
        raise LocalError(f"{source}: bootstrap is a list of addresses")
    return _checked(Manifest, {**table, "tasks": specs, "bootstrap": tuple(bootstrap)}, source)


def _spec(entry: object, source: str) -> TaskSpec:
    if not isinstance(entry, dict) or "source" not in entry:
        return _checked(TaskSpec, entry, source)
    file = _checked(FileSource, entry["source"], f"{source}, source")
    try:
        answers = AnswerKind(file.answers)
    except ValueError as error:
        kinds = ", ".join(AnswerKind)
        raise LocalError(f"{source}, source: answers is {file.answers!r}; give one of {kinds}") from error
    return _checked(TaskSpec, {**entry, "source": replace(file, answers=answers)}, source)


def render_manifest(manifest: Manifest) -> str:
    """The manifest as TOML that parses to the same network id. Raises LocalError if TOML cannot express it."""
    head = [
        f"{each.name} = {toml_value(_plain(getattr(manifest, each.name)))}"
        for each in fields(Manifest)
        if each.name != "tasks" and getattr(manifest, each.name) not in (None, ())
    ]
    tasks = [
        "\n".join(
            [
                "",
                "[[tasks]]",
                *(f"{key} = {toml_value(value)}" for key, value in _plain(task).items()),
            ]
        )
        for task in manifest.tasks
    ]
    return "\n".join([*head, *tasks]) + "\n"


def _checked(kind: type[T], table: object, source: str) -> T:
    if not isinstance(table, dict):
        raise LocalError(f"{source} is not a table")
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(table) - set(known)):
        names = sorted(set(known) - {"x"})  # only later versions define keys of `x`, so people do not write it
        what = "section" if isinstance(table[unknown[0]], dict) else "key"
        raise LocalError(f"{source}: unknown {what} {unknown[0]!r}; known keys are {', '.join(names)}")
    if missing := [name for name, each in known.items() if each.default is MISSING and name not in table]:
        raise LocalError(f"{source}: the key {missing[0]!r} is missing")
    types = {
        "name": str,
        "dataset": str,
        "config": dict,
        "reasoning_gym": str,
        "predecessor": str,
        "source": FileSource,
        "file": str,
        "answers": str,
        "origin": str,
        "tasks": tuple,
        "bootstrap": tuple,
        "x": dict,
    }
    for key, value in table.items():
        if not isinstance(value, types.get(key, int)):
            raise LocalError(f"{source}: {key} has the wrong type ({type(value).__name__})")
    return kind(**table)


def _require_wire_values(value: object, source: str) -> None:
    """Raise LocalError for a value that the wire's CBOR cannot hold: a float, a negative integer or a date."""
    if isinstance(value, Mapping):
        for item in value.values():
            _require_wire_values(item, source)
    elif isinstance(value, list):
        for item in value:
            _require_wire_values(item, source)
    elif not isinstance(value, str | bytes | int) or (isinstance(value, int) and not 0 <= value <= limits.MAX_UINT):
        raise LocalError(f"{source}: {value!r} is not text, a boolean or an unsigned integer")


def shipped_manifests() -> tuple[str, ...]:
    """Names of the manifests inside the package."""
    folder = resources.files(__package__).joinpath("manifests")
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_manifest(name: str) -> Manifest:
    """A shipped manifest by name, or one from a TOML file by path. Raises LocalError if neither exists or is valid."""
    if name in shipped_manifests():
        text = resources.files(__package__).joinpath("manifests", f"{name}.toml").read_text("utf-8")
        return parse_manifest(text, f"manifest {name!r}")
    try:
        return _from_table(read_toml(Path(expanded(name)), limits.MAX_MANIFEST_BYTES, "manifest"), name)
    except NoSuchFile as error:
        shipped = ", ".join(shipped_manifests())
        raise LocalError(f"no manifest {name!r}: give one of {shipped}, or the path of a TOML file") from error
