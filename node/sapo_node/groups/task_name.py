"""The name by which a node tells the tasks of its swarm apart: everything that is counted or kept by task uses it."""

from collections.abc import Mapping
from typing import Any

from sapo_protocol import Manifest


def task_name(manifest: Manifest, dataset: str, config: Mapping[str, Any]) -> str:
    """Return the name of the task that has this dataset and configuration: the name of the dataset, with a number in
    the order of the manifest where the manifest has several configurations of the dataset (`chain_sum 2`).
    """
    configs: list[Mapping[str, Any]] = []
    for spec in manifest.tasks:
        if spec.dataset == dataset and spec.config not in configs:
            configs.append(spec.config)
    return dataset if len(configs) == 1 else f"{dataset} {1 + configs.index(config)}"
