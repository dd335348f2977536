"""What a peer is worth to the gossip of this node: what it delivers beside others, and how it behaves.

    score = min(first deliveries, POSITIVE_MOST) - DEFICIT_WEIGHT * (deficit^2 of each topic + failures)
            - (offences beyond TOLERATED)^2

The form is that of the GossipSub 1.1 peer score: first deliveries are its P2, deficits its P3, failures its P3b and
offences its P7. Positive terms together weigh a quarter of one topic's full deficit, so that a peer which does not
forward on one topic ends below zero whatever it does on others (the lesson of CVE-2022-47547).

Everything here is a value or a bounded table; the time comes first in every call. A negative score keeps a peer out of
the mesh until it has recovered, and who floods is not let in for two minutes. Neither touches trust, which is the
ledger's.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp

POSITIVE_MOST = 10.0
"""Of all topics together."""
FIRST_HALF_LIFE = 120.0
"""Seconds: what a peer brought first long ago says little about where it stands in the network."""

DEFICIT_WEIGHT = 4 * POSITIVE_MOST
"""Who delivers less than half of what is asked is below zero with any positive score: a quarter of this."""
FAIR_PART = 1 / 8
"""Asked of a peer, as a part of what a peer of the mesh delivers on average. Honest peers are far apart: many are
faster than others, and one that hears everything from us delivers its own messages only."""
MEMORY = 48.0
"""Deliveries per mesh peer that are looked back upon. One that did its part and stops is found out after 133 more; one
that had delivered everything alone in a mesh of ten after 244."""
ENOUGH = 24.0
"""Deliveries per mesh peer before anything is asked (33, since they fade): that an honest peer with an equal chance at
each delivers so few that its score is below zero has a probability of 1e-9."""
ACTIVATION_SECONDS = 30.0
"""What a peer that is new to the mesh does not deliver is not asked of it for so long: it looks for peers itself."""
FEW = 4
"""Peers in a mesh below which nothing is asked: the router seeks more, and a silent peer takes nobody's place."""
NEAR_SECONDS = 2.0
"""A copy that comes this long after the first counts as a delivery: slow links are honest."""

FAILURE_HALF_LIFE = 120.0
FAILURES_MOST = 2.0
FORGIVEN = 0.05
"""Failures below this are none: after one, a peer with no positive score is back in nine minutes, the best in four."""


class Offence(StrEnum):
    """What no honest peer does often."""

    EXCESS = "a control message, or an id in one, beyond what is allowed"
    EARLY_GRAFT = "a GRAFT in back-off"
    STRANGE_GRAFT = "a GRAFT of a topic that we do not follow"
    BROKEN_PROMISE = "offered ids of which none came when asked for"
    UNFINISHED = "a message that was begun and not finished in time"


WEIGHT: Mapping[Offence, float] = {
    Offence.EXCESS: 1.0,
    Offence.EARLY_GRAFT: 1.0,
    Offence.STRANGE_GRAFT: 1.0,
    Offence.BROKEN_PROMISE: 3.0,  # there is one in ten seconds at most
    Offence.UNFINISHED: 3.0,  # a link that stalls costs an honest peer one
}
TOLERATED = 6.0
"""Weight of offences that a restart or a crossing of messages may cost an honest peer."""
REFUSED = 16.0
"""Weight of offences from which on a peer is refused, until it has faded to this again."""
OFFENCES_MOST = 64.0
"""What it weighs to be refused: two half-lives until it may connect again, three and a half until into a mesh."""
OFFENCE_HALF_LIFE = 60.0

PEERS = 1024
"""Whose score is kept, connected or not: who comes back within the hour is who it was."""
FORGET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Share:
    """What a peer delivered on one topic of what the mesh did while it was in it; both fade as the mesh delivers."""

    since: float
    """When it was first expected to deliver."""
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
        """Between 0, all that is asked, and 1, nothing."""
        if self.expected < ENOUGH:
            return 0.0
        return max(0.0, 1 - self.delivered / (FAIR_PART * self.expected))


