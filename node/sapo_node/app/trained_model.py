"""Remembers which model the checkpoints of a node belong to: `export`, `chat` and `eval` need no options for it.

The node stores the settings when its learner has started: then its checkpoints fit them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sapo_node.app.config import Config, checked
from sapo_node.app.recipe import recipe_of
from sapo_node.groups.model_name import is_hub_name
from sapo_node.learner.catalogue import CATALOGUE
from sapo_node.storage.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS trained_model (id INTEGER PRIMARY KEY CHECK (id = 1), settings TEXT NOT NULL);
"""

_REMEMBERED = ("model", "lora", "lora_layers", "dtype", "thinking", "examples", "max_tokens")
"""Keys of the configuration."""


def remember(database: Database, config: Config) -> None:
    """Store the settings of the model that the node trains, with what `auto` stands for."""
    settings = asdict(config) | asdict(recipe_of(config)) | {"model": _place(config.model)}
    kept = {name: settings[name] for name in _REMEMBERED}
    database.execute("INSERT OR REPLACE INTO trained_model VALUES (1, ?)", json.dumps(kept))


def of_checkpoints(config: Config, database: Database, given: Mapping[str, Any]) -> Config:
    """Return the configuration for the checkpoints of a node: first the options in `given`, then what the node
    remembers, then the configuration. A node of version 0.1 remembers nothing.

    Raises LocalError for an invalid value.
    """
    known = database.row("SELECT 1 FROM sqlite_master WHERE name = 'trained_model'")
    remembered: dict[str, Any] = {}
    for stored in database.documents("SELECT settings FROM trained_model") if known else ():
        # The database may be that of a backup which somebody else made.
        remembered = checked({name: stored[name] for name in _REMEMBERED if name in stored}, "the node's database")
    return config.overridden(remembered).overridden(given)


def _place(model: str) -> str:
    """Return the model as `export` finds it from any folder: a path becomes absolute."""
    if model == "seed" or model in CATALOGUE or is_hub_name(model) or not Path(model).exists():
        return model
    return str(Path(model).resolve())
