"""From a signed rollout to verified groups: tasks rebuilt here, rewards computed here, claims compared.

This is the only place where a VerifiedGroup is made. Nothing of the peer's reaches it but the text of its
completions: dataset, configuration and seed follow from the assignment, question and rewards come from the sandbox.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from sapo_node.groups.task_name import task_name
from sapo_node.groups.types import VerifiedGroup
from sapo_node.ingest.wire import WIRE, Wire
from sapo_node.processes.bounded import Bounded
from sapo_node.storage.context import SwarmContext
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.sandbox.messages import Scored, ScoreRequest
from sapo_protocol import (
    Body,
    GroupHeader,
    Manifest,
    RemoteError,
    Rollout,
    assign,
    peer_id,
)

logger = logging.getLogger(__name__)


class Scorer(Protocol):
    """Rebuilds tasks and scores completions; the sandbox, in a running node."""

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        """One result per request, in order; None where it failed closed."""
        ...


class Unusable(StrEnum):
    """Why a group of an accepted rollout cannot be trained on."""

    CLAIMED_ZERO_ADVANTAGE = "claimed zero advantage"
    NO_BODY = "body left out"
    MALFORMED_BODY = "malformed body"
    UNSCORED = "scoring failed"
    OTHER_TASK = "question or answer differs"
    FALSE_CLAIM = "false claim"
    ZERO_ADVANTAGE = "zero advantage"
    HELD_OUT = "held-out prompt"


KEPT_ENVELOPES = 4_096
"""Envelopes of which the verifier remembers which groups it noted, at most."""
OnVerified = Callable[[Rollout, int, VerifiedGroup | Unusable], None]
"""`judged(rollout, k, what was found)`."""


class Verifier:
    """Re-verifies rollouts and reports what it finds to the ledger."""

    def __init__(
        self,
        swarm: SwarmContext,
        scorer: Scorer,
        ledger: Ledger,
        *,
        on_verified: OnVerified | None = None,
        wire: Wire = WIRE,
    ) -> None:
        """`on_verified` is called with what the verification of each group found."""
        self._manifest = swarm.manifest
        self._scorer = scorer
        self._ledger = ledger
        self._rng = swarm.rng
        self._wire = wire
        self._on_verified = on_verified
        self.held_out: set[str] = set()
        """Prompts that this node is evaluated on, and trains on none of."""
        self.verified = 0
        self.unusable: Counter[str] = Counter()
        self._met: Bounded[bytes, set[int]] = Bounded(KEPT_ENVELOPES)
        """By envelope id, of the envelopes that were verified last: the groups that were noted. The bodies of an
        envelope may come in several messages and be verified in several turns, and a group counts once."""

    async def verify(self, rollout: Rollout, *, rest_waits: bool = False) -> list[VerifiedGroup]:
        """The groups of one rollout that hold and are worth keeping. One batch in the sandbox, of this peer alone.

        `rest_waits`: whether more bodies of it wait for another turn, so that none is noted as left out.
        """
        peer = peer_id(rollout.opened.issuer)
        bodies = self._readable_bodies(rollout, peer, rest_waits=rest_waits)
        requests = [request_for(self._manifest, rollout, k, body) for k, body in bodies.items()]
        results = await self._scorer.score(requests) if requests else []
        groups = []
        for (k, body), request, scored in zip(bodies.items(), requests, results, strict=True):
            finding = self._finding(rollout, k, body, request, scored)
            self._note(rollout, k, finding)
            if isinstance(finding, VerifiedGroup):
                groups.append(finding)
        return groups

    def _note(self, rollout: Rollout, k: int, finding: VerifiedGroup | Unusable) -> None:
        if not isinstance(finding, VerifiedGroup):
            self.unusable[finding] += 1
        if self._on_verified:
            self._on_verified(rollout, k, finding)

    def _readable_bodies(self, rollout: Rollout, peer: str, *, rest_waits: bool) -> dict[int, Body]:
        """The bodies worth scoring, by k: those that are there and decode. Of those that are claimed to have zero
        advantage, only the audited ones are worth it.
        """
        bodies: dict[int, Body] = {}
        met = self._met_of(rollout.opened.envelope_id)
        for k, (group, data) in enumerate(zip(rollout.header.groups, rollout.bodies, strict=True)):
            if data is None:
                if rest_waits or k in met:
                    continue
                self._note(rollout, k, Unusable.NO_BODY)
            elif self._is_without_advantage(group.claims) and not self._audits():
                self._note(rollout, k, Unusable.CLAIMED_ZERO_ADVANTAGE)
            else:
                try:
                    bodies[k] = self._wire.decode_body(data, self._manifest)
                except RemoteError as error:
                    logger.info("a body of %s is malformed: %s", peer, error)
                    self._note(rollout, k, Unusable.MALFORMED_BODY)
                    self._charge(peer, Fact.MALFORMED_BODY)
            met.add(k)
        return bodies

    def _met_of(self, envelope_id: bytes) -> set[int]:
        """The groups of an envelope that were noted. The envelopes that were verified first are forgotten."""
        met = self._met.get(envelope_id, set())
        self._met[envelope_id] = met
        return met

    def _charge(self, issuer: str, fact: Fact) -> None:
        """Report an offence of the issuer (a peer id): it signed what any peer may have forwarded."""
        self._ledger.report(issuer, fact)

    def _is_without_advantage(self, rewards: Sequence[bool]) -> bool:
        """Whether rewards, claimed or computed, leave nothing to learn from the group."""
        return len(set(rewards)) == 1

    def _audits(self) -> bool:
        """Whether to score a group that is claimed zero-advantage, at random."""
        return self._rng.random() < constants.AUDIT_RATE

    def _finding(
        self, rollout: Rollout, k: int, body: Body, request: ScoreRequest, scored: Scored | None
    ) -> VerifiedGroup | Unusable:
        """What the comparison shows of a group, entered in the books."""
        header, peer = rollout.header, peer_id(rollout.opened.issuer)
        reason = compare(header.groups[k], scored)
        if reason is Unusable.FALSE_CLAIM:
            logger.info("%s claims rewards that its completions do not earn", peer)
            self._charge(peer, Fact.FALSE_CLAIM)
        if reason is not None or scored is None:
            return reason or Unusable.UNSCORED
        self.verified += 1
        if self._is_without_advantage(scored.rewards):
            return Unusable.ZERO_ADVANTAGE
        self._ledger.report(peer, Fact.VERIFIED_GROUP)
        if scored.prompt in self.held_out:
            return Unusable.HELD_OUT
        task = task_name(self._manifest, request.dataset, request.config)
        return VerifiedGroup(
            *(peer, header.epoch, header.counter, k, task, scored.prompt),
            body.completions,
            scored.rewards,
        )


def request_for(manifest: Manifest, rollout: Rollout, k: int, body: Body | None) -> ScoreRequest:
    """What to rebuild and score for group `k`: the task assigned to its issuer, and the text of the body, if any."""
    header = rollout.header
    task = assign(manifest, rollout.opened.issuer, header.epoch, header.counter, k)
    texts = tuple(completion.text for completion in body.completions) if body else ()
    return ScoreRequest(task.spec.dataset, task.spec.config, task.seed, texts)


def compare(group: GroupHeader, scored: Scored | None) -> Unusable | None:
    """Compare what the issuer signed of a group with what was found here; None where all of it holds."""
    if scored is None:
        return Unusable.UNSCORED
    if scored.digest != group.digest:
        # Another version of reasoning-gym or Python builds other items: drift, which is nobody's lie.
        return Unusable.OTHER_TASK
    if scored.rewards != group.claims:
        return Unusable.FALSE_CLAIM
    return None
