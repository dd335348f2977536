"""The gossip score of a peer: how much it delivers in comparison with the mesh, and how it behaves.

    score = min(first deliveries, POSITIVE_MOST) - DEFICIT_WEIGHT * (deficit^2 of each topic + failures)
            - (offences beyond TOLERATED)^2

The form is that of the GossipSub 1.1 peer score: first deliveries are its P2, deficits its P3, failures its P3b and
offences its P7. The positive term is at most a quarter of one topic's full deficit. So a peer that forwards nothing on
one topic has a negative score, whatever it does on other topics (CVE-2022-47547).

Everything here is a value or a bounded table. Every call takes the time as its first argument. A peer with a negative
score stays out of the mesh until its score has recovered. A peer that floods cannot connect for two minutes. The score
does not change trust, which only the ledger holds.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp

POSITIVE_MOST = 10.0
"""The largest positive term, over all topics."""
FIRST_HALF_LIFE = 120.0
"""Seconds. Old first deliveries say little about a peer's place in the network now."""

DEFICIT_WEIGHT = 4 * POSITIVE_MOST
"""Four times POSITIVE_MOST, so that a peer with a deficit above one half has a negative score."""
FAIR_PART = 1 / 8
"""The least deliveries of a peer, as a part of the mean of the mesh peers. Honest peers differ much: some are slow, and
a peer that gets every message from us first delivers only its own."""
MEMORY = 48.0
"""Deliveries per mesh peer after which an old delivery counts 1/e. A peer that did its part and then stops is detected
after 133 more; a peer that delivered everything alone in a mesh of ten, after 244."""
ENOUGH = 24.0
"""Deliveries per mesh peer before a peer is expected to deliver (33, because they fade). An honest peer with an equal
chance at each delivery then has a negative score with a probability of 1e-9."""
ACTIVATION_SECONDS = 30.0
"""For so long nothing is asked of a peer that is new to the mesh, because it first needs peers itself."""
FEW = 4
"""In a mesh with fewer peers nothing is asked: the router looks for more, so a silent peer takes no other's place."""
NEAR_SECONDS = 2.0
"""A copy that arrives within this time of the first counts as a delivery: honest links can be slow."""

FAILURE_HALF_LIFE = 120.0  # seconds
FAILURES_MOST = 2.0
TOLERATED_FAILURES = 0.05
"""Fewer failures count as 0. After one full failure, a peer without a positive score can rejoin the mesh in nine
minutes, and the best peer in four."""


class Offence(StrEnum):
    """Misbehaviour that is rare in honest peers."""

    EXCESS = "a control message, or an id in one, above the limit"
    EARLY_GRAFT = "a GRAFT in back-off"
    STRANGE_GRAFT = "a GRAFT of a topic that we do not follow"
    BROKEN_PROMISE = "offered ids, none of which arrived on request"
    UNFINISHED = "a message that was begun and not finished in time"


WEIGHT: Mapping[Offence, float] = {
    Offence.EXCESS: 1.0,
    Offence.EARLY_GRAFT: 1.0,
    Offence.STRANGE_GRAFT: 1.0,
    Offence.BROKEN_PROMISE: 3.0,  # at most one in ten seconds
    Offence.UNFINISHED: 3.0,  # an honest peer commits one if its link stalls
}
TOLERATED = 6.0
"""Weight of offences without effect: an honest peer may commit so many in a restart, or when messages cross."""
REFUSED = 16.0
"""At this weight of offences the node refuses the peer, until the weight has faded below it."""
OFFENCES_MOST = 64.0
"""The weight that a refused peer gets. It can connect again after two half-lives, and join a mesh after 3.4."""
OFFENCE_HALF_LIFE = 60.0  # seconds

PEERS = 1024
"""Peers whose score is kept, connected or not. A peer that returns within FORGET_SECONDS has the score that it had."""
FORGET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Share:
    """The deliveries of one mesh peer on one topic, and those of the mesh. Both fade as the mesh delivers."""

    since: float
    """Time from which the peer is expected to deliver."""
    delivered: float = 0.0
    expected: float = 0.0
    """The mean over the peers of the mesh."""

    def after(self, now: float, delivered: float, expected: float) -> "Share":
        """The account after one more message."""
        if now - self.since < ACTIVATION_SECONDS:
            return self
        keep = exp(-expected / MEMORY)
        return Share(self.since, self.delivered * keep + delivered, self.expected * keep + expected)

    @property
    def deficit(self) -> float:
        """0 if the peer delivered all that is asked, 1 if it delivered nothing."""
        if self.expected < ENOUGH:
            return 0.0
        return max(0.0, 1 - self.delivered / (FAIR_PART * self.expected))


