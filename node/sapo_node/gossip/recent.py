"""The messages of the last heartbeats: offered to peers outside of the mesh, and sent to those that request them."""

from collections.abc import Iterable

OFFERED_BEATS = 3  # heartbeats for which a message is offered
KEPT_BEATS = 5  # heartbeats for which it is kept


class Recent:
    """Recent messages as encoded fields of an RPC, by message id."""

    def __init__(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._beats: list[list[tuple[bytes, bytes]]] = [[] for _ in range(KEPT_BEATS)]
        """(topic, message id) of each heartbeat, the newest first."""

    def add(self, topic: bytes, key: bytes, field: bytes) -> None:
        if key not in self._fields:
            self._fields[key] = field
            self._beats[0].append((topic, key))

    def offered(self) -> dict[bytes, list[bytes]]:
        """The ids of the messages to offer, by topic."""
        found: dict[bytes, list[bytes]] = {}
        for beat in self._beats[:OFFERED_BEATS]:
            for topic, key in beat:
                found.setdefault(topic, []).append(key)
        return found

    def find(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The fields of those of the messages that are kept, by id."""
        return {key: self._fields[key] for key in keys if key in self._fields}

    def beat(self) -> None:
        """A heartbeat passed: drop the messages that are too old."""
        for _, key in self._beats.pop():
            del self._fields[key]
        self._beats.insert(0, [])
