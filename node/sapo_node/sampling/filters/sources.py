"""Sources: the correct completions of peers that the `n-gram` filter looks at, in one window for each source.

Completions that peers offer are counted when their group is read: over all peers, over each tier and over each peer.
Completions that this node trained on are counted once more, in a window of their own. A peer decides what it offers,
and may offer any number of clean groups that are never trained on. It does not decide what is trained on.
"""

from collections import Counter, deque
from collections.abc import Iterable

from sapo_node.sampling.filters.habits import Habit, Window
from sapo_node.sampling.filters.texts import Sent, Stored
from sapo_node.trust.constants import Tier

POOLED = 512
"""Newest prompts that count of all peers together; of each tier, those among them."""
REMEMBERED = 96
"""Newest prompts that count of each peer."""
TRAINED = 128
"""Newest prompts that count of those that were trained on: those of eight rounds or more."""
PEERS = 64
"""Peers that are looked at one by one: those that sent completions last."""
HABITS, JUDGED_HABITS = 1024, 4096
"""Habits that count of one prompt: of all, and of those that can be judged. Long texts of random words show any number.
Of what can be judged far more count, as a phrase could else hide among habits that every text shows."""
HABITS_OF_PEERS = 2 * POOLED * HABITS
"""Habits, prompt by prompt, that count of the peers one by one. Many peers with long texts would fill the memory."""


class Sources:
    """The windows of all sources, and the texts behind them as far as they are stored."""

    def __init__(self) -> None:
        self.all = Window(POOLED)
        """Of all peers."""
        self.of_tier = {tier: Window(POOLED) for tier in Tier}
        self.of_peer: dict[str, Window] = {}
        """The peer that was heard from longest ago comes first."""
        self.trained = Window(TRAINED)
        self.offered_texts: Stored[Sent] = Stored(POOLED)
        self.trained_texts: Stored[Sent] = Stored(TRAINED)
        self._tiers: deque[Tier] = deque()
        """Of the prompts that count in `all`, oldest first."""

    @property
    def pools(self) -> tuple[Window, ...]:
        """The windows that hold completions of many peers."""
        return (self.all, *self.of_tier.values(), self.trained)

    def peers(self, names: Iterable[str]) -> list[Window]:
        """The windows of some peers, without those of which nothing is known."""
        return [self.of_peer[name] for name in names if name in self.of_peer]

    def offer(self, sent: Sent, shares: Counter[Habit]) -> None:
        """Count what the completions of a prompt on offer show."""
        if len(self._tiers) == POOLED:
            # A tier from which nothing comes any more, because its peers are proven by now, would else be judged for
            # ever by what this policy left behind long ago.
            self.of_tier[self._tiers.popleft()].forget_oldest()
        self._tiers.append(sent.tier)
        self.offered_texts.add(sent)
        of_peer = self.of_peer.pop(sent.peer, None) or Window(REMEMBERED)
        self.of_peer[sent.peer] = of_peer
        for window in (of_peer, self.all, self.of_tier[sent.tier]):
            window.add(sent.dataset, shares)
        while len(self.of_peer) > PEERS or self._habits_of_peers() > HABITS_OF_PEERS:
            del self.of_peer[next(iter(self.of_peer))]

    def train(self, sent: Sent, shares: Counter[Habit]) -> None:
        """Count what the completions of a prompt show that were trained on."""
        self.trained_texts.add(sent)
        self.trained.add(sent.dataset, shares)

    def _habits_of_peers(self) -> int:
        return sum(window.habits for window in self.of_peer.values())
