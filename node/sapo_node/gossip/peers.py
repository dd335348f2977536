"""The connected peers: what each follows, and what waits for it."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from sapo_node.gossip.outbox import Outbox


@dataclass(slots=True)
class Peer:
    """A connected peer.

    A peer names all its topics in the first RPC of a stream, and later each change. Two streams of a peer may overlap,
    and the node reads their RPCs in any order: a peer that restarts may be back before its old stream has ended. So the
    newest stream counts. When it ends, the stream before it counts again.
    """

    name: str
    identity: bytes
    """Its peer id as messages hold it."""
    outbound: bool
    """True if this node dialled it."""
    outbox: Outbox
    follows: set[bytes] = field(default_factory=set)
    """The topics of this swarm that it follows."""
    streams: dict[int, set[bytes] | None] = field(default_factory=dict)
    """By gossip stream that the peer opened, the newest last: the topics that it named there; None if it named none."""

    def hear(self, stream: int, subscriptions: Iterable[Any], known: Container[bytes]) -> None:
        """Note the subscriptions of one RPC to `known` topics."""
        named = self.streams.get(stream) or set()
        self.streams[stream] = named
        for each in subscriptions:
            if not each.subscribe:
                named.discard(each.topic)
            elif each.topic in known:
                named.add(each.topic)

    @property
    def named(self) -> set[bytes]:
        """The topics that the open streams name; those that it follows if none of them has named one."""
        return next((named for named in reversed(self.streams.values()) if named is not None), self.follows)
