"""Remembers the model of a node's checkpoints: `export`, `chat` and `eval` need no options for it.

The node stores the settings when its learner has started: then its checkpoints fit them. If the learner has no
checkpoint, and its policy is another one than before, the node starts over: it forgets what it knows of the policy
before, because those tokens and figures mean nothing for the new one.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from sapo_node.app.config import Config, checked
from sapo_node.app.recipe import recipe_of
from sapo_node.groups.messages import FilterName, Ready, is_hub_name, reason_of, trained_part
from sapo_node.groups.stats import Interval
from sapo_node.learner.card import CardFacts, Evaluation
from sapo_node.learner.catalogue import CATALOGUE
from sapo_node.observability.overview import overview
from sapo_node.storage.database import Database
from sapo_protocol import LocalError, Manifest

logger = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS trained_model (id INTEGER PRIMARY KEY CHECK (id = 1), settings TEXT NOT NULL) STRICT;
"""

OF_POLICY = (
    *("batches", "checkpoints", "counted", "trained", "taken_back", "health", "health_alarms", "sampling_state"),
    *("rounds", "curve", "exams"),
)
"""Tables of what a node knows of the policy that it trains. The others are of its key, its peers and their groups: a
counter that is used twice gets the key banned, whatever the node trains.
"""

_REMEMBERED = ("model", "lora", "lora_layers", "dtype", "thinking", "examples", "max_tokens")
"""Keys of the configuration."""
_FINGERPRINT = "fingerprint"


def remember(database: Database, config: Config, ready: Ready) -> None:
    """Store the settings of the model that the node trains, with what `auto` stands for, and start over if the
    learner is `ready` to train another policy from its first step. Call this before anything reads what is known of the
    policy.
    """
    settings = asdict(config) | asdict(recipe_of(config)) | {"model": _place(config.model)}
    kept = {name: settings[name] for name in _REMEMBERED} | {_FINGERPRINT: ready.fingerprint}
    # Durably: the learner may have written a checkpoint before a power cut that brings the policy before back.
    with database.transaction(durable=True):
        known = [stored.get(_FINGERPRINT) for stored in database.documents("SELECT settings FROM trained_model")]
        # A version that stored no fingerprint may have stored batches of this policy.
        if ready.step == 0 and any(each not in (None, ready.fingerprint) for each in known):
            _start_over(database)
            logger.warning(
                "the node starts over with %s: rounds, evaluations and alarms of the model before are forgotten, and "
                "what the node knows of its peers stays",
                ready.model,
            )
        database.execute("INSERT OR REPLACE INTO trained_model VALUES (1, ?)", json.dumps(kept))


def require_same_policy(database: Database, config: Config, checkpoints: Path) -> None:
    """Raise LocalError if the checkpoints of a node are of another model than that of `config`, or of other adapters.

    The learner would refuse them, but only after it has loaded the model.
    """
    stored = [*database.documents("SELECT settings FROM trained_model")]
    if not stored or not any(checkpoints.glob("step-*")):
        return
    model, lora, layers = (stored[0][name] for name in ("model", "lora", "lora_layers"))
    adapters = lora, layers if lora else 0
    if (_place(config.model) == model or _has_moved(config, stored[0])) and _adapters(config) == adapters:
        return
    raise LocalError(
        f"the checkpoints in {checkpoints} belong to {model} ({trained_part(*adapters)}); give --model {model} --lora "
        f"{adapters[0]} --lora-layers {adapters[1]}, or move that folder away to start over"
    )


def _adapters(config: Config) -> tuple[int, int]:
    lora = recipe_of(config).lora
    return lora, config.lora_layers if lora else 0


def _has_moved(config: Config, stored: Mapping[str, Any]) -> bool:
    """Return whether the files of the model are those of the checkpoints, under another path or name."""
    # Imported here: it takes half a second, which most starts need not wait.
    from sapo_node.learner.folder import ModelError, fingerprint, model_folder  # noqa: PLC0415

    try:
        return fingerprint(model_folder(config.model), *_adapters(config)) == stored.get(_FINGERPRINT)
    except ModelError:
        return False  # it is not on this machine


def _start_over(database: Database) -> None:
    for table in OF_POLICY:
        database.execute(f"DELETE FROM {table}")  # noqa: S608 - ours
    database.execute("DELETE FROM groups WHERE step IS NOT NULL")
    database.execute("UPDATE groups SET needed = 0")


def of_checkpoints(config: Config, database: Database, given: Mapping[str, Any]) -> Config:
    """Return the configuration for the checkpoints of a node: first the options in `given`, then what the node
    remembers, then the configuration.

    Raises LocalError for an invalid value.
    """
    remembered: dict[str, Any] = {}
    for stored in database.documents("SELECT settings FROM trained_model"):
        # The database may come from a backup of another person.
        remembered = checked({name: stored[name] for name in _REMEMBERED if name in stored}, "the node's database")
    return config.overridden(remembered).overridden(given)


def _place(model: str) -> str:
    """Return the model as `export` finds it from any folder: a path becomes absolute."""
    if model == "seed" or model in CATALOGUE or is_hub_name(model) or not Path(model).exists():
        return model
    return str(Path(model).resolve())


_APACHE = "apache-2.0"
"""Licence of the model in the package, as the hub spells it."""


def card_facts(config: Config, manifest: Manifest, database: Database) -> CardFacts:
    """Return the facts for the card of the model that `config` names."""
    view = overview(database, peers=None)
    filters = {reason_of(name) for name in get_args(FilterName)}
    return CardFacts(
        base=CATALOGUE[config.model].base if config.model in CATALOGUE else config.model_label,
        swarm=manifest.name,
        network_id=manifest.network_id.hex(),
        license=_license(config.model),
        examples=recipe_of(config).examples,
        evaluations=tuple(_evaluation(each) for each in view.evaluations),
        local_tokens=view.own_tokens,
        external_tokens=view.other_tokens,
        peers=sum(peer.trained_tokens > 0 for peer in view.peers),
        filtered={why: count for why, count in view.counts.items() if why in filters and count},
        taken_back=len(view.taken_back),
        health_alarms=len(view.health_alarms),
    )


def _license(model: str) -> str:
    if model == "seed":
        return _APACHE
    return CATALOGUE[model].licence.lower() if model in CATALOGUE else ""


def _evaluation(stored: Mapping[str, Any]) -> Evaluation:
    tasks = {task: _interval(figures) for task, figures in stored["per_task"].items()}
    return Evaluation(stored["step"], _interval(stored), tasks)


def _interval(figures: Mapping[str, float]) -> Interval:
    return Interval(figures["pass_at_1"], figures["low"], figures["high"])
