"""The only place with numbers about trust: the weight of each fact, and the limits that `limits` hands to the parts.

Beta-style evidence with forgetting (Josang and Ismail 2002): trust = (good + 1) / (good + LIE_FACTOR * bad + 2),
where every fact first fades what was known before. So the credit of a peer is bounded: after any number of good
groups, four false claims end it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fact(StrEnum):
    """An act of a peer that this node saw. An incorrect completion that is claimed incorrect is no fact."""

    VERIFIED_GROUP = "verified group"
    """A group with correct and incorrect completions, a verified task and true claims. A group without advantage is no
    fact: empty completions that are claimed incorrect cost the issuer nothing."""
    FALSE_CLAIM = "false claim"
    """A signed claim that differs from the level computed here for the same task and text."""
    MALFORMED_BODY = "malformed body"
    """The issuer signed the hash of bytes that are no body."""
    FORGED_SIGNATURE = "forged signature"
    """This peer sent a message with an invalid signature. The message may name another issuer."""
    INVALID_MESSAGE = "invalid message"
    """This peer sent a message that its bytes alone prove wrong in another way."""

    @property
    def plural(self) -> str:
        """For counts."""
        return f"{self.removesuffix('y')}ies" if self.endswith("y") else f"{self}s"


class PeerState(StrEnum):
    """The state that a peer has earned. It outlives connections and restarts."""

    UNTRUSTED = "untrusted"
    HEALTHY = "healthy"
    PROBATION = "probation"
    BANNED = "banned"


class Tier(StrEnum):
    """The group of peers that queues, verification and filters treat alike, whatever the number of keys in it."""

    FRIEND = "friend"
    """Trusted by the operator."""
    PROVEN = "proven"
    """Healthy: this node verified enough of its groups."""
    STRANGER = "stranger"
    """All other peers."""

    @classmethod
    def of(cls, state: PeerState, *, named: bool) -> "Tier":
        """The tier of a peer in a state. `named`: whether the operator decided the state."""
        if state is not PeerState.HEALTHY:
            return cls.STRANGER
        return cls.FRIEND if named else cls.PROVEN


OFFENCE = {
    Fact.FALSE_CLAIM: 1.0,
    Fact.MALFORMED_BODY: 1.0,
    Fact.FORGED_SIGNATURE: 0.15,
    Fact.INVALID_MESSAGE: 0.15,
}
"""Weight of each offence; about 22 invalid messages in a row weigh BAN_OFFENCES, as four false claims do."""

FORGETTING = 0.95
"""The factor by which a fact of weight 1 fades all earlier facts."""
LIE_FACTOR = 5.0
BAN_OFFENCES, BAN_TRUST = 3.0, 0.2
"""Banned when both hold: one slip of an honest untrusted peer is not enough."""
PROBATION_TRUST, RECOVERED_TRUST = 0.5, 0.8
BAN_EPOCHS = 144
"""A ban for offences ends in probation after this many epochs; a ban for equivocation lasts while the peer is known.

