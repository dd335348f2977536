"""Token buckets: how many messages this node takes from one sender, charged before any work is done for them."""

from collections import OrderedDict

MAX_SENDERS = 4_096


class SenderQuota:
    """One bucket per sender; the longest unused are forgotten."""

    def __init__(self, *, rate: float, burst: float) -> None:
        """`rate` in messages per second, `burst` in messages."""
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, sender: str, now: float) -> bool:
        """Take one token at `now` (seconds); False when there is none."""
        tokens, last = self._buckets.pop(sender, (self._burst, now))
        tokens = min(self._burst, tokens + max(0.0, now - last) * self._rate)
        allowed = tokens >= 1
        self._buckets[sender] = (tokens - allowed, now)
        if len(self._buckets) > MAX_SENDERS:
            self._buckets.popitem(last=False)
        return allowed
