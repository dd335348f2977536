"""The datasets of reasoning-gym that the catalogue has, without the rest of that package.

`import reasoning_gym` imports a hundred datasets, and sympy and matplotlib with them. That takes two CPU-seconds and
110 MB in each sandbox. The modules of the catalogue take a tenth of both.

The modules are imported under a name of their own. So a task of another package that imports reasoning_gym gets all of
it, before or after.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from sapo_node.verification.tasks.divisors import common_divisors

_THEIRS = "reasoning_gym"
_OURS = f"{__package__}.{_THEIRS}"
_MODULES = {
    "algorithmic": ("base_conversion", "binary_matrix", "spell_backward"),
    "arc": ("arc_1d", "arc_1d_tasks"),
    "arithmetic": (
        "basic_arithmetic",
        "calendar_arithmetic",
        "chain_sum",
        "decimal_arithmetic",
        "fraction_simplification",
        "leg_counting",
        "products",
    ),
    "code": ("bf",),
    "logic": ("propositional_logic",),
}
"""The modules of the datasets, by the package that holds them. A module registers its dataset when it is imported."""


@functools.cache
def factory() -> Any:
    """Return reasoning-gym's module `factory`, which makes dataset objects. Raises ImportError if it is not there."""
    found = find_spec(_THEIRS)
    if found is None or found.origin is None:
        raise ImportError(f"{_THEIRS} is not installed")
    root = Path(found.origin).parent
    for name in ("", *_MODULES):
        # A package that is there already is not imported, and so imports none of its other datasets.
        package = ModuleType(f"{_OURS}.{name}".rstrip("."))
        package.__path__ = [str(root / name)]
        sys.modules[package.__name__] = package
    with _as_theirs(sys.modules[_OURS]):
        for name, modules in _MODULES.items():
            for module in modules:
                import_module(f"{_OURS}.{name}.{module}")
    spell_backward: Any = import_module(f"{_OURS}.algorithmic.spell_backward")
    # The dataset reads its word list for each dataset object. The sandbox can read no file once it is confined.
    spell_backward.read_data_file = functools.cache(lambda name: (root / "data" / name).read_text("utf-8"))
    # The library's own function needs more than the processor limit of a batch for 1 of 45,000 items of `paper-nine`.
    basic_arithmetic: Any = import_module(f"{_OURS}.arithmetic.basic_arithmetic")
    basic_arithmetic.find_common_divisors = common_divisors
    return import_module(f"{_OURS}.factory")


@contextmanager
def _as_theirs(package: ModuleType) -> Iterator[None]:
    """Let `package` be reasoning_gym for a while: some of its modules import others by that name."""
    before = _taken_out()
    sys.modules[_THEIRS] = package
    try:
        yield
    finally:
        _taken_out()
        sys.modules.update(before)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _THEIRS]
    return {name: sys.modules.pop(name) for name in names}
