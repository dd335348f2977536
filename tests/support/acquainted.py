"""Both sides of asking whom a peer knows, around a network, without the rest of a node."""

import random

from sapo_node.app.state import SCHEMA
from sapo_node.ingest.shards import Earshot
from sapo_node.ingest.store import Shelf
from sapo_node.ingest.sync import Giver, Puller
from sapo_node.net.interface import Requests
from sapo_node.processes.clock import SystemClock
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.trust.ledger import Ledger
from sapo_protocol import pull_protocol


def answering(manifest, network, *, seed):
    """What a node answers whose network is `network()`, when it is asked."""
    rng = random.Random(seed)
    giver = Giver(
        manifest=manifest,
        shelf=Shelf(manifest),
        ledger=Ledger(Database(None, SCHEMA), rng=rng),
        clock=SystemClock(),
        peers=lambda: network().peers(),
        rng=rng,
    )
    return Requests(pull_protocol(manifest), giver.answer)


def asking(manifest, network, *, shards=None):
    """A node's asking, which follows these shards, or all."""
    database, rng = Database(None, SCHEMA), random.Random(0)
    ledger = Ledger(database, rng=rng)
    earshot = Earshot(manifest, ledger, rng)
    if shards is not None:
        earshot.shards = frozenset(shards)
    return Puller(
        ask=network.ask,
        peers=network.peers,
        introduce=network.introduce,
        ingest=None,
        ledger=ledger,
        manifest=manifest,
        counters=Counters(database, manifest, now=0.0, key_is_new=True, rng=rng),
        clock=SystemClock(),
        earshot=earshot,
        rng=rng,
    )
