"""Defences by name, and how a swarm goes without each: the undefended arm of every attack.

But for gates, a node has no such switches. A run without a defence replaces, in its own process and until it ends, the
function or the number that is the defence.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

from libp2p.network.swarm import Swarm
from libp2p.pubsub.gossipsub import GossipSub

import sapo_node.inbox
import sapo_node.ingest
import sapo_node.net.dialer
import sapo_node.net.hardened
import sapo_node.net.host
import sapo_node.net.inbound
import sapo_node.net.service
import sapo_node.verify
import sapo_protocol.envelope
import sapo_protocol.rollout
from sapo_adversary.ablations import stock
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.simulation import gate_name
from sapo_node.anchors import Anchors
from sapo_node.counters import Counters
from sapo_node.ingest import Ingest
from sapo_node.intake import Intake
from sapo_node.jail.messages import ScoreRequest
from sapo_node.net.interface import Verdict
from sapo_node.net.mesh import ScoredGossipSub
from sapo_node.net.steady import SteadyGossipSub
from sapo_node.replay import ReplayWindow
from sapo_node.sampler import Sampler
from sapo_node.trust import policy
from sapo_node.trust.ledger import Account, Ledger
from sapo_node.trust.policy import Fact, Standing
from sapo_node.verify import VerifiedGroup, Verifier, request_for
from sapo_protocol import (
    Equivocation,
    LocalError,
    Opened,
    Rollout,
    Sealed,
    decode_body,
    decode_evidence,
    decode_message,
    parse_envelope,
    peer_id,
)

Replacement = tuple[Any, str, Any]
"""Object, name of its attribute, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Defence:
    """One thing that a node does against attackers."""

    where: str
    """The file of the repository to read."""
    replaced: tuple[Replacement, ...]
    """How to go without."""


async def _believe(verifier: Verifier, rollout: Rollout) -> list[VerifiedGroup]:
    """Take the claims for the rewards, as whoever does not score again must."""
    groups = []
    for k, (header, data) in enumerate(zip(rollout.header.groups, rollout.bodies, strict=True)):
        if data is None or len(set(header.claims)) == 1:
            continue
        body = decode_body(data, verifier._manifest)  # noqa: SLF001 - stands for a method of it
        request = request_for(verifier._manifest, rollout, k, body)  # noqa: SLF001
        [task] = await verifier._scorer.score([ScoreRequest(request.dataset, request.config, request.seed, ())])  # noqa: SLF001
        place = (peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, k)
        if task is not None:
            groups.append(VerifiedGroup(*place, request.dataset, task.question, body.completions, header.claims))
    return groups


def _open_unseen(sealed: Sealed) -> Opened:
    """Take any signature for a good one."""
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)


def _believe_accusers(ingest: Ingest, evidence: bytes, *, publish: bool) -> None:
    """Take any two envelopes that name one issuer for a proof against it."""
    accusation = decode_evidence(evidence, ingest._manifest)  # noqa: SLF001 - stands for a method of it
    if accusation.issuer != ingest._issuer:  # noqa: SLF001
        proof = Equivocation(accusation.issuer, 0, 0, evidence)
        ingest._inbox.forget(ingest._court.convict(proof, publish=publish))  # noqa: SLF001


def _forget_whom_it_refuses(ledger: Ledger, peer: str) -> bool:
    """Keep the books by connection: a ban ends one, and with it all that was known of the peer."""
    if ledger.standing(peer) is not Standing.BANNED:
        return True
    del ledger._accounts[peer]  # noqa: SLF001 - stands for a method of it
    return False


_carriers: WeakKeyDictionary[Ledger, dict[str, str]] = WeakKeyDictionary()
"""For each node, the peer from which it last had something of an issuer."""
_report, _handle = Ledger.report, Ingest.handle


async def _note_who_carries(ingest: Ingest, sender: str, data: bytes, *, shard: int) -> Verdict:
    """Take a message, and remember whom to blame for it."""
    verdict = await _handle(ingest, sender, data, shard=shard)
    if verdict is Verdict.ACCEPT:
        envelope, _ = decode_message(data, ingest._manifest)  # noqa: SLF001
        issuer = parse_envelope(envelope, network_id=ingest._manifest.network_id).issuer  # noqa: SLF001
        _carriers.setdefault(ingest._ledger, {})[peer_id(issuer)] = sender  # noqa: SLF001
    return verdict


