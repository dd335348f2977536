"""Rebuilds a task from its dataset, configuration and seed, the same on every machine with the pinned reasoning-gym.

The wire spec, reasoning-gym or another package defines a dataset. Each dataset yields items by seed. An item depends on
dataset, configuration and seed alone: this module takes no item, answer or metadata from a peer. It caches only what it
would rebuild identically (dataset objects, the word list).
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

from sapo_node.tasks import interop, plugins
from sapo_node.tasks.datasets import DATASETS
from sapo_node.tasks.library import build_first_items, create, undisturbed
from sapo_node.tasks.task import Task, TaskError

MAX_SEED = 2**32 - 1

_OWN_KEYS = frozenset({"seed", "size", "data_file"})
"""Keys that a configuration may not set: this module sets them, or they name a file."""

_ATTEMPTS = 64
"""Items of one seed to try. decimal_arithmetic divides by zero in 1 of 10,000 items, and about two in three items of
propositional_logic have no correct answer; then the next item is used."""


def build_task(dataset: str, config: Mapping[str, Any], seed: int) -> Task:
    """Return the task of `seed`. For reasoning-gym this is the first item of `create_dataset` that can be generated and
    answered.

    Raises TaskError if the dataset is not in the catalogue, the configuration is refused, the seed is out of range or
    none of 64 items can be used.
    """
    if not 0 <= seed <= MAX_SEED:
        raise TaskError(f"seed {seed} of {dataset} is outside 0 to {MAX_SEED}")
    source = prepare(dataset, config)
    with undisturbed():
        for index in range(_ATTEMPTS):
            try:
                item = source[seed + index]
            except ArithmeticError:
                continue
            if task := _task(dataset, item):
                return task
    raise TaskError(f"{dataset} yields no item for seed {seed}; change its configuration")


def prepare(dataset: str, config: Mapping[str, Any]) -> Any:
    """Return the dataset object that yields the items. It is cached, so that later items are cheap.

    Raises TaskError as `build_task` does.
    """
    try:
        return _dataset(dataset, json.dumps(dict(config), sort_keys=True))
    except (TypeError, ValueError) as error:
        raise TaskError(f"the configuration of {dataset} is not JSON: {error}") from error


@functools.lru_cache(maxsize=64)
def _dataset(dataset: str, config_json: str) -> Any:
    config = json.loads(config_json)
    if dataset in interop.DATASETS:
        return interop.Items(dataset, config)
    if plugins.is_foreign(dataset):
        plugins.of(dataset)
        return plugins.Items(dataset, config)
    if dataset not in DATASETS:
        known = ", ".join(sorted(DATASETS.keys() | interop.DATASETS))
        raise TaskError(f"dataset {dataset!r} is not in the catalogue; known are {known}")
    refused = _OWN_KEYS & config.keys()
    if refused:
        raise TaskError(f"the configuration of {dataset} may not set {', '.join(sorted(refused))}")
    row = DATASETS[dataset]
    _build_first_items(dataset)
    try:
        return create(dataset, row.module, {**row.defaults, **config}, per_seed=row.per_seed)
    except (TypeError, ValueError, AssertionError, AttributeError) as error:
        raise TaskError(f"reasoning-gym refuses the configuration of {dataset}: {error}") from error


@functools.cache
def _build_first_items(dataset: str) -> None:
    """Build items with the default configuration, whose time is known. Those of a manifest may take hours."""
    row = DATASETS[dataset]
    build_first_items(create(dataset, row.module, row.defaults, per_seed=row.per_seed))


def _task(dataset: str, item: Mapping[str, Any]) -> Task | None:
    answer = item["answer"]
    if answer is None:
        answer = _example(item["metadata"])
    task = Task(dataset, str(item["question"]), str(answer), item.get("metadata", {}))
    return DATASETS[dataset].mend(task) if dataset in DATASETS else task


def _example(metadata: Mapping[str, Any]) -> str:
    """Return the example of a dataset whose items name no answer: a text, or a map of vertices to colours as JSON."""
    if "example_answer" in metadata:
        return str(metadata["example_answer"])
    return json.dumps(metadata["possible_answer"], sort_keys=True)
