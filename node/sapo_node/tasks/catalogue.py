"""Lists the datasets that this machine can build: of reasoning-gym, of the wire spec, and of installed packages."""

from collections.abc import Callable
from dataclasses import dataclass

from sapo_node.tasks import interop, plugins
from sapo_node.tasks.datasets import DATASETS, scorer_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset of the catalogue."""

    dataset: str
    """The name that `build_task` and a manifest take."""
    answer: str
    """A correct answer in a few words; empty for a dataset of another package, whose module decides."""
    graded: bool | None
    """True if its scorer gives shares; None for a dataset of another package."""
    source: str
    """`reasoning-gym`, `wire spec`, or the package that defines it."""


def catalogue() -> list[Entry]:
    """Return the datasets that can be built here, by source and name. This imports none of them."""
    borrowed = [
        Entry(name, describe(row.scorer), row.graded, "reasoning-gym") for name, row in sorted(DATASETS.items())
    ]
    own = [Entry(name, describe(scorer_of(name)), False, "wire spec") for name in sorted(interop.DATASETS)]
    return [*borrowed, *own, *(Entry(name, "", None, plugins.package_of(name)) for name in plugins.datasets())]


def describe(scorer: Callable[..., object]) -> str:
    """Return the answers that a scorer accepts, in words: the first sentence of its docstring, or else its name."""
    sentence = " ".join((scorer.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    for opening in ("Return whether the answer is ", "Return whether the answer has ", "Return whether ", "Return "):
        if sentence.startswith(opening):
            return sentence.removeprefix(opening)
    return scorer.__name__.removeprefix("is_").removeprefix("has_").replace("_", " ")