def _blame_the_carrier(ledger: Ledger, peer: str, fact: Fact) -> Account:
    """Charge what fails at verification to the peer that brought it, as gossip scores do."""
    if fact in (Fact.FALSE_CLAIM, Fact.MALFORMED_BODY):
        peer = _carriers.get(ledger, {}).get(peer, peer)
    return _report(ledger, peer, fact)


_verifier_begins = Verifier.__init__


def _keep_flat(verifier: Verifier, *parts: Any, **settings: Any) -> None:
    """Verify and keep what has no advantage as well."""
    _verifier_begins(verifier, *parts, **{**settings, "keep_flat": True})


def _keep_unscored_mesh(router: ScoredGossipSub) -> tuple[Any, Any]:
    """Let everybody into the mesh who asks, and out of it at random, as often as they like."""
    router._settle()  # noqa: SLF001 - stands for a method of it
    return SteadyGossipSub.mesh_heartbeat(router)


_GATES = {
    "baseline": "node/sapo_node/gates/baseline.py",
    "habits": "node/sapo_node/gates/habits.py",
    "length": "node/sapo_node/gates/length.py",
    "steps": "node/sapo_node/gates/steps.py",
    "agreement": "node/sapo_node/gates/agreement.py",
    "surprise": "node/sapo_node/learner/gates.py",
    "follows": "node/sapo_node/learner/gates.py",
}

