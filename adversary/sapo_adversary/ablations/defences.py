"""The defences of a node by name, and what a node without each is built with: the undefended arm of every attack.

Each entry is data: fields of `Defences` and of `NetworkDefences` with other values, or another scorer. A field that is
no longer there is a TypeError as soon as it is asked for, and a test plays every entry and sees its harm.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from sapo_adversary.ablations import stock
from sapo_adversary.ablations.replacements import Carriers, believe, believe_accuser, open_unseen, parse_unbound
from sapo_adversary.scoring import SharedScorer
from sapo_node.groups.messages import reason_of
from sapo_node.net.defences import NETWORK_DEFENDED, NetworkDefences
from sapo_node.trust import constants
from sapo_node.trust.defences import DEFENDED, Defences
from sapo_protocol import LocalError

MANY = 10**9
"""More than any simulation comes to."""


@dataclass(frozen=True, slots=True)
class Defence:
    """One defence of a node."""

    where: str
    """The file of the repository that implements it."""
    node: Mapping[str, Any] = field(default_factory=dict)
    """What a node without it is built with: fields of `Defences`."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """The same of its network: fields of `NetworkDefences`."""
    scorer: type[SharedScorer] = SharedScorer
    """The scorer of a node without it."""
    believes_accusers: bool = False
    """Whether a node without it takes any accusation for a proof; see `Undefended.of_node`."""
    blames_carriers: bool = False
    """Whether a node without it charges who forwarded a rollout."""


_FILTERS = {
    "baseline": "node/sapo_node/sampling/filters/baseline.py",
    "n-gram": "node/sapo_node/sampling/filters/ngram.py",
    "length": "node/sapo_node/sampling/filters/length.py",
    "equation": "node/sapo_node/sampling/filters/equation.py",
    "min-token-prob": "node/sapo_node/learner/filters.py",
    "answer-likelihood": "node/sapo_node/learner/filters.py",
}

DEFENCES: Mapping[str, Defence] = {
    # A simulation sets the filters of its nodes.
    **{reason_of(filter_name): Defence(where) for filter_name, where in _FILTERS.items()},
    "re-verification": Defence("node/sapo_node/verification/verifier.py", {"verify": believe}),
    "strict signatures": Defence("protocol/sapo_protocol/signature.py", {"open_envelope": stock.open_envelope}),
    "signatures": Defence(
        "protocol/sapo_protocol/rollout.py",
        {"open_envelope": open_unseen, "recognise": lambda _counters, _envelope_id, _epoch: None},
    ),
    "bound signatures": Defence("protocol/sapo_protocol/envelope.py", {"parse_envelope": parse_unbound}),
    "strict decoding": Defence(
        "protocol/sapo_protocol/cbor.py",
        {
            "decode_message": stock.decode_message,
            "parse_envelope": stock.parse_envelope,
            "decode_header": stock.decode_header,
            "decode_body": stock.decode_body,
        },
    ),
    "own scorers": Defence("node/sapo_node/verification/tasks/scorers.py", scorer=stock.LibraryScorer),
    "one-answer filter": Defence("node/sapo_node/sampling/filters/one_answer.py", {"one_answer": False}),
    "measured by the healthy": Defence("node/sapo_node/sampling/sampler.py", {"healthy_reference": False}),
    "zero-advantage groups dropped": Defence("node/sapo_node/verification/verifier.py", {"drops_flat": False}),
    "replay window": Defence(
        "node/sapo_node/ingest/seen.py",
        {"replay_window": False, "one_content_per_counter": False, "epoch_window": False, "max_age": MANY},
    ),
    "one content a counter": Defence("node/sapo_node/ingest/seen.py", {"one_content_per_counter": False}),
    "epoch window": Defence("node/sapo_node/ingest/validator.py", {"epoch_window": False}),
    "proof of equivocation": Defence("node/sapo_node/trust/equivocation.py", believes_accusers=True),
    "evidence budget": Defence("node/sapo_node/trust/equivocation.py", {"unknown_banned": MANY}),
    "durable ledger": Defence("node/sapo_node/trust/ledger.py", {"durable_bans": False}),
    "blame to the author": Defence("node/sapo_node/ingest/validator.py", blames_carriers=True),
    "link lottery": Defence("node/sapo_node/ingest/pending.py", {"pending_by_link": False}),
    "groups a turn": Defence("node/sapo_node/ingest/pending.py", {"turn_groups": MANY}),
    "tier places": Defence("node/sapo_node/ingest/pending.py", {"pending_by_tier": False}),
    "inbox bounds": Defence("node/sapo_node/ingest/pending.py", {"pending_per_peer": MANY, "pending_places": MANY}),
    "untrusted class": Defence(
        "node/sapo_node/sampling/sampler.py",
        {
            "strangers_share": 1.0,
            "untrusted_counters": 1.0,
        },
    ),
    "envelope quota": Defence("node/sapo_node/ingest/validator.py", {"untrusted_counters": 1.0}),
    "link rate": Defence(
        "node/sapo_node/net/link_budget.py", {"strangers_per_second": float(MANY), "strangers_burst": float(MANY)}
    ),
    "promotion limits": Defence("node/sapo_node/trust/ledger.py", {"earned_per_epoch": MANY}),
    "flood publishing": Defence("node/sapo_node/net/gossipsub.py", network={"flood_publishing": False}),
    "gossip repair": Defence("node/sapo_node/net/gossipsub.py", network={"gossip_repair": False}),
    "dialled mesh peers": Defence("node/sapo_node/net/gossipsub.py", network={"dialled_mesh_peers": False}),
    "frame deadline": Defence("node/sapo_node/net/pubsub.py", network={"frame_seconds": inf}),
    "stream caps": Defence("node/sapo_node/net/pubsub.py", network={"gossip_streams": MANY, "streams": 10**6}),
    "anchors": Defence("node/sapo_node/net/anchors.py", network={"anchors": False}),
    "reserved slots": Defence("node/sapo_node/net/host.py", network={"reserved_outbound": 0}),
    "inbound eviction": Defence("node/sapo_node/net/slots.py", network={"eviction": False}),
    "no peer exchange": Defence("node/sapo_node/net/pubsub.py", network={"no_peer_exchange": False}),
    "records where they are": Defence(
        "node/sapo_node/net/service.py", network={"records_checked": False, "only_ours_dial": False}
    ),
    "peer exchange limits": Defence("node/sapo_node/net/address_book.py", network={"named": MANY, "wrong": MANY}),
    "scored mesh": Defence("node/sapo_node/net/router.py", network={"scored_mesh": False}),
    "control caps": Defence("node/sapo_node/net/router.py", network={"control_caps": False}),
    "mass limit": Defence("node/sapo_node/sampling/sampler.py", {"mass_limit": inf}),
    "costly lies": Defence("node/sapo_node/trust/constants.py", {"offence": dict.fromkeys(constants.OFFENCE, 0.0)}),
    "sender rate": Defence(
        "node/sapo_node/net/link_budget.py", {"messages_per_second": float(MANY), "message_burst": float(MANY)}
    ),
}
"""Where two change one field, the later entry stands: who takes any signature takes those of a library too."""


@dataclass(frozen=True, slots=True)
class Undefended:
    """What the nodes of one simulation are built with."""

    defences: Defences = DEFENDED
    network: NetworkDefences = NETWORK_DEFENDED
    scorer: type[SharedScorer] = SharedScorer
    believes_accusers: bool = False
    blames_carriers: bool = False

    def of_node(self, issuer: bytes, carriers: Carriers) -> Defences:
        """The defences of the node that has this public key (32 bytes) and notes its `carriers`."""
        defences = self.defences
        if self.believes_accusers:
            defences = replace(defences, prove_equivocation=partial(believe_accuser, issuer))
        if self.blames_carriers:
            defences = replace(defences, blamed=carriers.last)
        return defences


def ablated(names: Iterable[str]) -> Undefended:
    """What nodes without these defences are built with. Raises LocalError for an unknown name."""
    names = frozenset(names)
    for name in sorted(names - DEFENCES.keys()):
        raise LocalError(f"no defence {name!r}; there are {', '.join(DEFENCES)}")
    undefended = Undefended()
    for lacking in (defence for name, defence in DEFENCES.items() if name in names):
        undefended = Undefended(
            replace(undefended.defences, **lacking.node),
            replace(undefended.network, **lacking.network),
            undefended.scorer if lacking.scorer is SharedScorer else lacking.scorer,
            undefended.believes_accusers or lacking.believes_accusers,
            undefended.blames_carriers or lacking.blames_carriers,
        )
    return undefended
