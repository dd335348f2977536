"""Keeps the state of filters, pass rates and local/external ratio through a restart.

A round saves all parts after its step, in one transaction. A node that is killed between the two has not learnt from
that one round. A filter of which the texts are longer than it may store goes on with the newest of them. State that
this version cannot read is forgotten with a warning: it must not keep a node from starting.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from sapo_node.groups.codec import MalformedError
from sapo_node.storage.database import Database

logger = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS sampling_state (part TEXT PRIMARY KEY, step INTEGER NOT NULL, state TEXT NOT NULL) STRICT;
"""


class Part(Protocol):
    """A part with state. Each part bounds the size of its own state."""

    def state_dict(self) -> dict[str, Any]:
        """The state as plain JSON; empty if there is nothing to keep."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state. Raises MalformedError, and changes nothing, if it is of another form."""
        ...


class Memory:
    """The parts of one node, by name, in its database."""

    def __init__(self, database: Database, parts: Mapping[str, Part]) -> None:
        """Gives each part the state that was saved last. Raises StateError if the database is damaged."""
        self._database = database
        self._parts = parts
        for name, part in parts.items():
            for state in database.documents("SELECT state FROM sampling_state WHERE part = ?", name):
                try:
                    part.load_state_dict(state)
                except MalformedError as error:
                    logger.warning("the state of %s is of another version and is forgotten: %s", name, error)

    def save(self, step: int) -> None:
        """Keep what all parts know after a step, and nothing of parts that are no longer used."""
        with self._database.transaction():
            self._database.execute("DELETE FROM sampling_state")
            for name, part in self._parts.items():
                if state := part.state_dict():
                    self._database.execute(
                        "INSERT INTO sampling_state VALUES (?, ?, ?)", name, step, json.dumps(state, ensure_ascii=False)
                    )
