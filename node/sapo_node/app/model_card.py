"""Gathers from the database of a node what the card of an exported model tells."""

from collections.abc import Mapping
from typing import Any, get_args

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.groups.messages import FilterName, reason_of
from sapo_node.groups.stats import Interval
from sapo_node.learner.card import CardFacts, Evaluation
from sapo_node.learner.catalogue import CATALOGUE
from sapo_node.observability.overview import overview
from sapo_node.storage.database import Database
from sapo_protocol import Manifest

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