@dataclass(frozen=True, slots=True)
class Conduct:
    """The recent conduct of one peer in gossip. Each method returns the conduct after an event."""

    time: float
    """Time of the last change, in seconds."""
    first: float = 0.0
    """First deliveries, on all topics."""
    shares: Mapping[bytes, Share] = field(default_factory=dict)
    """By topic."""
    failures: float = 0.0
    """The squared deficits that it had when it was removed from a mesh."""
    offences: float = 0.0

    def at(self, now: float) -> "Conduct":
        """Time passed: all terms but the shares have faded."""
        passed = max(0.0, now - self.time)
        return Conduct(
            now,
            self.first * 0.5 ** (passed / FIRST_HALF_LIFE),
            self.shares,
            self.failures * 0.5 ** (passed / FAILURE_HALF_LIFE),
            self.offences * 0.5 ** (passed / OFFENCE_HALF_LIFE),
        )

    def brought(self) -> "Conduct":
        """The peer delivered a message before all others."""
        return replace(self, first=self.first + 1)

    def beside(self, topic: bytes, delivered: float, expected: float) -> "Conduct":
        """A message arrived while the peer was in the mesh.

        `delivered` is 1 if the peer delivered it, else 0. `expected` is the part of the mesh that delivered it.
        """
        share = self.shares.get(topic, Share(self.time)).after(self.time, delivered, expected)
        return Conduct(self.time, self.first, {**self.shares, topic: share}, self.failures, self.offences)

    def dismissed(self, topic: bytes) -> "Conduct":
        """The peer was removed from the mesh: its deficit becomes a failure, and its share starts at 0."""
        share = self.shares.get(topic)
        if share is None or share.deficit == 0.0:
            return self
        failures = min(FAILURES_MOST, self.failures + share.deficit**2)
        return replace(self, failures=failures, shares={**self.shares, topic: Share(share.since)})

    def after(self, offence: Offence, times: int = 1) -> "Conduct":
        """The peer committed an offence `times` times."""
        offences = self.offences + WEIGHT[offence] * times
        return replace(self, offences=OFFENCES_MOST if offences >= REFUSED else offences)

    @property
    def score(self) -> float:
        positive = min(POSITIVE_MOST, self.first)
        failures = self.failures if self.failures > TOLERATED_FAILURES else 0.0
        deficits = sum(share.deficit**2 for share in self.shares.values())
        return positive - DEFICIT_WEIGHT * (deficits + failures) - max(0.0, self.offences - TOLERATED) ** 2

    @property
    def refused(self) -> bool:
        """Return whether the peer may not connect now."""
        return self.offences >= REFUSED


class Scores:
    """The conduct of each recent peer, over all its connections."""

    def __init__(self, *, peers: int = PEERS) -> None:
        self._conducts: dict[str, Conduct] = {}
        self._most = peers

    def of(self, now: float, peer: str) -> Conduct:
        """The conduct of a peer, which is empty if nothing is known."""
        known = self._conducts.get(peer)
        return Conduct(now) if known is None or now - known.time > FORGET_SECONDS else known.at(now)

    def score(self, now: float, peer: str) -> float:
        return self.of(now, peer).score

    def delivered(self, now: float, topic: bytes, peers: Sequence[str], mesh: Collection[str]) -> None:
        """`peers` delivered a message in time, in this order. The others in `mesh` were expected to."""
        self._keep(peers[0], self.of(now, peers[0]).brought())
        expected = sum(peer in mesh for peer in peers) / max(1, len(mesh))
        for peer in mesh if len(mesh) >= FEW else ():
            self._keep(peer, self.of(now, peer).beside(topic, float(peer in peers), expected))

    def dismissed(self, now: float, peer: str, topic: bytes) -> None:
        self._keep(peer, self.of(now, peer).dismissed(topic))

    def offended(self, now: float, peer: str, offence: Offence, times: int = 1) -> None:
        if times > 0:
            self._keep(peer, self.of(now, peer).after(offence, times))

    def _keep(self, peer: str, conduct: Conduct) -> None:
        if peer not in self._conducts and len(self._conducts) >= self._most:
            self._forget(conduct.time)
        self._conducts[peer] = conduct

    def _forget(self, now: float) -> None:
        """Remove the peers that did not change for FORGET_SECONDS, or else the oldest, if possible with a score of 0 or
        more: an attacker with many keys must not be able to erase a negative score.
        """
        for peer in [peer for peer, each in self._conducts.items() if now - each.time > FORGET_SECONDS]:
            del self._conducts[peer]
        if len(self._conducts) >= self._most:
            known = self._conducts.items()
            del self._conducts[max(known, key=lambda item: (item[1].at(now).score >= 0, now - item[1].time))[0]]
