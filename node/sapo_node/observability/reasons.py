"""Explains each reason for which a message or a group was not taken: what it means, and what would change it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sapo_node.groups.book import MAX_BYTES, MAX_BYTES_PER_PEER, MAX_GROUPS, MAX_PER_PEER
from sapo_node.groups.messages import FOLLOWS, MIN_TEXT_PROB, MIN_TOKEN_PROB, Refusal
from sapo_node.groups.record import NotDrawn, Unusable
from sapo_node.ingest.validator import Ignored
from sapo_node.sampling.filters.length import QUANTILE
from sapo_node.sampling.filters.min_token_prob import QUANTILE as LEAST
from sapo_node.training.take_back import TAKEN_BACK
from sapo_node.training.trainer import NOTHING_LEFT
from sapo_node.trust.constants import DRAWN_BYTES
from sapo_protocol import Layer


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason."""

    means: str
    change: str
    """The change that would help. It begins with `Nothing` if no change is needed."""

    @property
    def advice(self) -> str:
        """`change` as a sentence for people."""
        return self.change if self.change.startswith("Nothing") else f"What would change it: {self.change}"


_OTHER_BYTES = (
    "The node charges the peer that sent it, not the author that it names. Newer software on the side of the sender."
)
_SAFEGUARD = "Nothing to do: filters and alarms keep such texts out of this node's policy."
_WAIT = "Nothing to do: the group waits, and a later round may draw it until it is too old."

REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        Layer.SIZE: Reason("It is longer than this swarm allows.", _OTHER_BYTES),
        Layer.FRAME: Reason("It is not a message of this protocol: its frame cannot be decoded.", _OTHER_BYTES),
        Layer.ENVELOPE: Reason("Its envelope does not have the form that this version requires.", _OTHER_BYTES),
        Layer.SIGNATURE: Reason(
            "Its signature is invalid: it is forged, was altered on the way, or was made for another swarm.",
            _OTHER_BYTES,
        ),
        Layer.HEADER: Reason("Its signed header breaks a rule of the specification.", _OTHER_BYTES),
        Layer.BODY: Reason("Its texts do not match the hashes in its header.", _OTHER_BYTES),
        Layer.EVIDENCE: Reason("It claims to be evidence and proves nothing.", _OTHER_BYTES),
        Ignored.SENDER_BUSY: Reason(
            "The peer that sent it sends more than this node takes from one peer.", "Fewer messages from that peer."
        ),
        Ignored.LINK_BUSY: Reason(
            "Its author is a stranger, and the peer that sent it sends more rollouts of strangers than this node takes "
            "from one peer.",
            "Another peer sends it, or this node requests it. Or trust its author: `sapo-node peers trust PEER`.",
        ),
        Ignored.SENDER_BANNED: Reason("The peer that sent it is banned here.", "Another peer sends it."),
        Ignored.ISSUER_BANNED: Reason(
            "Its author is banned here.",
            "`sapo-node peers unban PEER`. A ban for false claims also ends with time, one for equivocation never.",
        ),
        Ignored.DUPLICATE: Reason("The node has it already, with all its texts.", "Nothing to do: nothing is lost."),
        Ignored.OUTSIDE_WINDOW: Reason(
            "By this node's clock its epoch is over or has not begun.",
            "Correct clocks: compare this machine's with the author's. Or a faster network between them.",
        ),
        Ignored.OVER_QUOTA: Reason(
            "Its author is untrusted and has sent more than an untrusted peer may.",
            "Verified groups over at least two epochs. Or trust the peer: `sapo-node peers trust PEER`.",
        ),
        Ignored.EQUIVOCATION: Reason(
            "Its author signed two contents for one round. The node bans it for that.",
            "Nothing to do: that key stays banned. `sapo-node peers PEER --evidence` shows the evidence.",
        ),
        Ignored.KNOWN_EVIDENCE: Reason(
            "The node knows what it proves, or received too much evidence.", "Nothing to do: nothing is lost."
        ),
        Unusable.CLAIMED_ZERO_ADVANTAGE: Reason(
            "Its author claims that all completions are correct, or that none is. The node scores few of such groups.",
            "A group with correct and incorrect completions.",
        ),
        Unusable.NO_BODY: Reason("No peer delivered its texts in time.", "A message that brings them."),
        Unusable.MALFORMED_BODY: Reason("Its texts cannot be decoded as a body.", "Its author's software."),
        Unusable.UNSCORED: Reason(
            "The sandbox did not score it: it ran out of time or memory, or died. No peer is charged.",
            "A faster machine, more memory, or shorter completions.",
        ),
        Unusable.OTHER_TASK: Reason(
            "Its author answered another task than the one that follows from its key, epoch and counter.",
            "The same versions of reasoning-gym and of the swarm's manifest on both sides.",
        ),
        Unusable.FALSE_CLAIM: Reason(
            "Its author claims levels that its completions do not earn. That lowers the trust in it.",
            "Correct claims in later groups: each raises the trust, by less than a false claim lowers it.",
        ),
        Unusable.ZERO_ADVANTAGE: Reason(
            "All its completions earn the same reward, so the group has zero advantage.",
            "A group with correct and incorrect completions.",
        ),
        Unusable.NO_CORRECT: Reason(
            "Some of its completions earn a part of the reward, and none is correct. Of a peer's completions the node "
            "trains on correct ones alone.",
            "A group with correct and incorrect completions.",
        ),
        Unusable.HELD_OUT: Reason(
            "Its prompt is one of those that this node is evaluated on. It trains on none of them.",
            "Nothing to do: its author loses no trust.",
        ),
        NotDrawn.ENOUGH: Reason("The round drew enough other groups before this one.", _WAIT),
        NotDrawn.STRANGERS: Reason(
            "Groups of other strangers had filled the strangers' share of that round.",
            "Rounds without an alarm: each raises the share of strangers. Or trust the peer: `sapo-node peers trust "
            "PEER`.",
        ),
        NotDrawn.TOO_LARGE: Reason(
            f"The groups of a round and their stand-ins have at most {DRAWN_BYTES // 2**20} MiB of text together, and "
            "other groups had taken too much of it.",
            _WAIT,
        ),
        NotDrawn.SELDOM_ACCEPTED: Reason(
            "The filters of this node rejected much of what it drew of its peer: it takes part in fewer draws.",
            "Groups that the filters accept: `sapo-node peers PEER` shows the accepted share. The peer loses no trust.",
        ),
        NotDrawn.BANNED: Reason(
            "Its author was banned while the group waited.",
            "Nothing to do for this group. After the ban its author may send others.",
        ),
        NotDrawn.TOO_OLD: Reason("Its epoch is too long ago.", "Nothing to do: the group is on offer no more."),
        NotDrawn.MADE_ROOM: Reason(
            f"Too many groups were on offer: at most {MAX_PER_PEER} of one peer and {MAX_GROUPS:,} of all, with "
            f"{MAX_BYTES_PER_PEER // 2**20} and {MAX_BYTES // 2**20} MiB of text. Groups that arrived first make "
            "room first, and those of strangers before those of other peers.",
            "A larger --external, so that the node draws more groups in a round. Or trust the peer: `sapo-node peers "
            "trust PEER`.",
        ),
        NotDrawn.NONE_WANTED: Reason(
            "The node drew no external groups in that round.",
            "`--external N` sets their number. With `auto` the node chooses it, and draws some again when they help.",
        ),
        Refusal.NO_ROOM: Reason(
            "Its prompt and a completion of `max_tokens` tokens do not fit into this model's context.",
            "A model with a longer context, or a smaller --max-tokens.",
        ),
        Refusal.TOO_LONG: Reason(
            "One of its completions has more tokens in this model's tokenizer than this node's `max_tokens`.",
            "A larger --max-tokens here, or shorter completions there.",
        ),
        Refusal.SPECIAL: Reason(
            "This model's tokenizer turns a part of one of its texts into a special token. A peer must not control the "
            "model.",
            "A model whose tokenizer can encode special tokens as ordinary text.",
        ),
        Refusal.UNREADABLE: Reason(
            "This model's tokenizer or chat template failed on one of its texts.",
            "A model that can read every text.",
        ),
        Refusal.OUTSIDE: Reason(
            "It holds a token id that this model does not have.", "The model that generated it, which `--model` names."
        ),
        Refusal.NOT_FINITE: Reason(
            "The loss or the gradient of its batch was not a number, so the node made no update in that round.",
            "A smaller `learning_rate`, or --dtype float32.",
        ),
        Refusal.KILLED_LEARNER: Reason(
            "The learner died each time it trained on the batch with this group, so the node skipped the batch.",
            "More memory, if the learner ran out of it. The node's log says how the learner died.",
        ),
        NOTHING_LEFT: Reason(
            "Filters masked every token of its correct completions, so nothing was left to train on.", _SAFEGUARD
        ),
        TAKEN_BACK: Reason(
            "The node had trained on it. It then restored an earlier checkpoint and trained again without it: an alarm "
            "accused texts like this one.",
            _SAFEGUARD,
        ),
        "one-answer filter": Reason(
            "Its correct completions hold an answer before the one that is scored. This node's sampling ends with the "
            "first answer, so its policy would learn that one.",
            "A completion that ends with its first answer.",
        ),
        "length filter": Reason(
            f"Its correct completions are longer than {QUANTILE:.0%} of this node's own to the same task.", _SAFEGUARD
        ),
        "equation filter": Reason("Its correct completions hold an equation that is false.", _SAFEGUARD),
        "min-token-prob filter": Reason(
            "This node's policy would hardly write its correct completions: a token before the answer has a "
            f"probability below {MIN_TOKEN_PROB:g}, or all of them together one below {MIN_TEXT_PROB:g}. If a "
            f"bound would reject more than {LEAST:.0%} of this node's own correct completions to the task, the node "
            "lowers that bound.",
            _SAFEGUARD,
        ),
        "answer-likelihood filter": Reason(
            "This node's policy does not expect its answer after the text before it: it gives the answer a probability "
            f"below {FOLLOWS:g}. The answer is a guess, or was worked out elsewhere.",
            _SAFEGUARD,
        ),
    }
)


def reason_for(why: str) -> Reason | None:
    """Return the explanation of a reason. A group that was taken back has the reason of the alarm, too."""
    return REASONS.get(TAKEN_BACK if why.startswith(f"{TAKEN_BACK}: ") else why)
