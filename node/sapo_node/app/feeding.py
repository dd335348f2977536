"""Gives a node a foreign trainer as its policy: its settings, the policy, and the service for the trainer."""

from collections.abc import Callable
from dataclasses import replace

import trio

from sapo_node.app.config import Config
from sapo_node.app.node import Node
from sapo_node.app.recipe import recipe_of
from sapo_node.app.state import StateFolder
from sapo_node.contributors.rounds import answer_seconds
from sapo_node.feed.policy import RemotePolicy
from sapo_node.feed.server import FeedServer
from sapo_node.observability.dashboard import parse_place
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import BatchLog, last_counted
from sapo_protocol import LocalError, Manifest

_INTERVAL = 1.0
"""Seconds between two looks at the epoch."""


def for_trainer(config: Config) -> Config:
    """The settings of a node whose policy is a foreign trainer. The trainer evaluates its weights by itself, and each
    of its reports may name a new checkpoint. The label that peers see must not name the packaged policy.
    """
    model = "trainer" if config.model == "seed" else config.model
    return replace(config, eval_every=0, checkpoint_every=1, model=model)


def remote_policy(config: Config, manifest: Manifest, database: Database) -> RemotePolicy:
    """The policy of a node whose steps a foreign trainer takes."""
    log = BatchLog(database)
    return RemotePolicy(
        step=last_counted(database),
        newest=lambda: log.newest,
        filters=config.filters,
        max_bytes=manifest.max_completion_bytes,
        answer_seconds=answer_seconds(manifest),
    )


async def serve_feed(
    nursery: trio.Nursery, node: Node, policy: RemotePolicy, folder: StateFolder, tell: Callable[[str], None]
) -> None:
    """Start the service. Raises LocalError for an address that it cannot have."""
    place = parse_place(node.config.feed, "feed")
    if place is None:
        raise LocalError("feed is off")
    server = FeedServer(
        policy,
        place,
        folder.path,
        completions=node.swarm.manifest.completions,
        max_tokens=recipe_of(node.config).max_tokens,
    )
    await nursery.start(server.run)
    nursery.start_soon(_stay_current, node)
    tell(f"a trainer finds this node through {server.file}")


async def _stay_current(node: Node) -> None:
    """Enter each epoch and keep the counts, also while the node waits for the trainer."""
    while True:
        node.epochs.enter_current()
        node.tally.count()
        await trio.sleep(_INTERVAL)
