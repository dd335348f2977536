"""The parts of a node without one defence: each class overrides what the defence does; see `defences`.

A node may go without several defences of one part: `ablated` then makes one class of their classes. So two classes that
override one method of a part call `super`.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from statistics import median
from typing import Any

from sapo_adversary.attacks.identity import elsewhere
from sapo_node.gossip.seen import RecentIds
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.book import Book, Turn
from sapo_node.groups.levels import Levels
from sapo_node.groups.lottery import ENDED_LINK, Lottery
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import GroupKey, State, VerifiedGroup
from sapo_node.ingest.fetch import Fetcher
from sapo_node.ingest.sync import Responder
from sapo_node.ingest.validator import Ingest, ReplayWindow
from sapo_node.net.interface import Channel, Handle
from sapo_node.processes.link_budget import LinkBudget
from sapo_node.sampling.filters import Filters, OneAnswerFilter
from sapo_node.sampling.sampler import Sampler
from sapo_node.storage.context import SwarmContext
from sapo_node.trust.constants import Fact, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.verifier import Finding, VerificationScheduler, Verifier, request_for
from sapo_protocol import (
    ROLLOUT_DOMAIN,
    Equivocation,
    Header,
    InventoryItem,
    Opened,
    Rollout,
    Sealed,
    decode_body,
    decode_evidence,
    decode_message,
    encode_evidence,
    parse_envelope,
    peer_id,
    verify_signature,
)

_ENDLESS = 1e18
"""Bytes, and bytes a second."""


def open_unseen(sealed: Sealed) -> Opened:
    """Accept any signature."""
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)


def parse_unbound(data: bytes, *, network_id: bytes) -> Sealed:
    """Take an envelope for whichever swarm and purpose it was signed, of those that the attack signs for."""
    places = [(network_id, ROLLOUT_DOMAIN), *elsewhere(network_id)]
    parsed = [parse_envelope(data, network_id=network, domain=domain) for network, domain in places]
    signed = (each for each in parsed if verify_signature(each.issuer, each.signed, each.signature))
    return next(signed, parsed[0])


class ForgivesForgeries(Ingest):
    """Ignores envelopes that carry this node's own key: without checked signatures anybody writes them."""

    def _recognise(self, opened: Opened, header: Header) -> None:
        del opened, header


class BelievesAccusers(Ingest):
    """Takes any two envelopes of one issuer for a proof of equivocation, except those of this node."""

    def _ban(self, evidence: bytes, *, publish: bool) -> None:
        accusation = decode_evidence(evidence, self._manifest)
        if accusation.issuer != self._issuer:
            proof = Equivocation(accusation.issuer, 0, 0, encode_evidence(*accusation.envelopes))
            self._book.forget(self._equivocation_handler.ban(proof, publish=publish))


class AcceptsRepeats(ReplayWindow):
    """Takes an envelope as often as it comes."""

    def received(self, envelope_id: bytes) -> int | None:
        """None: the node knows no envelope again."""
        del envelope_id
        return None


class AcceptsSecondContents(ReplayWindow):
    """Takes any number of envelopes under one counter."""

    def first(self, issuer: bytes, header: Header) -> bytes | None:
        """None: the node remembers no envelope of a counter."""
        del issuer, header
        return None


class AcceptsEveryEpoch(ReplayWindow):
    """Takes rollouts of any epoch."""

    def is_open(self, epoch: int, now: float) -> bool:
        """True: every epoch is open."""
        del epoch, now
        return True


class _NoCredit(Lottery):
    def credit(self, peer: str, groups: int) -> None:
        del peer, groups


