"""What each peer follows, by the stream on which it says so.

A peer names all that it follows in the first RPC of a stream, and later each change. Its streams overlap where its
connections do, and RPCs of two streams are read in any order: a peer that restarts may be back before its old stream
has ended, and what it wrote last on the old one may be read after what it wrote first on the new one. So the stream
counts that was the last to name everything. When it ends, the one before counts again.
"""

from collections.abc import Collection, Iterable
from typing import Any

from sapo_node.net.rpc_limits import SUBSCRIPTIONS


class Subscriptions:
    """Of all peers, and only to the topics of this node."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._named: dict[Any, dict[Any, set[str]]] = {}
        """By peer and stream, the latest stream last."""

    def hear(self, peer: Any, stream: Any, subscriptions: Iterable[Any]) -> None:
        """Note the subscriptions of one RPC."""
        named = self._named.setdefault(peer, {}).setdefault(stream, set())
        for each in subscriptions:
            if not each.subscribe:
                named.discard(each.topicid)
            elif each.topicid in self._topics and len(named) < SUBSCRIPTIONS:
                named.add(each.topicid)

    def end(self, peer: Any, stream: Any) -> None:
        """The stream has ended."""
        streams = self._named.get(peer, {})
        streams.pop(stream, None)
        if not streams:
            self._named.pop(peer, None)

    def of(self, peer: Any) -> set[str] | None:
        """What the peer follows; None if no open stream of it has named anything."""
        streams = self._named.get(peer)
        return next(reversed(streams.values())) if streams else None
