"""A node with a feed, without libp2p and without a sandbox: real rounds, and a real server on loopback."""

import random
from contextlib import asynccontextmanager

import pytest
import trio

from books import offer
from context import context_of
from sapo_node.app.config import Config
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.app.running_node import for_trainer, remote_policy, serve_feed
from sapo_node.app.state import SCHEMA, StateFolder
from sapo_node.feed.access import FILE
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import VerifiedGroup
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from swarm_parts import KnowingScorer

PATIENCE = 60
FILTERS = ("min-token-prob", "answer-likelihood")


class FedNode:
    """A node with a feed. Its state is in a folder, so that it can be killed and started again."""

    def __init__(self, folder, manifest, **settings):
        self.folder, self.manifest = folder, manifest
        self.settings = {"local": 2, "external": 2, "filters": FILTERS, **settings}
        self.published = []
        self.answers = {}
        self.reports = []

    @asynccontextmanager
    async def running(self, rounds=None):
        """The node, while it plays its rounds; they are cut short at the end, as by a kill."""
        self.database = Database(self.folder / "node.sqlite", SCHEMA)
        clock, rng = TrioClock(10 * self.manifest.epoch_seconds - trio.current_time()), random.Random(1)
        config = for_trainer(Config(train=False, feed="127.0.0.1:0", **self.settings))
        self.policy = remote_policy(config, self.manifest, self.database)
        self.node = build_node(
            config,
            context_of(self.manifest, rng, clock=clock),
            counters=Counters(self.database, self.manifest, now=clock.now(), key_is_new=True, rng=rng),
            database=self.database,
            scorer=KnowingScorer(self.answers),
            policy=self.policy,
            on_fatal=lambda error: pytest.fail(str(error)),
        )
        async with trio.open_nursery() as nursery:
            await serve_feed(nursery, self.node, self.policy, StateFolder(self.folder), lambda _: None)
            self.finished = trio.Event()
            nursery.start_soon(self._play, rounds)
            with trio.fail_after(PATIENCE):
                yield self
            nursery.cancel_scope.cancel()
        self.database.close()

    async def _play(self, rounds):
        await run_node(self.node, self._publish, rounds=rounds, on_round=self.reports.append)
        self.finished.set()

    async def _publish(self, topic, message):
        self.published.append(message)

    @property
    def file(self):
        return self.folder / FILE

    def offer(self, *counters):
        """External groups that wait in the book, as if they had been verified."""
        offer(self.node.book, [external(counter) for counter in counters])


def external(counter):
    texts = [f"2*3={6 if k % 2 else 7}. So <answer>{6 if k % 2 else 7}</answer>" for k in range(8)]
    return VerifiedGroup(
        *("peer", 10, counter, 0, "products", "What is 2 * 3?"),
        tuple(Sampled(text, "stop") for text in texts),
        Levels(tuple(k % 2 for k in range(8))),
    )


async def in_thread(function, *arguments):
    """Call what waits for the node, as a trainer in its own process does."""
    return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
