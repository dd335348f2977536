"""Tasks that other packages bring, each a module named by an entry point: who installs the package decides, and nobody
else.

Such a module has `SCORER_VERSION`, which a manifest names; `item(config, seed)`, which returns question and answer and
raises ValueError for a configuration that it does not take; and `earns(question, answer, given)`, which tells whether
what a completion holds between its tags is right. Its dataset has a dot in its name, as none of ours has.

It runs in the jail: what it needs is imported when it is, and later it can read no file and open no socket.
"""

import functools
import importlib.metadata
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sapo_node.tasks.task import TaskError

logger = logging.getLogger(__name__)

GROUP = "sapo_node.tasks"
"""The group of the entry points."""


class Plugin(Protocol):
    """What such a module has."""

    SCORER_VERSION: int

    def item(self, config: Mapping[str, Any], seed: int) -> tuple[str, str]: ...

    def earns(self, question: str, answer: str, given: str) -> bool: ...


def is_foreign(dataset: str) -> bool:
    """Whether a dataset is one that another package brings, by its name."""
    return "." in dataset


@functools.cache
def installed() -> Mapping[str, Plugin]:
    """What is installed, imported, by dataset. What cannot be imported, or is named like one of ours, is left out."""
    found: dict[str, Plugin] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        if not is_foreign(point.name):
            logger.warning("the task %s has no dot in its name and is left out", point.name)
            continue
        try:
            plugin = point.load()
            found[point.name] = plugin
        except Exception:
            logger.exception("the task %s cannot be imported and is left out", point.name)
    return found


def of(dataset: str) -> Plugin:
    """The module of a dataset. Raises TaskError where it is not installed."""
    if plugin := installed().get(dataset):
        return plugin
    raise TaskError(f"dataset {dataset!r} is brought by a package that is not installed here")


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one dataset under one configuration, by seed; as reasoning-gym gives them."""

    dataset: str
    config: Mapping[str, Any]

    def __getitem__(self, seed: int) -> Mapping[str, str]:
        try:
            question, answer = of(self.dataset).item(self.config, seed)
        except ValueError as error:
            raise TaskError(f"{self.dataset} refuses its configuration: {error}") from error
        return {"question": question, "answer": answer}
