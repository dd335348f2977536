"""Budgets of a link: how much of one resource a peer may use per second.

A budget charges the link, which is the connection with a peer, and never the key that signed a message. A budget has a
token bucket for each link, and may have a second bucket for all links together. A part of a link's tokens may be
assured: the link has them even when the other links have emptied the bucket for all. The MAX_LINKS links that were used
last keep their buckets, so that to reconnect gains nothing.

No budget is in seconds of CPU, because two runs of one simulation would differ. Each resource is counted in a unit to
which the work is proportional.

    budget = LinkBudget(rate=65_536, burst=2 * 2**20, for_all=(524_288, 8 * 2**20))
    if budget.take(peer_id, clock.now(), cost=len(answer)): ...
"""

from sapo_node.processes.bounded import Bounded

MAX_LINKS = 4_096

Rate = tuple[float, float]
"""Tokens per second, and at once."""


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

    def __init__(self, *, rate: float, burst: float, for_all: Rate | None = None, assured: Rate = (0.0, 0.0)) -> None:
        """`rate` in tokens per second and `burst` in tokens, for each link. `for_all` is both, for all links. `assured`
        is both, for the part of each link that does not count for all.
        """
        self._rate = rate
        self._burst = burst
        self._all = _Bucket(*for_all) if for_all else None
        self._assured = assured
        self._links: Bounded[str, tuple[_Bucket, _Bucket]] = Bounded(MAX_LINKS)

    def left(self, link: str, now: float) -> float:
        """The tokens that a link can use at `now` (seconds)."""
        bucket, assured = self._of(link)
        left = bucket.left(now)
        return min(left, assured.left(now) + self._all.left(now)) if self._all else left

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

    def owe(self, link: str, now: float, cost: float) -> float:
        """Take `cost` tokens, also those that there are too few. Returns the seconds until they have come back."""
        self._spend(link, now, cost)
        bucket, _ = self._of(link)
        return max(0.0, -bucket.left(now) / self._rate)

    def give_back(self, link: str, now: float, cost: float) -> None:
        """Give back tokens that were taken and not used."""
        self._spend(link, now, -cost)

    def _of(self, link: str) -> tuple[_Bucket, _Bucket]:
        """The bucket of a link, and the bucket of the part that is assured."""
        return self._links.get(link) or (_Bucket(self._rate, self._burst), _Bucket(*self._assured))

    def _spend(self, link: str, now: float, cost: float) -> None:
        bucket, assured = self._links[link] = self._of(link)
        bucket.spend(now, cost)
        if self._all:
            # Tokens that are given back go to the bucket for all. If they went to the assured part, a link that takes
            # tokens and gives them back would empty the bucket for all.
            own = min(max(0.0, cost), assured.left(now))
            assured.spend(now, own)
            self._all.spend(now, cost - own)
