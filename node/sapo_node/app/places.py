"""The paths in a configuration file. A relative one begins at the folder of the file, and `~` is a home folder.

So a file names the same key, state, manifest and model from wherever a command is run. If they began at the working
directory, `start` from another folder would make a new key: a node that nobody knows, and that has learnt nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sapo_protocol import shipped_manifests
from sapo_protocol.files import expanded

PATHS = ("key", "state", "swarm", "model")
"""The keys of the configuration that may hold a path."""


def placed(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of a file in `folder`, with its paths as they are from the working directory.

    The names of shipped manifests and of models are no paths.
    """
    if folder == Path():
        return dict(values)
    return {name: _placed(name, value, folder.absolute()) for name, value in values.items()}


def _placed(name: str, value: Any, folder: Path) -> Any:
    if name not in PATHS or not value:
        return value
    value = expanded(value)
    is_path = (
        name in {"key", "state"}
        or (name == "swarm" and value not in shipped_manifests())
        or (name == "model" and value != "seed" and os.path.exists(folder / value))  # noqa: PTH110 - Path.exists raises for a long name
    )
    return str(folder / value) if is_path else value
