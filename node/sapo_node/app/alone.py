"""Plays the rounds of a node once more without peers, and measures what the node would have learnt alone.

It begins with the same initial weights and has the same settings, but takes no external groups. Its rounds are those
of a node: the tasks of a key of its own, the same learner, and the same evaluations on the same held-out prompts. It
has no network, publishes nothing, and does not use the node's key. So the node may be running.

Its state is the folder `alone` in the node's state folder. If it is stopped, it goes on from there. Its evaluations go
to the node's database, for `status` and the page.

    await play_alone(config, manifest, folder, rounds=100, on_round=print)
"""

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.config import Config
from sapo_node.app.learner_options import learner_options
from sapo_node.app.node import Node, build_node
from sapo_node.app.recipe import recipe_of
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA, StateFolder, locked
from sapo_node.app.trained_model import remember
from sapo_node.learner.client import Learner
from sapo_node.observability.history import History
from sapo_node.storage import counters
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.training.policy import Policy
from sapo_node.training.round import Phase
from sapo_node.verification.catalogue import build_examples, require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, Manifest


def alone_folder(folder: StateFolder) -> StateFolder:
    """Return the state folder of the rounds that a node plays alone."""
    return StateFolder(folder.path / "alone")


@dataclass(frozen=True, slots=True)
class RoundClock:
    """Time that only rounds move. An epoch lasts half as many rounds as it allows, so no round waits for an epoch."""

    manifest: Manifest
    policy: Policy

    def now(self) -> float:
        """Unix time: that of the genesis before the first round."""
        return self.manifest.genesis + self.steady()

    def steady(self) -> float:
        """Seconds since the genesis."""
        return 2 * self.policy.step * self.manifest.epoch_seconds / self.manifest.max_rounds


async def play_alone(
    config: Config, manifest: Manifest, folder: StateFolder, *, rounds: int, on_round: Callable[[int], None]
) -> None:
    """Play until `rounds` rounds are played, those of earlier calls included. `folder` is that of the node, and
    `on_round` is called with the number of each round that is played.

    Raises LocalError for an error that only the operator can fix.
    """
    config, own = replace(config, external=0), alone_folder(folder)
    with (
        locked(own),
        closing(Database(own.database, SCHEMA)) as database,
        closing(Database(folder.database, SCHEMA)) as of_node,
        closing(Database(None, (counters.SCHEMA,))) as of_counters,
    ):
        sandbox, learner = Sandbox(), Learner(learner_options(config, manifest, own))
        async with trio.open_nursery() as nursery:
            await nursery.start(sandbox.run)
            await require_catalogue(manifest, sandbox)
            await nursery.start(learner.run)
            remember(database, config, learner.ready)
            node = await _node(config, manifest, database, sandbox, learner, of_counters=of_counters)
            assert node.trainer is not None
            evaluations = Evaluations(database, of_node)
            left = max(0, rounds - node.trainer.stored_step)
            await run_node(
                node,
                publish_nothing,
                rounds=left,
                on_round=lambda report: on_round(report.step),
                on_phase=evaluations.phase,
            )
            nursery.cancel_scope.cancel()


async def _node(
    config: Config, manifest: Manifest, database: Database, sandbox: Sandbox, learner: Learner, *, of_counters: Database
) -> Node:
    """`of_counters` is empty. The key is new in each call, so none of its counters is used. Those of earlier calls
    could use up an epoch, and the epoch would never end, because only rounds move the clock.
    """
    clock, rng = RoundClock(manifest, learner), random.SystemRandom()
    return build_node(
        config,
        SwarmContext(manifest, clock, Identity(Ed25519PrivateKey.generate()), rng),
        database=database,
        counters=Counters(of_counters, manifest, now=clock.now(), key_is_new=True, rng=rng),
        scorer=sandbox,
        policy=learner,
        examples=await build_examples(manifest, sandbox, recipe_of(config).examples),
        on_fatal=_raise,
    )


class Evaluations:
    """Copies each evaluation to the node's database when it is over."""

    def __init__(self, alone: Database, of_node: Database) -> None:
        self._alone = alone
        self._of_node = of_node
        self._phase: Phase | None = None
        self._copy()

    def phase(self, phase: Phase | None) -> None:
        if self._phase == "evaluate":
            self._copy()
        self._phase = phase

    def _copy(self) -> None:
        """Without `at`, which is of RoundClock."""
        evaluations = History(self._alone).evaluations()
        for each in evaluations:
            each.pop("at", None)
        History(self._of_node).keep_alone(evaluations)


async def publish_nothing(topic: str, message: bytes) -> None:
    """Publish to nobody."""
    del topic, message


def _raise(error: LocalError) -> None:
    raise error
