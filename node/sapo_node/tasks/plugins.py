"""Tasks that other packages define. An entry point names the module of each dataset; only the operator installs one.

Such a module has these attributes:
- `SCORER_VERSION`, a whole number that a manifest names.
- `item(config, seed)` returns prompt and answer. It raises ValueError for a configuration that it refuses.
- `earns(prompt, answer, given)` returns True if `given` is correct, and False if it is not. It may return the share of
  `given` that is right, as a `fractions.Fraction` from 0 to 1. It is called with the text between the tags of a
  completion and, until that is correct, with that text without its outermost wrappers (`wrappers.stages`).

It may have a fourth: `example(prompt, answer)` returns a correct completion with its working, for models that read
worked examples before a prompt.

The name of its dataset has a dot; the names of this package's datasets have none. The module runs in the sandbox. It
must import what it needs when it is imported itself: later it can read no file and open no socket.
"""

import copy
import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from sapo_node.tasks.task import TaskError, Verdict
from sapo_protocol.printable import excerpt

GROUP = "sapo_node.tasks"
"""The name of the group of entry points."""

_BOOLEANS = frozenset({"bool", "bool_"})
"""Names of the types of a boolean. numpy has a type of its own for the result of a comparison: `bool_`, and `bool` from
numpy 2."""


class Plugin(Protocol):
    """The module of a dataset."""

    SCORER_VERSION: int

    def item(self, config: Mapping[str, Any], seed: int) -> tuple[str, str]: ...

    def earns(self, prompt: str, answer: str, given: str) -> Verdict: ...


def is_foreign(dataset: str) -> bool:
    """Return whether another package defines a dataset, by the dot in its name."""
    return "." in dataset


def datasets() -> list[str]:
    """Return the names of the datasets that installed packages define. A name may lack the dot."""
    return sorted(_points())


def package_of(dataset: str) -> str:
    """Return the name of the package that defines a dataset; of several, all names."""
    return ", ".join(sorted(point.dist.name for point in _points()[dataset] if point.dist))


def forget() -> None:
    """Have the next call look for the installed packages anew, because `sys.path` has changed."""
    _points.cache_clear()
    of.cache_clear()


def example(dataset: str, prompt: str, answer: str) -> str:
    """Return the worked example of a dataset's own function; empty if its module has none."""
    write = getattr(of(dataset), "example", None)
    return str(write(prompt, answer)) if callable(write) else ""


def earns(dataset: str, prompt: str, answer: str, given: str) -> Verdict:
    """Return the verdict of the dataset's own function on `given`; False if that function raises.

    Raises TaskError if that function returns something other than True, False or a Fraction from 0 to 1, and what it
    raises itself if that is an error of this machine: MemoryError, OSError or ImportError.
    """
    decide = of(dataset).earns
    try:
        verdict: object = decide(prompt, answer, given)
    except (MemoryError, OSError, ImportError):
        # Another machine may have enough memory, let the module read a file, or have imported what it needs. So this
        # machine gives no verdict: a false one would make honest claims false.
        raise
    except Exception:  # noqa: BLE001 - a peer wrote `given`, and nobody knows what another package raises for it
        return False
    return _verdict(dataset, verdict)


def _verdict(dataset: str, returned: object) -> Verdict:
    """Return the result of `earns` if it is a verdict. Raises TaskError otherwise: a pair of a verdict and a reason is
    always true, for instance, and a float may differ between machines.
    """
    kind = type(returned).__name__
    if kind in _BOOLEANS:
        return bool(returned)
    if not isinstance(returned, Fraction):
        raise TaskError(
            f"the function earns of {dataset} must return True, False or a fractions.Fraction from 0 to 1 (no float: "
            f"floats differ between machines), and it returned a value of {kind}"
        )
    if not 0 <= returned <= 1:
        raise TaskError(f"the function earns of {dataset} must return a Fraction from 0 to 1, and it left that range")
    return returned


def leave_out(dataset: str, reason: str) -> None:
    """Have this process never import the module of a dataset. From now on `of` raises TaskError with the reason."""
    _left_out[dataset] = reason


@functools.cache
def of(dataset: str) -> Plugin:
    """Import the module of a dataset. Raises TaskError if it is not installed or cannot be used."""
    if reason := _left_out.get(dataset):
        raise TaskError(reason)
    match _points().get(dataset, []):
        case []:
            raise TaskError(f"the package that defines the dataset {dataset!r} is not installed here")
        case [_] if not is_foreign(dataset):
            raise TaskError("its name has no dot")
        case [point]:
            return _imported(point)
        case _:
            raise TaskError("two packages define it")


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
    except (Exception, SystemExit) as error:  # the imported code may raise anything
        raise TaskError(excerpt(f"its import failed with {type(error).__name__}: {error}", 300)) from error
    # isinstance would accept True, which is not a version.
    if type(getattr(plugin, "SCORER_VERSION", None)) is not int:
        raise TaskError("its SCORER_VERSION is not a whole number")
    for name in ("item", "earns"):
        if not callable(getattr(plugin, name, None)):
            raise TaskError(f"it has no function {name}")
    return plugin


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one dataset with one configuration, by seed, in reasoning-gym's form."""

    dataset: str
    config: Mapping[str, Any]

    def __getitem__(self, seed: int) -> Mapping[str, str]:
        plugin = of(self.dataset)
        try:
            # A module may change what it gets, and the next item must not depend on that.
            made: object = plugin.item(copy.deepcopy(self.config), seed)
        except ValueError as error:
            raise TaskError(f"{self.dataset} refuses its configuration: {error}") from error
        match made:
            case (str(prompt), str(answer)):
                return {"question": prompt, "answer": answer}
            case _:
                raise TaskError(f"the function item of {self.dataset} returned something other than two texts")