Then BAN_OFFENCES is held against the peer and nothing for it, so that its trust is 1/17. One more false claim bans it
again. About 30 verified groups make it untrusted, and HEALTHY_AFTER more make it healthy.
"""

EARNED_PER_EPOCH = 8
"""Verified groups per epoch that count towards the state healthy: time is the price of trust, not volume."""
HEALTHY_AFTER = 16
"""Counted groups after which an untrusted peer whose trust is at least RECOVERED_TRUST is promoted: the verified ones
times the share of the judged ones that filters accepted (`Acceptance.share`)."""

STRANGERS_SHARE, SHARE_RISE, SHARE_LEAST = 0.25, 0.25, 0.05
"""Share of the external groups of a round that strangers may fill: in the first round, what each clean round adds, and
the least. The share is never less than one group."""
HARM_ROUNDS = 20
"""Rounds in which a group of another node may be why the reward falls: those that an alarm takes back, at most."""
REPLAY_BURST, REPLAY_SHARE = 60.0, 0.125
"""What alarms of one kind may cost, in rounds replayed: at once, and regained with each round. Each is charged
HARM_ROUNDS. So there are at most three alarms at once, and in the long run one in 160 rounds."""
AGE_WEIGHT, MAX_AGE = 0.7, 4
"""Weight per epoch of age, and the age in epochs after which a group is no longer trained on."""
LOSS_WEIGHT_LIMIT = 2.0
"""Loss weight of one group, at most, in units (`sampler`)."""
LOCAL_RANGE = 4.0
"""A unit, at most, as a multiple of the weight of a local group. The groups of able peers may be longer."""
DRAWN_BYTES = 6 * 2**20
"""UTF-8 bytes of all groups that one round draws, with their stand-ins. The batch is stored and sent as JSON of at most
64 MiB. It takes up to six bytes for one of these, and at most MASKED places of each completion beside them."""

VERIFICATIONS_PER_ROUND = 16
"""Turns of each tier in one round, at most. A turn verifies one rollout, or a part of one."""
TURN_GROUPS = 4
"""Groups of a rollout that are verified in one turn, at most: as many as a node sends with default settings."""
AUDIT_RATE = 0.05
"""Share of the groups claimed to have zero advantage that are scored all the same."""

MESSAGES_PER_SECOND, MESSAGE_BURST = 200.0, 1_000.0
"""Messages taken from one sender, who may carry those of a whole swarm."""
UNTRUSTED_COUNTERS = 0.5
"""Counters that an untrusted peer may advance in an epoch, as a share of the swarm's maximum. Skipped ones count."""
UNKNOWN_BANS = 64
"""Equivocators without verified groups that the node bans in one epoch, and evidence messages it publishes in one."""
PENDING_PLACES, PENDING_PER_PEER = 2_048, 64
"""Places of rollouts that wait for verification: of each tier, and of one peer."""
LINK_STRANGERS_PER_SECOND, LINK_STRANGERS_BURST = 16.0, 512.0
"""Rollouts of strangers taken from one sender, whoever signed them. A relay of a large swarm of strangers stays below
it; a sender that floods has used up only its own."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The weights for and against one peer."""

    good: float = 0.0
    bad: float = 0.0

    @property
    def trust(self) -> float:
        """Between 0 and 1; 0.5 for a stranger."""
        return (self.good + 1) / (self.good + LIE_FACTOR * self.bad + 2)

    def after(self, fact: Fact, offence: Mapping[Fact, float] = OFFENCE) -> "Evidence":
        """The evidence once `fact` has been seen; `offence` has the weights."""
        if fact is Fact.VERIFIED_GROUP:
            return Evidence(self.good * FORGETTING + 1, self.bad * FORGETTING)
        weight = offence[fact]
        fade = FORGETTING**weight
        return Evidence(self.good * fade, self.bad * fade + weight)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How much of the verified groups of one peer the filters of this node let through. Newer groups count more.

    A filter rejects honest text as well, so this is no evidence about trust. But a rejected group costs this node time
    and teaches nothing. So the peer's groups are drawn less often, and what is rejected earns nothing.
    """

    accepted: float = 0.0
    rejected: float = 0.0

    @property
    def share(self) -> float:
        """The accepted share; 1 for a peer of which nothing was judged."""
        judged = self.accepted + self.rejected
        return self.accepted / judged if judged else 1.0

    @property
    def chance(self) -> float:
        """The chance with which a group of the peer takes part in the draw of a round: 1 / 2 after one rejected group,
        and 1 / 21 after any number, so that the node notices when its filters accept the groups of the peer again.
        """
        return (self.accepted + 1) / (self.accepted + self.rejected + 1)

    def after(self, accepted: float) -> "Acceptance":
        """The value once a group was judged of which this share, between 0 and 1, was accepted."""
        return Acceptance(self.accepted * FORGETTING + accepted, self.rejected * FORGETTING + 1 - accepted)


def state_after(state: PeerState, evidence: Evidence) -> PeerState:
    """The state of a peer after new evidence. The ledger promotes untrusted peers when an epoch begins."""
    if evidence.bad >= BAN_OFFENCES and evidence.trust < BAN_TRUST:
        return PeerState.BANNED
    if state is PeerState.HEALTHY and evidence.trust < PROBATION_TRUST:
        return PeerState.PROBATION
    if state is PeerState.PROBATION and evidence.trust >= RECOVERED_TRUST:
        return PeerState.UNTRUSTED
    return state