@dataclass(frozen=True, slots=True)
class Conduct:
    """What one peer did in the gossip of late."""

    time: float
    """Of the last change, in seconds."""
    first: float = 0.0
    """First deliveries, on all topics."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """By topic."""
    failures: float = 0.0
    """Squared deficits with which it had to leave a mesh."""
    offences: float = 0.0

    def at(self, now: float) -> "Conduct":
        """The same peer later: what it did has faded."""
        passed = max(0.0, now - self.time)
        return Conduct(
            now,
            self.first * 0.5 ** (passed / FIRST_HALF_LIFE),
            self.shares,
            self.failures * 0.5 ** (passed / FAILURE_HALF_LIFE),
            self.offences * 0.5 ** (passed / OFFENCE_HALF_LIFE),
        )

    def brought(self) -> "Conduct":
        """Delivered a message before all others."""
        return replace(self, first=self.first + 1)

    def beside(self, topic: str, delivered: float, expected: float) -> "Conduct":
        """Was in the mesh when a message came, and delivered it (1) or not (0), as did `expected` of the mesh."""
        share = self.shares.get(topic, Share(self.time)).after(self.time, delivered, expected)
        return Conduct(self.time, self.first, {**self.shares, topic: share}, self.failures, self.offences)

    def dismissed(self, topic: str) -> "Conduct":
        """Put out of the mesh: a deficit becomes a failure, and the account begins anew."""
        share = self.shares.get(topic)
        if share is None or share.deficit == 0.0:
            return self
        failures = min(FAILURES_MOST, self.failures + share.deficit**2)
        return replace(self, failures=failures, shares={**self.shares, topic: Share(share.since)})

    def after(self, offence: Offence, times: int = 1) -> "Conduct":
        """Committed an offence."""
        offences = self.offences + WEIGHT[offence] * times
        return replace(self, offences=OFFENCES_MOST if offences >= REFUSED else offences)

    @property
    def score(self) -> float:
        positive = min(POSITIVE_MOST, self.first)
        failures = self.failures if self.failures > FORGIVEN else 0.0
        deficits = sum(share.deficit**2 for share in self.shares.values())
        return positive - DEFICIT_WEIGHT * (deficits + failures) - max(0.0, self.offences - TOLERATED) ** 2

    @property
    def refused(self) -> bool:
        """Whether it may not connect for now."""
        return self.offences >= REFUSED


class Scores:
    """The conduct of every peer that was heard of lately, over its connections."""

    def __init__(self, *, peers: int = PEERS) -> None:
        self._conducts: dict[str, Conduct] = {}
        self._most = peers

    def of(self, now: float, peer: str) -> Conduct:
        """The conduct of a peer, a stranger's if nothing is known."""
        known = self._conducts.get(peer)
        return Conduct(now) if known is None or now - known.time > FORGET_SECONDS else known.at(now)

    def score(self, now: float, peer: str) -> float:
        return self.of(now, peer).score

    def delivered(self, now: float, topic: str, peers: Sequence[str], mesh: Collection[str]) -> None:
        """A message was delivered by these peers, in this order, in time; what others in the mesh owe grows with it."""
        self._keep(peers[0], self.of(now, peers[0]).brought())
        expected = sum(peer in mesh for peer in peers) / max(1, len(mesh))
        for peer in mesh if len(mesh) >= FEW else ():
            self._keep(peer, self.of(now, peer).beside(topic, float(peer in peers), expected))

    def dismissed(self, now: float, peer: str, topic: str) -> None:
        self._keep(peer, self.of(now, peer).dismissed(topic))

    def offended(self, now: float, peer: str, offence: Offence, times: int = 1) -> None:
        if times > 0:
            self._keep(peer, self.of(now, peer).after(offence, times))

    def _keep(self, peer: str, conduct: Conduct) -> None:
        if peer not in self._conducts and len(self._conducts) >= self._most:
            self._forget(conduct.time)
        self._conducts[peer] = conduct

    def _forget(self, now: float) -> None:
        """Who is old enough, or else who has least to hide: a negative score must not be washed off by strangers."""
        for peer in [peer for peer, each in self._conducts.items() if now - each.time > FORGET_SECONDS]:
            del self._conducts[peer]
        if len(self._conducts) >= self._most:
            known = self._conducts.items()
            del self._conducts[max(known, key=lambda item: (item[1].at(now).score >= 0, now - item[1].time))[0]]
