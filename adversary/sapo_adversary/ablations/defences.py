"""The defences of a node by name, and how a run goes without each: the undefended arm of every attack.

A simulation sets the gates. A node has no switch for the other defences: a run without one of them replaces a function
or a number in its own process until the run ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from libp2p.network.swarm import Swarm
from libp2p.pubsub.gossipsub import GossipSub

import sapo_node.ingest.pending
import sapo_node.ingest.validator
import sapo_node.net.dialer
import sapo_node.net.host
import sapo_node.net.inbound
import sapo_node.net.pubsub
import sapo_node.net.service
import sapo_node.verification.verifier
import sapo_protocol.envelope
import sapo_protocol.rollout
from sapo_adversary.ablations import stock
from sapo_adversary.ablations.gates import gate_name
from sapo_adversary.ablations.replacements import (
    believe,
    believe_accusers,
    blame_the_carrier,
    forget_whom_it_refuses,
    keep_unscored_mesh,
    keep_zero_advantage,
    note_who_carries,
    open_unseen,
)
from sapo_adversary.scoring import SharedScorer
from sapo_node.ingest.seen import ReplayWindow
from sapo_node.ingest.validator import Ingest
from sapo_node.net.anchors import Anchors
from sapo_node.net.gossipsub import SteadyGossipSub
from sapo_node.net.router import ScoredGossipSub
from sapo_node.sampling.sampler import Sampler
from sapo_node.storage.counters import Counters
from sapo_node.trust import constants
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.scheduler import VerificationScheduler
from sapo_node.verification.verifier import Verifier
from sapo_protocol import (
    LocalError,
)

Replacement = tuple[Any, str, Any]
"""(object, name of its attribute, value that stands there instead)."""


@dataclass(frozen=True, slots=True)
class Defence:
    """One defence of a node."""

    where: str
    """The file of the repository that implements it."""
    replaced: tuple[Replacement, ...]
    """What a run without it replaces."""


_GATES = {
    "baseline": "node/sapo_node/sampling/filters/baseline.py",
    "habits": "node/sapo_node/sampling/filters/habits.py",
    "length": "node/sapo_node/sampling/filters/length.py",
    "steps": "node/sapo_node/sampling/filters/steps.py",
    "agreement": "node/sapo_node/sampling/filters/agreement.py",
    "surprise": "node/sapo_node/learner/filters.py",
    "follows": "node/sapo_node/learner/filters.py",
}

DEFENCES: Mapping[str, Defence] = {
    # A simulation sets the gates of its nodes: nothing is replaced.
    **{gate_name(gate): Defence(where, ()) for gate, where in _GATES.items()},
    "re-verification": Defence("node/sapo_node/verification/verifier.py", ((Verifier, "verify", believe),)),
    "signatures": Defence(
        "protocol/sapo_protocol/rollout.py",
        (
            (sapo_node.ingest.validator, "open_envelope", open_unseen),
            (sapo_protocol.rollout, "open_envelope", open_unseen),
            (Counters, "recognise", lambda _self, _envelope_id, _epoch: None),
        ),
    ),
    "strict signatures": Defence(
        "protocol/sapo_protocol/signature.py", ((sapo_protocol.envelope, "verify_signature", stock.verify_signature),)
    ),
    "bound signatures": Defence(
        "protocol/sapo_protocol/envelope.py",
        ((sapo_protocol.envelope, "_external_aad", lambda _domain, _network_id: b"\x40"),),
    ),
    "strict decoding": Defence(
        "protocol/sapo_protocol/cbor.py",
        (
            (sapo_node.ingest.validator, "decode_message", stock.decode_message),
            (sapo_node.ingest.validator, "parse_envelope", stock.parse_envelope),
            (sapo_node.ingest.validator, "decode_header", stock.decode_header),
            (sapo_protocol.rollout, "decode_message", stock.decode_message),
            (sapo_protocol.rollout, "parse_envelope", stock.parse_envelope),
            (sapo_protocol.rollout, "decode_header", stock.decode_header),
            (sapo_node.verification.verifier, "decode_body", stock.decode_body),
        ),
    ),
    "own scorers": Defence("node/sapo_node/verification/tasks/scorers.py", ((SharedScorer, "score", stock.score),)),
    "measured by the healthy": Defence(
        "node/sapo_node/sampling/sampler.py", ((Sampler, "reference_set", lambda _self, groups: groups),)
    ),
    "flat groups dropped": Defence(
        "node/sapo_node/verification/verifier.py", ((Verifier, "__init__", keep_zero_advantage),)
    ),
    "replay window": Defence(
        "node/sapo_node/ingest/seen.py",
        (
            (ReplayWindow, "received", lambda _self, _envelope_id: None),
            (ReplayWindow, "first", lambda _self, _issuer, _header: None),
            (ReplayWindow, "remembers", lambda _self, _epoch: True),
            (sapo_node.ingest.validator, "in_window", lambda _manifest, _epoch, _now: True),
            (constants, "MAX_AGE", 10**9),
        ),
    ),
    "one content a counter": Defence(
        "node/sapo_node/ingest/seen.py", ((ReplayWindow, "first", lambda _self, _issuer, _header: None),)
    ),
    "epoch window": Defence(
        "node/sapo_node/ingest/validator.py",
        (
            (sapo_node.ingest.validator, "in_window", lambda _manifest, _epoch, _now: True),
            (ReplayWindow, "remembers", lambda _self, _epoch: True),
        ),
    ),
    "proof of equivocation": Defence("node/sapo_node/trust/equivocation.py", ((Ingest, "_ban", believe_accusers),)),
    "evidence budget": Defence("node/sapo_node/trust/equivocation.py", ((constants, "UNKNOWN_BANS", 10**9),)),
    "durable ledger": Defence("node/sapo_node/trust/ledger.py", ((Ledger, "admits", forget_whom_it_refuses),)),
    "blame to the author": Defence(
        "node/sapo_node/ingest/validator.py",
        ((Ingest, "handle", note_who_carries), (Ledger, "report", blame_the_carrier)),
    ),
    "begun first": Defence(
        "node/sapo_node/verification/scheduler.py", ((VerificationScheduler, "_first", lambda _self, peers: peers),)
    ),
    "inbox bounds": Defence(
        "node/sapo_node/ingest/pending.py",
        ((sapo_node.ingest.pending, "MAX_PER_PEER", 10**9), (sapo_node.ingest.pending, "MAX_ROLLOUTS", 10**9)),
    ),
    "newcomer class": Defence(
        "node/sapo_node/sampling/sampler.py",
        (
            (constants, "NEWCOMER_SHARE", 1.0),
            (constants, "NEWCOMER_CREDIT_LIMIT", inf),
            (constants, "NEWCOMER_VERIFICATIONS", 64),
            (constants, "NEWCOMER_COUNTERS", 1.0),
            (constants, "NEWCOMER_ENVELOPES", 10**9),
        ),
    ),
    "envelope quota": Defence(
        "node/sapo_node/ingest/rate_limit.py",
        ((constants, "NEWCOMER_COUNTERS", 1.0), (constants, "NEWCOMER_ENVELOPES", 10**9)),
    ),
    "promotion limits": Defence(
        "node/sapo_node/trust/ledger.py",
        ((constants, "EARNED_PER_EPOCH", 10**9), (constants, "PROMOTIONS_SHARE", 10.0**9)),
    ),
    "cohort share": Defence("node/sapo_node/sampling/sampler.py", ((constants, "COHORT_SHARE", 1.0),)),
    "flood publishing": Defence(
        "node/sapo_node/net/gossipsub.py",
        ((SteadyGossipSub, "_get_peers_to_send", GossipSub._get_peers_to_send),),  # noqa: SLF001
    ),
    "gossip repair": Defence(
        "node/sapo_node/net/gossipsub.py", ((SteadyGossipSub, "gossip_heartbeat", GossipSub.gossip_heartbeat),)
    ),
    "dialled mesh peers": Defence(
        "node/sapo_node/net/gossipsub.py",
        (
            (SteadyGossipSub, "mesh_heartbeat", GossipSub.mesh_heartbeat),
            (SteadyGossipSub, "_select_peers_for_pruning", GossipSub._select_peers_for_pruning),  # noqa: SLF001
        ),
    ),
    "frame deadline": Defence("node/sapo_node/net/pubsub.py", ((sapo_node.net.pubsub, "FRAME_SECONDS", inf),)),
    "stream caps": Defence(
        "node/sapo_node/net/pubsub.py",
        ((sapo_node.net.pubsub, "STREAMS", 10**9), (sapo_node.net.inbound, "STREAMS", 10**6)),
    ),
    "anchors": Defence("node/sapo_node/net/anchors.py", ((Anchors, "addresses", ()),)),
    "reserved slots": Defence("node/sapo_node/net/host.py", ((sapo_node.net.host, "RESERVED_OUTBOUND", 0),)),
    "no peer exchange": Defence(
        "node/sapo_node/net/pubsub.py", ((sapo_node.net.pubsub, "_sanitise", lambda _control, _topics: None),)
    ),
    "records where they are": Defence(
        "node/sapo_node/net/service.py",
        (
            (sapo_node.net.service, "_is_at", lambda _text, _sources: True),
            (sapo_node.net.host, "_dial_nobody", Swarm.dial_peer),
        ),
    ),
    "hearsay limits": Defence(
        "node/sapo_node/net/dialer.py", ((sapo_node.net.dialer, "NAMED", 10**9), (sapo_node.net.dialer, "WRONG", 10**9))
    ),
    "scored mesh": Defence(
        "node/sapo_node/net/router.py",
        (
            (ScoredGossipSub, "mesh_heartbeat", keep_unscored_mesh),
            (ScoredGossipSub, "_select_peers_for_pruning", SteadyGossipSub._select_peers_for_pruning),  # noqa: SLF001
            (ScoredGossipSub, "_check_back_off", GossipSub._check_back_off),  # noqa: SLF001
            (ScoredGossipSub, "handle_graft", GossipSub.handle_graft),
        ),
    ),
    "control caps": Defence(
        "node/sapo_node/net/router.py",
        (
            (ScoredGossipSub, "within_rate", lambda _self, _peer, _rpc: True),
            (ScoredGossipSub, "handle_graft", GossipSub.handle_graft),
            (ScoredGossipSub, "handle_ihave", GossipSub.handle_ihave),
            (ScoredGossipSub, "handle_iwant", GossipSub.handle_iwant),
        ),
    ),
    "peer share": Defence("node/sapo_node/sampling/sampler.py", ((constants, "PEER_SHARE", 1.0),)),
    "mass limit": Defence("node/sapo_node/sampling/sampler.py", ((constants, "LOSS_WEIGHT_LIMIT", inf),)),
    "costly lies": Defence(
        "node/sapo_node/trust/constants.py", ((constants, "OFFENCE", dict.fromkeys(constants.OFFENCE, 0.0)),)
    ),
    "sender rate": Defence(
        "node/sapo_node/ingest/rate_limit.py",
        ((constants, "MESSAGES_PER_SECOND", 10.0**9), (constants, "MESSAGE_BURST", 10.0**9)),
    ),
}


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Run the block without these defences. Raises LocalError for an unknown name."""
    names = tuple(names)
    for name in names:
        if name not in DEFENCES:
            raise LocalError(f"no defence {name!r}; there are {', '.join(DEFENCES)}")
    with ExitStack() as stack:
        for name in names:
            for owner, attribute, value in DEFENCES[name].replaced:
                stack.callback(setattr, owner, attribute, getattr(owner, attribute))
                setattr(owner, attribute, value)
        yield
