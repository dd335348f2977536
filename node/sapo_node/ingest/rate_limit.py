"""Token buckets: how many messages this node takes from one peer, and how many bytes it gives to one."""

from collections import OrderedDict

MAX_SENDERS = 4_096


class SenderQuota:
    """One bucket per sender; the longest unused are forgotten."""

    def __init__(self, *, rate: float, burst: float) -> None:
        """`rate` in tokens per second, `burst` in tokens: messages or bytes."""
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, sender: str, now: float) -> float:
        """The tokens that there are at `now` (seconds)."""
        tokens, last = self._buckets.get(sender, (self._burst, now))
        return min(self._burst, tokens + max(0.0, now - last) * self._rate)

    def take(self, sender: str, now: float, cost: float = 1.0) -> bool:
        """Take `cost` tokens at `now` (seconds); False, and none taken, when there are fewer."""
        tokens = self.left(sender, now)
        allowed = tokens >= cost
        self._buckets[sender] = (tokens - cost if allowed else tokens, now)
        self._buckets.move_to_end(sender)
        if len(self._buckets) > MAX_SENDERS:
            self._buckets.popitem(last=False)
        return allowed
