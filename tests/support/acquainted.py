"""Both sides of asking whom a peer knows, around a network, without the rest of a node."""

import random

from context import context_of
from fetching import fetcher_of
from sapo_node.app.state import SCHEMA
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.sync import Responder, Synchroniser
from sapo_node.net.interface import Requests
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.trust.ledger import Ledger
from sapo_protocol import pull_protocol


def answering(manifest, network, *, seed):
    """What a node answers whose network is `network()`, when it is asked."""
    swarm, database = context_of(manifest, random.Random(seed)), Database(None, SCHEMA)
    message_store, ledger = MessageStore(manifest), Ledger(database)
    responder = Responder(
        swarm,
        message_store=message_store,
        ledger=ledger,
        peers=lambda: network().peers(),
        fetcher=fetcher_of(swarm, database, ledger, message_store),
    )
    return Requests(pull_protocol(manifest), responder.answer)


def asking(manifest, network, *, shards=None):
    """A node's asking, which follows these shards, or all."""
    database, rng = Database(None, SCHEMA), random.Random(0)
    ledger = Ledger(database)
    subscriptions = ShardSubscriptions(manifest, ledger, rng)
    if shards is not None:
        subscriptions.shards = frozenset(shards)
    return Synchroniser(
        context_of(manifest, rng),
        network,
        ingest=None,
        ledger=ledger,
        counters=Counters(database, manifest, now=0.0, key_is_new=True, rng=rng),
        subscriptions=subscriptions,
    )
