"""What stands in place of parts of a node where a run goes without a defence; see `defences`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sapo_adversary.attacks.cross_domain import elsewhere
from sapo_node.groups.types import VerifiedGroup
from sapo_node.net.interface import Channel, Handle, Verdict
from sapo_node.verification.sandbox.messages import ScoreRequest
from sapo_node.verification.verifier import request_for
from sapo_protocol import (
    ROLLOUT_DOMAIN,
    Equivocation,
    Evidence,
    Manifest,
    Opened,
    Rollout,
    Sealed,
    decode_body,
    decode_message,
    encode_evidence,
    parse_envelope,
    peer_id,
    verify_signature,
)


async def believe(manifest: Manifest, scorer: Any, rollout: Rollout) -> list[VerifiedGroup]:
    """Take the claims for the rewards, without scoring."""
    groups = []
    for k, (header, data) in enumerate(zip(rollout.header.groups, rollout.bodies, strict=True)):
        if data is None or len(set(header.claims)) == 1:
            continue
        body = decode_body(data, manifest)
        request = request_for(manifest, rollout, k, body)
        [task] = await scorer.score([ScoreRequest(request.dataset, request.config, request.seed, ())])
        place = (peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, k)
        if task is not None:
            groups.append(VerifiedGroup(*place, request.dataset, task.prompt, body.completions, header.claims))
    return groups


def open_unseen(sealed: Sealed) -> Opened:
    """Accept any signature."""
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)


def parse_unbound(data: bytes, *, network_id: bytes) -> Sealed:
    """Take an envelope for whichever swarm and purpose it was signed, of those that the attack signs for."""
    places = [(network_id, ROLLOUT_DOMAIN), *elsewhere(network_id)]
    parsed = [parse_envelope(data, network_id=network, domain=domain) for network, domain in places]
    signed = (each for each in parsed if verify_signature(each.issuer, each.signed, each.signature))
    return next(signed, parsed[0])


def believe_accuser(own: bytes, accusation: Evidence, _manifest: Manifest) -> Equivocation | None:
    """Take any two envelopes of one issuer for a proof of equivocation; the node of the key `own` knows better of
    itself.
    """
    if accusation.issuer == own:
        return None
    return Equivocation(accusation.issuer, 0, 0, encode_evidence(*accusation.envelopes))


class Carriers:
    """Of each issuer, the peer that last forwarded something of it to one node."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._last: dict[str, str] = {}

    def last(self, issuer: str) -> str:
        """The peer id of who forwarded something of an issuer (a peer id); the issuer where nobody did."""
        return self._last.get(issuer, issuer)

    def noting(self, channels: Mapping[str, Channel]) -> dict[str, Channel]:
        """The same channels, which note who forwards rollouts."""
        return {
            topic: channel if channel.everybodys else replace(channel, handle=self._noting(channel.handle))
            for topic, channel in channels.items()
        }

    def _noting(self, handle: Handle) -> Handle:
        async def noted(sender: str, data: bytes) -> Verdict:
            verdict = await handle(sender, data)
            if verdict in (Verdict.ACCEPT, Verdict.KEEP):
                envelope, _ = decode_message(data, self._manifest)
                issuer = parse_envelope(envelope, network_id=self._manifest.network_id).issuer
                self._last[peer_id(issuer)] = sender
            return verdict

        return noted
