"""Why something was not taken, in plain words: what it means, and what would change it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sapo_node.ingest import Ignored
from sapo_node.sampler import PassedOver
from sapo_node.verify import Unusable
from sapo_protocol import Layer


@dataclass(frozen=True, slots=True)
class Reason:
    """One of them."""

    means: str
    change: str
    """What would have to be different."""


_OTHER_BYTES = "The sender is charged for it, not the author that it names. Whoever made it has to mend how it is made."
_WAIT = "Nothing: it waits, and may be drawn in another round while it is young enough."

REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        Layer.SIZE: Reason("It is longer than this swarm allows.", _OTHER_BYTES),
        Layer.FRAME: Reason("It is no message: its outermost form is broken.", _OTHER_BYTES),
        Layer.ENVELOPE: Reason("Its envelope is not of the one form that this version has.", _OTHER_BYTES),
        Layer.SIGNATURE: Reason(
            "Its signature does not hold: forged, altered on the way, or made for another swarm.", _OTHER_BYTES
        ),
        Layer.HEADER: Reason("What is signed breaks a rule for headers.", _OTHER_BYTES),
        Layer.BODY: Reason("Its texts are not those that the header names.", _OTHER_BYTES),
        Layer.EVIDENCE: Reason("It is meant as evidence and proves nothing.", _OTHER_BYTES),
        Ignored.SENDER_BUSY: Reason(
            "The peer that brought it sends more than this node takes from one.", "Fewer messages from that peer."
        ),
        Ignored.SENDER_BANNED: Reason("The peer that brought it is banned here.", "Another peer that brings it."),
        Ignored.ISSUER_BANNED: Reason(
            "Its author is banned here.",
            "Time, if the ban was for lies; nothing, if it was for equivocation. Or a `banned` that does not name it.",
        ),
        Ignored.DUPLICATE: Reason("It was taken before, with all that it holds.", "Nothing, and nothing is lost."),
        Ignored.OUTSIDE_WINDOW: Reason(
            "Its epoch is over, or not begun, by this node's clock.",
            "Right clocks: compare this machine's with the author's, and look for a slow network between them.",
        ),
        Ignored.OVER_QUOTA: Reason(
            "Its author is a newcomer and has sent more than newcomers may, or newcomers together have.",
            "Standing: groups that hold, over at least two epochs. Or name the peer in `trusted`.",
        ),
        Ignored.EQUIVOCATION: Reason(
            "Its author signed another content for the same round, which convicts it.",
            "Nothing: the evidence is kept, `sapo-node evidence PEER` shows it. That key is banned for good.",
        ),
        Ignored.KNOWN_EVIDENCE: Reason(
            "What it proves is known, or too much of it came.", "Nothing, and nothing is lost."
        ),
        Unusable.CLAIMED_FLAT: Reason(
            "Its author says that all its answers earn the same. Such a group teaches nothing, and is not even scored.",
            "Answers of which some are right and some are not.",
        ),
        Unusable.NO_BODY: Reason("Its texts did not come along.", "A message that brings them."),
        Unusable.MALFORMED_BODY: Reason("Its texts are not in the form of a body.", "Its author's software."),
        Unusable.UNSCORED: Reason(
            "The scorer came to no result: it ran out of time or memory, or died. That counts against nobody.",
            "A machine with more of both, or shorter answers.",
        ),
        Unusable.OTHER_TASK: Reason(
            "Its author answered another question than the one that follows from its key, epoch and counter.",
            "The same versions of reasoning-gym and of the swarm's manifest on both sides.",
        ),
        Unusable.FALSE_CLAIM: Reason(
            "Its author claims rewards that its answers do not earn. That lowers its standing here.",
            "True claims, for long enough: standing is earned again more slowly than it is lost.",
        ),
        Unusable.FLAT: Reason(
            "All its answers earn the same, so there is nothing to learn from their difference.",
            "Answers of which some are right and some are not.",
        ),
        PassedOver.ENOUGH: Reason("Others were drawn before its turn came.", _WAIT),
        PassedOver.PEER_SHARE: Reason(
            "Its peer, or those who came into good standing with it, had their share of that round already.", _WAIT
        ),
        PassedOver.NEWCOMERS: Reason(
            "Its peer is a newcomer or on probation, and those together have a small share of every round.",
            "Standing: groups that hold, over at least two epochs. Or name the peer in `trusted`.",
        ),
        PassedOver.TOO_OLD: Reason("It is of an epoch too long ago.", "Nothing; it leaves the pool."),
        PassedOver.NONE_WANTED: Reason(
            "The node wanted none of others' groups in that round.",
            "`--external N` asks for a number; with `auto` it takes some again when they are worth it.",
        ),
        "length gate": Reason(
            "Its right answers are longer than most of this node's own to the same task.", "`gates` without `length`."
        ),
        "steps gate": Reason("Its right answers hold an equation that is false.", "`gates` without `steps`."),
        "agreement gate": Reason(
            "What this node learns from its own answers speaks against most of what that peer gave in this task.",
            "Twenty rounds, after which the peer is heard there again, or `gates` without `agreement`.",
        ),
        "surprise gate": Reason(
            "Its work holds a word that this node's policy would not write. The work from there on is not taught; what "
            "stands before it is, and the answer.",
            "A policy that has come to write it itself, or `gates` without `surprise`.",
        ),
        "follows gate": Reason(
            "Its answer does not follow, for this node's policy, from what it says before it: a guess, or worked out "
            "elsewhere.",
            "A policy that knows the steps, or `gates` without `follows`.",
        ),
    }
)