DEFENCES: Mapping[str, Defence] = {
    # A node has switches for these, which a scenario sets.
    **{gate_name(gate): Defence(where, ()) for gate, where in _GATES.items()},
    "re-verification": Defence("node/sapo_node/verify.py", ((Verifier, "verify", _believe),)),
    "signatures": Defence(
        "protocol/sapo_protocol/rollout.py",
        (
            (sapo_node.ingest, "open_envelope", _open_unseen),
            (sapo_protocol.rollout, "open_envelope", _open_unseen),
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
            (sapo_node.ingest, "decode_message", stock.decode_message),
            (sapo_node.ingest, "parse_envelope", stock.parse_envelope),
            (sapo_node.ingest, "decode_header", stock.decode_header),
            (sapo_protocol.rollout, "decode_message", stock.decode_message),
            (sapo_protocol.rollout, "parse_envelope", stock.parse_envelope),
            (sapo_protocol.rollout, "decode_header", stock.decode_header),
            (sapo_node.verify, "decode_body", stock.decode_body),
        ),
    ),
    "own scorers": Defence("node/sapo_node/tasks/scorers.py", ((SharedScorer, "score", stock.score),)),
    "measured by the healthy": Defence(
        "node/sapo_node/sampler.py", ((Sampler, "yardstick", lambda _self, groups: groups),)
    ),
    "flat groups dropped": Defence("node/sapo_node/verify.py", ((Verifier, "__init__", _keep_flat),)),
    "replay window": Defence(
        "node/sapo_node/replay.py",
        (
            (ReplayWindow, "received", lambda _self, _envelope_id: None),
            (ReplayWindow, "first", lambda _self, _issuer, _header: None),
            (ReplayWindow, "remembers", lambda _self, _epoch: True),
            (sapo_node.ingest, "in_window", lambda _manifest, _epoch, _now: True),
            (policy, "MAX_AGE", 10**9),
        ),
    ),
    "one content a counter": Defence(
        "node/sapo_node/replay.py", ((ReplayWindow, "first", lambda _self, _issuer, _header: None),)
    ),
    "epoch window": Defence(
        "node/sapo_node/ingest.py",
        (
            (sapo_node.ingest, "in_window", lambda _manifest, _epoch, _now: True),
            (ReplayWindow, "remembers", lambda _self, _epoch: True),
        ),
    ),
    "proof of equivocation": Defence("node/sapo_node/trust/court.py", ((Ingest, "_convict", _believe_accusers),)),
    "evidence budget": Defence("node/sapo_node/trust/court.py", ((policy, "STRANGERS_CONVICTED", 10**9),)),
    "durable ledger": Defence("node/sapo_node/trust/ledger.py", ((Ledger, "admits", _forget_whom_it_refuses),)),
    "blame to the author": Defence(
        "node/sapo_node/ingest.py", ((Ingest, "handle", _note_who_carries), (Ledger, "report", _blame_the_carrier))
    ),
    "begun first": Defence("node/sapo_node/intake.py", ((Intake, "_first", lambda _self, peers: peers),)),
    "inbox bounds": Defence(
        "node/sapo_node/inbox.py", ((sapo_node.inbox, "MAX_PER_PEER", 10**9), (sapo_node.inbox, "MAX_ROLLOUTS", 10**9))
    ),
    "newcomer class": Defence(
        "node/sapo_node/sampler.py",
        (
            (policy, "NEWCOMER_SHARE", 1.0),
            (policy, "NEWCOMER_CREDIT_LIMIT", inf),
            (policy, "NEWCOMER_VERIFICATIONS", 64),
            (policy, "NEWCOMER_COUNTERS", 1.0),
            (policy, "NEWCOMER_ENVELOPES", 10**9),
        ),
    ),
    "envelope quota": Defence(
        "node/sapo_node/quota.py", ((policy, "NEWCOMER_COUNTERS", 1.0), (policy, "NEWCOMER_ENVELOPES", 10**9))
    ),
    "promotion limits": Defence(
        "node/sapo_node/trust/ledger.py", ((policy, "EARNED_PER_EPOCH", 10**9), (policy, "PROMOTIONS_SHARE", 10.0**9))
    ),
    "cohort share": Defence("node/sapo_node/sampler.py", ((policy, "COHORT_SHARE", 1.0),)),
    "flood publishing": Defence(
        "node/sapo_node/net/steady.py",
        ((SteadyGossipSub, "_get_peers_to_send", GossipSub._get_peers_to_send),),  # noqa: SLF001
    ),
    "gossip repair": Defence(
        "node/sapo_node/net/steady.py", ((SteadyGossipSub, "gossip_heartbeat", GossipSub.gossip_heartbeat),)
    ),
    "dialled mesh peers": Defence(
        "node/sapo_node/net/steady.py",
        (
            (SteadyGossipSub, "mesh_heartbeat", GossipSub.mesh_heartbeat),
            (SteadyGossipSub, "_select_peers_for_pruning", GossipSub._select_peers_for_pruning),  # noqa: SLF001
        ),
    ),
    "frame deadline": Defence("node/sapo_node/net/hardened.py", ((sapo_node.net.hardened, "FRAME_SECONDS", inf),)),
    "stream caps": Defence(
        "node/sapo_node/net/hardened.py",
        ((sapo_node.net.hardened, "STREAMS", 10**9), (sapo_node.net.inbound, "STREAMS", 10**6)),
    ),
    "anchors": Defence("node/sapo_node/anchors.py", ((Anchors, "addresses", ()),)),
    "reserved slots": Defence("node/sapo_node/net/host.py", ((sapo_node.net.host, "RESERVED_OUTBOUND", 0),)),
    "no peer exchange": Defence(
        "node/sapo_node/net/hardened.py", ((sapo_node.net.hardened, "_tame", lambda _control, _topics: None),)
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
        "node/sapo_node/net/mesh.py",
        (
            (ScoredGossipSub, "mesh_heartbeat", _keep_unscored_mesh),
            (ScoredGossipSub, "_select_peers_for_pruning", SteadyGossipSub._select_peers_for_pruning),  # noqa: SLF001
            (ScoredGossipSub, "_check_back_off", GossipSub._check_back_off),  # noqa: SLF001
            (ScoredGossipSub, "handle_graft", GossipSub.handle_graft),
        ),
    ),
    "control caps": Defence(
        "node/sapo_node/net/mesh.py",
        (
            (ScoredGossipSub, "bears", lambda _self, _peer, _rpc: True),
            (ScoredGossipSub, "handle_graft", GossipSub.handle_graft),
            (ScoredGossipSub, "handle_ihave", GossipSub.handle_ihave),
            (ScoredGossipSub, "handle_iwant", GossipSub.handle_iwant),
        ),
    ),
    "peer share": Defence("node/sapo_node/sampler.py", ((policy, "PEER_SHARE", 1.0),)),
    "mass limit": Defence("node/sapo_node/sampler.py", ((policy, "MASS_LIMIT", inf),)),
    "costly lies": Defence(
        "node/sapo_node/trust/policy.py", ((policy, "OFFENCE", dict.fromkeys(policy.OFFENCE, 0.0)),)
    ),
    "sender rate": Defence(
        "node/sapo_node/quota.py", ((policy, "MESSAGES_PER_SECOND", 10.0**9), (policy, "MESSAGE_BURST", 10.0**9))
    ),
}


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Go without these defences. Raises LocalError for a name that is none."""
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
