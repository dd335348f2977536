"""The defences of a node by name, and the parts of a node without each: the undefended arm of every attack.

A part without a defence is a class of `replacements`, another limit, another decoder or another scorer. Each class
names the part that it stands for by its base, so that a base or a field that no longer exists is an error. A test
plays every entry and sees its harm.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

from sapo_adversary.ablations import stock
from sapo_adversary.ablations.replacements import (
    AcceptsEveryEpoch,
    AcceptsRepeats,
    AcceptsSecondAnswers,
    AcceptsSecondContents,
    AnswersWithoutEnd,
    AsksOneSource,
    BelievesAccusers,
    BelievesClaims,
    BlamesCarriers,
    ForgetsBans,
    ForgivesForgeries,
    KeepsParts,
    KeepsZeroAdvantage,
    MeasuredByAll,
    OffersAgain,
    OneLink,
    OneTier,
    PassesOnEach,
    TrainsOnParts,
    WaitsForBodies,
    open_unseen,
    parse_unbound,
)
from sapo_adversary.scoring import SharedScorer
from sapo_node.app.node import PARTS, Parts
from sapo_node.groups.messages import reason_of
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences
from sapo_node.trust import constants
from sapo_protocol import LocalError

MANY = 10**9
"""More than any simulation comes to."""


@dataclass(frozen=True, slots=True)
class Defence:
    """One defence of a node, and the differences of a node without it."""

    where: str
    """The file of the repository that implements it."""
    parts: tuple[type, ...] = ()
    """Subclasses of the classes in `Parts`."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Limits`."""
    wire: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Wire`."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `NetworkDefences`."""
    scorer: type[SharedScorer] = SharedScorer


_FILTERS = {
    "baseline": "node/sapo_node/sampling/filters/__init__.py",
    "n-gram": "node/sapo_node/sampling/filters/ngram.py",
    "length": "node/sapo_node/sampling/filters/length.py",
    "equation": "node/sapo_node/sampling/filters/equation.py",
    "min-token-prob": "node/sapo_node/learner/filters.py",
    "answer-likelihood": "node/sapo_node/learner/filters.py",
}

DEFENCES: Mapping[str, Defence] = {
    # A simulation sets the filters of its nodes.
    **{reason_of(filter_name): Defence(where) for filter_name, where in _FILTERS.items()},
    "re-verification": Defence("node/sapo_node/verification/verifier.py", (BelievesClaims,)),
    "strict signatures": Defence("protocol/sapo_protocol/signature.py", wire={"open_envelope": stock.open_envelope}),
    "signatures": Defence(
        "protocol/sapo_protocol/rollout.py", (ForgivesForgeries,), wire={"open_envelope": open_unseen}
    ),
    "bound signatures": Defence("protocol/sapo_protocol/envelope.py", wire={"parse_envelope": parse_unbound}),
    "strict decoding": Defence(
        "protocol/sapo_protocol/cbor.py",
        wire={
            "decode_message": stock.decode_message,
            "parse_envelope": stock.parse_envelope,
            "decode_header": stock.decode_header,
            "decode_body": stock.decode_body,
        },
    ),
    "own scorers": Defence("node/sapo_node/tasks/scorers/__init__.py", scorer=stock.LibraryScorer),
    "one-answer filter": Defence("node/sapo_node/sampling/filters/__init__.py", (AcceptsSecondAnswers,)),
    "measured by the healthy": Defence("node/sapo_node/sampling/sampler.py", (MeasuredByAll,)),
    "zero-advantage groups dropped": Defence("node/sapo_node/verification/verifier.py", (KeepsZeroAdvantage,)),
    "external at level L": Defence("node/sapo_node/groups/advantage.py", (KeepsParts, TrainsOnParts)),
    "replay window": Defence(
        "node/sapo_node/ingest/validator.py",
        (AcceptsRepeats, AcceptsSecondContents, AcceptsEveryEpoch, OffersAgain),
        limits={"max_age": MANY},
    ),
    "one content a counter": Defence("node/sapo_node/ingest/validator.py", (AcceptsSecondContents, OffersAgain)),
    "epoch window": Defence("node/sapo_node/ingest/validator.py", (AcceptsEveryEpoch,)),
    "proof of equivocation": Defence("node/sapo_node/trust/equivocation.py", (BelievesAccusers,)),
    "evidence budget": Defence("node/sapo_node/trust/equivocation.py", limits={"unknown_bans": MANY}),
    "durable ledger": Defence("node/sapo_node/trust/ledger.py", (ForgetsBans,)),
    "blame to the author": Defence("node/sapo_node/ingest/validator.py", (BlamesCarriers,)),
    "link lottery": Defence("node/sapo_node/groups/lottery.py", (OneLink,)),
    "groups a turn": Defence("node/sapo_node/groups/lottery.py", limits={"turn_groups": MANY}),
    "tier places": Defence("node/sapo_node/groups/lottery.py", (OneTier,)),
    "several sources": Defence("node/sapo_node/ingest/fetch.py", (AsksOneSource,)),
    "one request a body": Defence("node/sapo_node/ingest/fetch.py", (PassesOnEach,)),
    "answer budget": Defence("node/sapo_node/ingest/sync.py", (AnswersWithoutEnd,)),
    "turns beside withheld bodies": Defence("node/sapo_node/verification/verifier.py", (WaitsForBodies,)),
    "inbox bounds": Defence(
        "node/sapo_node/groups/lottery.py", limits={"pending_per_peer": MANY, "pending_places": MANY}
    ),
    "untrusted class": Defence(
        "node/sapo_node/sampling/sampler.py", limits={"strangers_share": 1.0, "untrusted_counters": 1.0}
    ),
    "envelope quota": Defence("node/sapo_node/ingest/validator.py", limits={"untrusted_counters": 1.0}),
    "link rate": Defence(
        "node/sapo_node/processes/link_budget.py",
        limits={"strangers_per_second": float(MANY), "strangers_burst": float(MANY)},
    ),
    "promotion limits": Defence("node/sapo_node/trust/ledger.py", limits={"earned_per_epoch": MANY}),
    "flood publishing": Defence("node/sapo_node/gossip/mesh.py", network={"flood_publishing": False}),
    "gossip repair": Defence("node/sapo_node/gossip/machine.py", network={"gossip_repair": False}),
    "dialled mesh peers": Defence("node/sapo_node/gossip/mesh.py", network={"dialled_mesh_peers": False}),
    "frame deadline": Defence("node/sapo_node/net/gossip_streams.py", network={"frame_seconds": inf}),
    "stream caps": Defence("node/sapo_node/gossip/machine.py", network={"gossip_streams": MANY, "streams": 10**6}),
    "anchors": Defence("node/sapo_node/net/address_book.py", network={"anchors": False}),
    "reserved slots": Defence("node/sapo_node/net/inbound.py", network={"reserved_outbound": 0}),
    "inbound eviction": Defence("node/sapo_node/net/inbound.py", network={"eviction": False}),
    "records where they are": Defence(
        "node/sapo_node/net/host.py", network={"records_checked": False, "only_ours_dial": False}
    ),
    "peer exchange limits": Defence("node/sapo_node/net/address_book.py", network={"named": MANY, "wrong": MANY}),
    "scored mesh": Defence("node/sapo_node/gossip/mesh.py", network={"scored_mesh": False}),
    "control caps": Defence("node/sapo_node/gossip/machine.py", network={"control_caps": False}),
    "mass limit": Defence("node/sapo_node/sampling/sampler.py", limits={"loss_weight": inf}),
    "costly lies": Defence(
        "node/sapo_node/trust/constants.py", limits={"offence": dict.fromkeys(constants.OFFENCE, 0.0)}
    ),
    "sender rate": Defence(
        "node/sapo_node/processes/link_budget.py",
        limits={"messages_per_second": float(MANY), "message_burst": float(MANY)},
    ),
}
"""If two entries set one field, the later one holds."""


@dataclass(frozen=True, slots=True)
class Undefended:
    """The parts of all nodes of one simulation."""

    parts: Parts = PARTS
    network: NetworkDefences = NETWORK_DEFENDED
    scorer: type[SharedScorer] = SharedScorer


def ablated(names: Iterable[str]) -> Undefended:
    """The parts of nodes without these defences. Raises LocalError for an unknown name."""
    names = frozenset(names)
    for name in sorted(names - DEFENCES.keys()):
        raise LocalError(f"no defence {name!r}; there are {', '.join(DEFENCES)}")
    parts, undefended = PARTS, Undefended()
    without: dict[type, None] = {}
    for lacking in (defence for name, defence in DEFENCES.items() if name in names):
        parts = replace(parts, limits=replace(parts.limits, **lacking.limits), wire=replace(parts.wire, **lacking.wire))
        without |= dict.fromkeys(lacking.parts)
        undefended = Undefended(
            network=replace(undefended.network, **lacking.network),
            scorer=undefended.scorer if lacking.scorer is SharedScorer else lacking.scorer,
        )
    return replace(undefended, parts=replace(parts, **_combined(without)))


def _combined(without: Iterable[type]) -> dict[str, Any]:
    """By field of `Parts`, one class of all those that stand for its class."""
    found: dict[str, Any] = {}
    for each in fields(PARTS):
        base = getattr(PARTS, each.name)
        chosen = tuple(part for part in without if isinstance(base, type) and issubclass(part, base))
        if chosen:
            found[each.name] = type(base.__name__, chosen, {})
    return found
