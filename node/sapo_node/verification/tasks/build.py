"""Rebuild a task from its dataset, configuration and seed, the same on every machine with the pinned reasoning-gym.

A dataset is one of the wire spec's own, one of reasoning-gym's, or one that another package brings; all give items by
seed.

Never takes an item, answer or metadata from anyone. What is cached (dataset objects, the word list) is what would be
rebuilt identically; an item depends on its arguments alone.
"""

import contextlib
import decimal
import functools
import io
import json
from collections.abc import Mapping
from typing import Any

from sapo_node.verification.tasks import interop, plugins
from sapo_node.verification.tasks.scorers import DATASETS
from sapo_node.verification.tasks.task import Task, TaskError

MAX_SEED = 2**32 - 1

_OWN_KEYS = frozenset({"seed", "size", "data_file"})
"""Configuration keys that are ours to set, or that would name a file."""

_ATTEMPTS = 16
"""decimal_arithmetic divides by zero in 1 of 10,000 items; the next item of the same seed stands in."""


def build_task(dataset: str, config: Mapping[str, Any], seed: int) -> Task:
    """The item of `seed`; of reasoning-gym's `create_dataset(dataset, seed=seed, **config)` the first that generates.

    Raises TaskError when the dataset is not in the catalogue, the configuration is refused or the seed is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise TaskError(f"seed {seed} of {dataset} is outside 0 to {MAX_SEED}")
    source = prepare(dataset, config)
    # reasoning-gym sets the precision of the caller's decimal context, and one compiler prints its progress.
    with decimal.localcontext(decimal.Context()), contextlib.redirect_stdout(io.StringIO()):
        for index in range(_ATTEMPTS):
            try:
                item = source[seed + index]
            except ArithmeticError:
                continue
            return _task(dataset, item)
    raise TaskError(f"{dataset} yields no item for seed {seed}; change its configuration")


def prepare(dataset: str, config: Mapping[str, Any]) -> Any:
    """The dataset object that items come from, cached; building it first makes later items cheap.

    Raises TaskError as `build_task` does.
    """
    try:
        return _dataset(dataset, json.dumps(dict(config), sort_keys=True))
    except (TypeError, ValueError) as error:
        raise TaskError(f"the configuration of {dataset} is not plain data: {error}") from error


@functools.lru_cache(maxsize=64)
def _dataset(dataset: str, config_json: str) -> Any:
    config = json.loads(config_json)
    if dataset in interop.DATASETS:
        return interop.Items(dataset, config)
    if plugins.is_foreign(dataset):
        plugins.of(dataset)
        return plugins.Items(dataset, config)
    if dataset not in DATASETS:
        known = ", ".join(sorted(DATASETS | interop.DATASETS))
        raise TaskError(f"dataset {dataset!r} is not in the catalogue; known are {known}")
    refused = _OWN_KEYS & config.keys()
    if refused:
        raise TaskError(f"the configuration of {dataset} may not set {', '.join(sorted(refused))}")
    try:
        # Seed 0: item n of seed 0 is item 0 of seed n, for a dataset seeds each item with their sum.
        return _library().create_dataset(dataset, seed=0, size=1, **config)
    except (TypeError, ValueError, AssertionError, AttributeError) as error:
        raise TaskError(f"reasoning-gym refuses the configuration of {dataset}: {error}") from error


@functools.cache
def _library() -> Any:
    """reasoning_gym, imported on first use: it takes seconds and 100 MB that only builders of tasks should pay."""
    import reasoning_gym  # noqa: PLC0415
    from reasoning_gym.algorithmic import spell_backward  # noqa: PLC0415

    # It reads its word list anew for each dataset object; the sandbox reads no file once it is locked down.
    spell_backward.read_data_file = functools.cache(spell_backward.read_data_file)
    return reasoning_gym


def _task(dataset: str, item: Mapping[str, Any]) -> Task:
    answer = item["answer"]
    if answer is None:
        answer = item["metadata"]["example_answer"]
    return Task(dataset, str(item["question"]), str(answer))
