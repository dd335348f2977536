"""Budgets of a link: how much of one resource a peer may use per second, and how many connections a node takes.

A budget charges the link, which is the connection with a peer, and never the key that signed a message. Before there is
a connection, the address block of the peer stands for the link. A budget has a token bucket for each link, and may have
a second bucket for all links together. The MAX_LINKS links that were used last keep their buckets, so that to reconnect
gains nothing.

No budget is in seconds of CPU, because two runs of one simulation would differ. Each resource is counted in a unit to
which the work is proportional.

    budget = LinkBudget(rate=65_536, burst=2 * 2**20, for_all=(524_288, 8 * 2**20))
    if budget.take(peer_id, clock.now(), cost=len(answer)): ...
"""

from sapo_node.net.addresses import block_of
from sapo_node.processes.bounded import Bounded

MAX_LINKS = 4_096

CONNECTION_RATE, CONNECTION_BURST = 1.0, 64.0
"""Connections per second, and at once, from one address block. A site with fifty nodes can start them together."""
ALL_CONNECTIONS_RATE, ALL_CONNECTIONS_BURST = 8.0, 128.0
"""The same for all blocks from which no peer brought a message."""
REMEMBERED_BLOCKS = 1_024
"""Blocks whose peers brought messages; the node forgets the one that it used longest ago."""


class _Bucket:
    """Tokens that come back with time."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._last: float | None = None

    def left(self, now: float) -> float:
        passed = 0.0 if self._last is None else max(0.0, now - self._last)
        return min(self._burst, self._tokens + passed * self._rate)

    def spend(self, now: float, cost: float) -> None:
        self._tokens, self._last = self.left(now) - cost, now


class LinkBudget:
    """The budget of one resource."""

    def __init__(self, *, rate: float, burst: float, for_all: tuple[float, float] | None = None) -> None:
        """`rate` in tokens per second and `burst` in tokens, for each link. `for_all` is both, for all links."""
        self._rate = rate
        self._burst = burst
        self._all = _Bucket(*for_all) if for_all else None
        self._links: Bounded[str, _Bucket] = Bounded(MAX_LINKS)

    def left(self, link: str, now: float) -> float:
        """The tokens that a link can use at `now` (seconds)."""
        bucket = self._links.get(link)
        left = bucket.left(now) if bucket else self._burst
        return min(left, self._all.left(now)) if self._all else left

    def take(self, link: str, now: float, cost: float = 1.0) -> bool:
        """Take `cost` tokens at `now` (seconds); False, and none taken, when there are fewer."""
        allowed = self.left(link, now) >= cost
        self._spend(link, now, cost if allowed else 0.0)
        return allowed

    def take_rest(self, link: str, now: float, cost: float) -> float:
        """Take `cost` tokens, or as many as there are. Returns how many there were too few."""
        taken = min(cost, self.left(link, now))
        self._spend(link, now, taken)
        return cost - taken

    def _spend(self, link: str, now: float, cost: float) -> None:
        bucket = self._links.get(link) or _Bucket(self._rate, self._burst)
        self._links[link] = bucket
        bucket.spend(now, cost)
        if self._all:
            self._all.spend(now, cost)


class ConnectionRate:
    """Decides which new connections a node takes, before their handshakes.

    A handshake costs the node at least 2 ms of CPU, and its peer a quarter of that. So each address block has a rate,
    as in go-libp2p. All blocks together have a rate too, because an attacker may have many. Blocks of peers that
    brought accepted messages are free of the common rate, so that strangers who use it up do not lock them out.
    """

    def __init__(self) -> None:
        self._unknown = LinkBudget(
            rate=CONNECTION_RATE, burst=CONNECTION_BURST, for_all=(ALL_CONNECTIONS_RATE, ALL_CONNECTIONS_BURST)
        )
        self._useful = LinkBudget(rate=CONNECTION_RATE, burst=CONNECTION_BURST)
        self._useful_blocks: Bounded[str, None] = Bounded(REMEMBERED_BLOCKS)

    def admits(self, address: str, now: float) -> bool:
        """Return whether to take a connection from an IP address at `now` (seconds). If so, it counts."""
        block = block_of(address)
        return (self._useful if block in self._useful_blocks else self._unknown).take(block, now)

    def remember(self, address: str) -> None:
        """A peer at this IP address brought messages that were accepted."""
        self._useful_blocks[block_of(address)] = None