class OneLink(Book):
    """Draws issuers alike, by whichever link their rollouts came."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self.lottery = _NoCredit(self._rng, self._limits)
        self._count_places()

    def arrive(self, rollout: Rollout, *, link: str, tier: Tier, groups: int | None = None) -> None:
        """Add a rollout as if its link had ended."""
        del link
        super().arrive(rollout, link=ENDED_LINK, tier=tier, groups=groups)


class OneTier(Book):
    """Has one tier for all peers."""

    def arrive(self, rollout: Rollout, *, link: str, tier: Tier, groups: int | None = None) -> None:
        """Add a rollout to the tier of strangers."""
        del tier
        super().arrive(rollout, link=link, tier=Tier.STRANGER, groups=groups)


class OffersAgain(Book):
    """Offers a group again that the node knows: a book that only knows what is on offer."""

    def offer(
        self, group: VerifiedGroup, envelope_id: str = "", *, signed: tuple[bytes | None, bytes | None] = (None, None)
    ) -> None:
        """Free the key of a group that is no longer on offer, and offer the new one."""
        self._database.execute(
            "UPDATE groups SET counter = -number WHERE peer = ? AND epoch = ? AND counter = ? AND k = ? "
            "AND state NOT IN (?, ?)",
            *(*group.key, State.VERIFIED, State.DRAWN),
        )
        super().offer(group, envelope_id, signed=signed)


class ForgetsBans(Ledger):
    """Forgets a banned peer as soon as it has refused it once, as a node that bans connections alone does."""

    def admits(self, peer: str) -> bool:
        """Return True unless the peer is banned."""
        admitted = super().admits(peer)
        if not admitted:
            self._accounts.pop(peer, None)
        return admitted


class AsksOneSource(Fetcher):
    """Asks one peer for bodies, and no other if that one gives none."""

    def _sources(self, rollout: Rollout, *, most: int, without: str = "") -> Sequence[str]:
        return super()._sources(rollout, most=min(most, 1), without=without)


class PassesOnEach(Fetcher):
    """Passes each request on, also while another for the same envelope waits, and after one that brought nothing."""

    async def pass_on(self, asker: str, wanted: InventoryItem, hops: int) -> None:
        """Pass a request on as if it were the only one."""
        alone = copy(self)
        alone._passed_on, alone._in_vain = {}, RecentIds()  # noqa: SLF001 - of this class
        await Fetcher.pass_on(alone, asker, wanted, hops)


class AnswersWithoutEnd(Responder):
    """Charges no bytes for its answers."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._bytes = LinkBudget(rate=_ENDLESS, burst=_ENDLESS)


class WaitsForBodies(VerificationScheduler):
    """Waits for the bodies of a turn before it draws the next."""

    def draw_ahead(self, wanted: int) -> None:
        del wanted

    async def _next(self, tier: Tier, deadline: float) -> Turn | None:
        del deadline
        fetched = self._fetched[tier]
        if not self._draw(tier):
            return None
        while not fetched.ready:
            await fetched.changed.wait()
        return fetched.ready.popleft()


class BelievesClaims(Verifier):
    """Takes the claims for the levels, without scoring."""

    async def verify(self, turn: Turn) -> dict[int, Finding]:
        """The groups of a turn that claim an advantage, by k."""
        rollout = turn.rollout
        found: dict[int, Finding] = {}
        for k in turn.groups:
            data, levels = rollout.bodies[k], self._claimed(rollout, k)
            if data is None or self._is_without_advantage(levels):
                continue
            body = decode_body(data, self._manifest)
            request = request_for(self._manifest, rollout, k, body)
            [task] = await self._scorer.score([ScoreRequest(request.dataset, request.config, request.seed, ())])
            if task is not None:
                found[k] = VerifiedGroup(
                    peer=peer_id(rollout.opened.issuer),
                    epoch=rollout.header.epoch,
                    counter=rollout.header.counter,
                    k=k,
                    dataset=request.dataset,
                    prompt=task.prompt,
                    completions=tuple(Sampled(each.text, each.finish.value) for each in body.completions),
                    levels=levels,
                )
        return found


class KeepsZeroAdvantage(Verifier):
    """Keeps groups without advantage."""

    def _is_without_advantage(self, levels: Levels) -> bool:
        del levels
        return False


class KeepsParts(Verifier):
    """Keeps groups whose completions differ in level, also without a correct one."""

    def _is_without_advantage(self, levels: Levels) -> bool:
        return len(set(levels.each)) == 1


class TrainsOnParts(Sampler):
    """Trains on the completions of peers by level, as on local ones."""

    def _advantages(self, group: VerifiedGroup) -> tuple[float, ...]:
        return local_advantages(group.levels)


class BlamesCarriers(Verifier):
    """Charges an offence to the peer that last forwarded something of the issuer."""

    def __init__(self, swarm: SwarmContext, *parts: Any, **settings: Any) -> None:
        super().__init__(swarm, *parts, **settings)
        self._last: dict[str, str] = {}

    def _charge(self, issuer: str, fact: Fact) -> None:
        self._ledger.report(self._last.get(issuer, issuer), fact)

    def noting(self, channels: Mapping[str, Channel]) -> dict[str, Channel]:
        """The same channels, which note the peers that forward rollouts."""
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


class AcceptsSecondAnswers(Filters):
    """Accepts completions that hold another answer before the scored one."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._used = tuple(each for each in self._used if not isinstance(each, OneAnswerFilter))


class MeasuredByAll(Sampler):
    """Measures groups by all on offer."""

    def _unit(self, groups: Sequence[VerifiedGroup], weights: Mapping[GroupKey, float]) -> float:
        del groups
        return median(weights.values())

    def reference_set(self, groups: Sequence[VerifiedGroup]) -> Sequence[VerifiedGroup]:
        """All groups."""
        return groups
