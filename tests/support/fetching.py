"""The parts of a node that fetch bodies, without the rest of it."""

from sapo_node.groups.book import Turn
from sapo_node.ingest.fetch import Fetcher
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.validator import ReplayWindow
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.database import Database
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Verifier
from sapo_protocol import Rollout


def fetcher_of(
    swarm: SwarmContext, database: Database, ledger: Ledger, message_store: MessageStore | None = None
) -> Fetcher:
    """A fetcher that does not run until it is told to."""
    return Fetcher(
        swarm,
        message_store=message_store or MessageStore(swarm.manifest),
        ledger=ledger,
        window=ReplayWindow(database, swarm.manifest),
    )


def turn_of(verifier: Verifier, rollout: Rollout) -> Turn:
    """One turn for all groups of a rollout."""
    return verifier.spare(Turn(rollout, tuple(range(len(rollout.bodies)))))
