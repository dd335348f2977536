"""Tasks that other packages bring, each a module named by an entry point: who installs the package decides, and nobody
else.

Such a module has `SCORER_VERSION`, which a manifest names; `item(config, seed)`, which returns question and answer and
raises ValueError for a configuration that it does not take; and `earns(question, answer, given)`, which tells whether
what a completion holds between its tags is right. Its dataset has a dot in its name, as none of ours has.

It runs in the sandbox: what it needs is imported when it is, and later it can read no file and open no socket.
"""

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sapo_node.verification.tasks.task import TaskError

GROUP = "sapo_node.verification.tasks"
"""The group of the entry points."""


class Plugin(Protocol):
    """What such a module has."""

    SCORER_VERSION: int

    def item(self, config: Mapping[str, Any], seed: int) -> tuple[str, str]: ...

    def earns(self, prompt: str, answer: str, given: str) -> bool: ...


def is_foreign(dataset: str) -> bool:
    """Whether a dataset is one that another package brings, by its name."""
    return "." in dataset


def datasets() -> list[str]:
    """The names under which the installed packages bring tasks, good names or not."""
    return sorted(_points())


def leave_out(dataset: str, reason: str) -> None:
    """From here on this process does not import the module of a dataset; `of` raises TaskError with the reason."""
    _left_out[dataset] = reason


@functools.cache
def of(dataset: str) -> Plugin:
    """The module of a dataset, imported. Raises TaskError where it is not installed or cannot be used."""
    if reason := _left_out.get(dataset):
        raise TaskError(reason)
    match _points().get(dataset, []):
        case []:
            raise TaskError(f"dataset {dataset!r} is brought by a package that is not installed here")
        case [_] if not is_foreign(dataset):
            raise TaskError("its name has no dot")
        case [point]:
            return _imported(point)
        case _:
            raise TaskError("two packages bring it")


_left_out: dict[str, str] = {}


@functools.cache
def _points() -> Mapping[str, Sequence[importlib.metadata.EntryPoint]]:
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _imported(point: importlib.metadata.EntryPoint) -> Plugin:
    try:
        plugin: Plugin = point.load()
    except (Exception, SystemExit) as error:  # the import runs code of others, which may raise anything
        raise TaskError(_printable(f"its import failed with {type(error).__name__}: {error}")) from error
    # Not isinstance: true is no version.
    if type(getattr(plugin, "SCORER_VERSION", None)) is not int:
        raise TaskError("its SCORER_VERSION is no whole number")
    for name in ("item", "earns"):
        if not callable(getattr(plugin, name, None)):
            raise TaskError(f"it has no function {name}")
    return plugin


def _printable(text: str) -> str:
    """The words of another package, fit for the operator's terminal."""
    return "".join(each if each.isprintable() else " " for each in text[:300])


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one dataset under one configuration, by seed; as reasoning-gym gives them."""

    dataset: str
    config: Mapping[str, Any]

    def __getitem__(self, seed: int) -> Mapping[str, str]:
        plugin = of(self.dataset)
        try:
            made: object = plugin.item(self.config, seed)
        except ValueError as error:
            raise TaskError(f"{self.dataset} refuses its configuration: {error}") from error
        match made:
            case (str(prompt), str(answer)):
                return {"question": prompt, "answer": answer}
            case _:
                raise TaskError(f"the function item of {self.dataset} returned something other than two texts")
