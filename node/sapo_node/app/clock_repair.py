"""Repairs a state whose epoch is ahead of the clock: the clock was wrong, and the node believed it.

Such a node publishes rollouts that no peer accepts, and refuses those of its peers, until the clock reaches its epoch.
After the repair it listens for two epochs and then goes on. Counters that it used in later epochs stay used. If the
state no longer knows all of them (`counters.KEPT_EPOCHS`), it is not repaired.
"""

import random
import time
from contextlib import closing

from sapo_node.app.state import SCHEMA, StateFolder, locked
from sapo_node.ingest.validator import ReplayWindow
from sapo_node.storage.clock_guard import JUMP_EPOCHS, stored_epoch
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.location import StateLocation
from sapo_node.trust import ledger
from sapo_protocol import Manifest, epoch_at


def epochs_ahead(database: Database, manifest: Manifest, now: float) -> int:
    """Return how many epochs a state is ahead of the clock; 0 if they are so few that the node waits for them."""
    epoch = stored_epoch(database)
    ahead = 0 if epoch is None else epoch - epoch_at(manifest, now)
    return ahead if ahead > JUMP_EPOCHS else 0


def return_to_clock(folder: StateFolder, manifest: Manifest) -> int:
    """Set a state back to the epoch of the clock. Return that epoch.

    The clock must be right. Raises LocalError if a node runs on the state, if the clock is not behind it, or if the
    state was ahead for too long.
    """
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database, database.transaction(durable=True):
        now = time.time()
        location = StateLocation(folder.path)
        counters = Counters(database, manifest, now=now, key_is_new=False, rng=random.SystemRandom(), location=location)
        epoch = counters.return_to_clock(now)
        ReplayWindow(database, manifest).return_to(epoch)
        ledger.return_to(database, epoch)
    return epoch
