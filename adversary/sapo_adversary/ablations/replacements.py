"""The functions that stand in place of those of a node where a run goes without a defence; see `defences`."""

from typing import Any
from weakref import WeakKeyDictionary

from sapo_node.groups.types import VerifiedGroup
from sapo_node.ingest.validator import Ingest
from sapo_node.net.gossipsub import SteadyGossipSub
from sapo_node.net.interface import Verdict
from sapo_node.net.router import ScoredGossipSub
from sapo_node.trust.constants import Fact, Standing
from sapo_node.trust.ledger import Account, Ledger
from sapo_node.verification.sandbox.messages import ScoreRequest
from sapo_node.verification.verifier import Verifier, request_for
from sapo_protocol import (
    Equivocation,
    Opened,
    Rollout,
    Sealed,
    decode_body,
    decode_evidence,
    decode_message,
    parse_envelope,
    peer_id,
)


async def believe(verifier: Verifier, rollout: Rollout) -> list[VerifiedGroup]:
    """Take the claims for the rewards, without scoring."""
    groups = []
    for k, (header, data) in enumerate(zip(rollout.header.groups, rollout.bodies, strict=True)):
        if data is None or len(set(header.claims)) == 1:
            continue
        body = decode_body(data, verifier._manifest)  # noqa: SLF001 - stands for a method of it
        request = request_for(verifier._manifest, rollout, k, body)  # noqa: SLF001
        [task] = await verifier._scorer.score([ScoreRequest(request.dataset, request.config, request.seed, ())])  # noqa: SLF001
        place = (peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, k)
        if task is not None:
            groups.append(VerifiedGroup(*place, request.dataset, task.prompt, body.completions, header.claims))
    return groups


def open_unseen(sealed: Sealed) -> Opened:
    """Accept any signature."""
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)


def believe_accusers(ingest: Ingest, evidence: bytes, *, publish: bool) -> None:
    """Take any two envelopes of one issuer for a proof of equivocation."""
    accusation = decode_evidence(evidence, ingest._manifest)  # noqa: SLF001 - stands for a method of it
    if accusation.issuer != ingest._issuer:  # noqa: SLF001
        proof = Equivocation(accusation.issuer, 0, 0, evidence)
        ingest._pending_queue.forget(ingest._equivocation_handler.ban(proof, publish=publish))  # noqa: SLF001


def forget_whom_it_refuses(ledger: Ledger, peer: str) -> bool:
    """Keep the ledger by connection: when a ban ends the connection, the account of the peer is deleted."""
    if ledger.standing(peer) is not Standing.BANNED:
        return True
    del ledger._accounts[peer]  # noqa: SLF001 - stands for a method of it
    return False


_carriers: WeakKeyDictionary[Ledger, dict[str, str]] = WeakKeyDictionary()
"""For each node, the peer from which it last had something of an issuer."""
_report, _handle = Ledger.report, Ingest.handle


async def note_who_carries(ingest: Ingest, sender: str, data: bytes, *, shard: int) -> Verdict:
    """Handle a message, and remember which peer forwarded it."""
    verdict = await _handle(ingest, sender, data, shard=shard)
    if verdict is Verdict.ACCEPT:
        envelope, _ = decode_message(data, ingest._manifest)  # noqa: SLF001
        issuer = parse_envelope(envelope, network_id=ingest._manifest.network_id).issuer  # noqa: SLF001
        _carriers.setdefault(ingest._ledger, {})[peer_id(issuer)] = sender  # noqa: SLF001
    return verdict


def blame_the_carrier(ledger: Ledger, peer: str, fact: Fact) -> Account:
    """Charge what fails at verification to the peer that forwarded it, as a gossip score does."""
    if fact in (Fact.FALSE_CLAIM, Fact.MALFORMED_BODY):
        peer = _carriers.get(ledger, {}).get(peer, peer)
    return _report(ledger, peer, fact)


_verifier_begins = Verifier.__init__


def keep_zero_advantage(verifier: Verifier, *parts: Any, **settings: Any) -> None:
    """Verify and keep zero-advantage groups as well."""
    _verifier_begins(verifier, *parts, **{**settings, "keep_zero_advantage": True})


def keep_unscored_mesh(router: ScoredGossipSub) -> tuple[Any, Any]:
    """Accept every peer into the mesh that asks, and prune at random, without back-off."""
    router._settle()  # noqa: SLF001 - stands for a method of it
    return SteadyGossipSub.mesh_heartbeat(router)
