"""From a signed rollout to verified groups: the sandbox rebuilds the tasks and computes the levels.

This is the only place that makes a VerifiedGroup. It holds nothing from the peer but the texts of its completions:
dataset, configuration and seed follow from the assignment, prompt and levels come from the sandbox.

`VerificationScheduler` verifies rollouts that wait in the book, as many as the trainer needs.
"""

import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

import trio

from sapo_node.groups.book import Book, Turn
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.prompt import task_name
from sapo_node.groups.record import Unusable, VerifiedGroup
from sapo_node.groups.wire import WIRE, Wire
from sapo_node.ingest.fetch import HEDGE_SECONDS, Fetcher
from sapo_node.storage.context import SwarmContext
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
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
    """Rebuilds tasks and scores completions. In a running node it is the sandbox."""

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        """One result per request, in order; None if scoring failed."""
        ...


Finding = VerifiedGroup | Unusable
"""What verification found of a group."""


class Verifier:
    """Verifies rollouts and reports false claims and malformed bodies to the ledger."""

    def __init__(
        self,
        swarm: SwarmContext,
        scorer: Scorer,
        ledger: Ledger,
        *,
        wire: Wire = WIRE,
    ) -> None:
        self._manifest = swarm.manifest
        self._scorer = scorer
        self._ledger = ledger
        self._rng = swarm.rng
        self._wire = wire
        self.held_out: set[str] = set()
        """Held-out prompts: the node is evaluated on them and never trains on them."""
        self.verified = 0
        self.unusable: Counter[str] = Counter()

    def spare(self, turn: Turn) -> Turn:
        """Return the turn with the groups that claim no advantage as spared, except those that are audited. Nobody
        fetches or scores them.
        """
        flat = (k for k in turn.groups if self._is_without_advantage(self._claimed(turn.rollout, k)))
        return replace(turn, spared=frozenset(k for k in flat if not self._audits()))

    async def verify(self, turn: Turn) -> dict[int, Finding]:
        """Return the finding about each group of a turn, by k. One batch in the sandbox holds this peer alone."""
        rollout = turn.rollout
        found, bodies = self._read(turn)
        requests = [request_for(self._manifest, rollout, k, body) for k, body in bodies.items()]
        results = await self._scorer.score(requests) if requests else []
        for (k, body), request, scored in zip(bodies.items(), requests, results, strict=True):
            found[k] = self._finding(rollout, k, body, request, scored)
        self.unusable.update(finding for finding in found.values() if not isinstance(finding, VerifiedGroup))
        return found

    def _read(self, turn: Turn) -> tuple[dict[int, Finding], dict[int, Body]]:
        """The groups that are not scored, with the reason, and the bodies of the others, by k."""
        found: dict[int, Finding] = {}
        bodies: dict[int, Body] = {}
        for k in turn.groups:
            data = turn.rollout.bodies[k]
            if k in turn.spared:
                found[k] = Unusable.CLAIMED_ZERO_ADVANTAGE
            elif data is None:
                found[k] = Unusable.NO_BODY
            else:
                try:
                    bodies[k] = self._wire.decode_body(data, self._manifest)
                except RemoteError as error:
                    peer = peer_id(turn.rollout.opened.issuer)
                    logger.info("a body of %s is malformed: %s", peer, error)
                    found[k] = Unusable.MALFORMED_BODY
                    self._charge(peer, Fact.MALFORMED_BODY)
        return found, bodies

    def _charge(self, issuer: str, fact: Fact) -> None:
        """Report an offence of the issuer (a peer id): it signed what any peer may have forwarded."""
        self._ledger.report(issuer, fact)

    def _claimed(self, rollout: Rollout, k: int) -> Levels:
        """Return the levels that group `k` claims. A claim above L is L here, and false where it is scored."""
        top = request_for(self._manifest, rollout, k, None).levels
        return Levels(tuple(min(claim, top) for claim in rollout.header.groups[k].claims), top)

    def _is_without_advantage(self, levels: Levels) -> bool:
        """Return whether a peer's group with these levels, claimed or computed, has no advantage: all its completions
        are correct, or none is.
        """
        return not levels.is_mixed

    def _audits(self) -> bool:
        """Return whether to score a group that claims no advantage: at random."""
        return self._rng.random() < constants.AUDIT_RATE

    def _finding(self, rollout: Rollout, k: int, body: Body, request: ScoreRequest, scored: Scored | None) -> Finding:
        """Return the verified group, or why it is unusable. Reports offences and verified groups to the ledger."""
        header, peer = rollout.header, peer_id(rollout.opened.issuer)
        reason = compare(header.groups[k], scored)
        if reason is Unusable.FALSE_CLAIM:
            logger.info("%s claims levels that its completions do not earn", peer)
            self._charge(peer, Fact.FALSE_CLAIM)
        if reason is not None or scored is None:
            return reason or Unusable.UNSCORED
        self.verified += 1
        levels = Levels(scored.levels, request.levels)
        if self._is_without_advantage(levels):
            return Unusable.ZERO_ADVANTAGE if len(set(levels.each)) == 1 else Unusable.NO_CORRECT
        self._ledger.report(peer, Fact.VERIFIED_GROUP)
        if scored.prompt in self.held_out:
            return Unusable.HELD_OUT
        task = task_name(self._manifest, request.dataset, request.config)
        return VerifiedGroup(
            peer=peer,
            epoch=header.epoch,
            counter=header.counter,
            k=k,
            dataset=task,
            prompt=scored.prompt,
            completions=tuple(Sampled(each.text, each.finish.value) for each in body.completions),
            levels=levels,
        )


def request_for(manifest: Manifest, rollout: Rollout, k: int, body: Body | None) -> ScoreRequest:
    """The request for group `k`: the task assigned to its issuer, and the texts of the body, if any.

    A completion with more turns than its task has becomes an empty text, which is incorrect (VER-2).
    """
    header = rollout.header
    task = assign(manifest, rollout.opened.issuer, header.epoch, header.counter, k)
    most = task.spec.turns
    texts = tuple(each.text if len(each.turns) <= most else "" for each in body.completions) if body else ()
    return ScoreRequest(task.spec.dataset, task.spec.config, task.seed, texts, levels=task.spec.levels)


def compare(group: GroupHeader, scored: Scored | None) -> Unusable | None:
    """Compare the signed header of a group with the score of this node. None if they agree."""
    if scored is None:
        return Unusable.UNSCORED
    if scored.digest != group.digest:
        # Another version of reasoning-gym or Python builds other items: version drift; no peer is at fault.
        return Unusable.OTHER_TASK
    if scored.levels != group.claims:
        return Unusable.FALSE_CLAIM
    return None


AHEAD = 4
"""Turns of a tier that wait for their bodies at one time, besides those that have waited longer than HEDGE_SECONDS."""
WAIT_SECONDS = 1.0
"""The longest time for which a round waits for bodies. Bodies that come later are verified in the next round."""


@dataclass(slots=True)
class _Fetched:
    """The turns of a tier whose bodies are fetched, or were."""

    begun: dict[bytes, float] = field(default_factory=dict)
    """By envelope id: when the node began to wait for the bodies of a turn; `-inf` if it does not wait."""
    ready: deque[Turn] = field(default_factory=deque)
    changed: trio.Event = field(default_factory=trio.Event)

    def add(self, turn: Turn) -> None:
        self.begun.pop(turn.rollout.opened.envelope_id, None)
        self.ready.append(turn)
        self.changed.set()
        self.changed = trio.Event()

    def late_at(self) -> list[float]:
        """The times at which the waiting turns that are not late yet will be late, in ascending order."""
        now = trio.current_time()
        return [late for begun in self.begun.values() if (late := begun + HEDGE_SECONDS) > now]


def _groups_to_score(turn: Turn) -> int:
    return len(turn.groups) - len(turn.spared)


class VerificationScheduler:
    """Draws rollouts by lottery, fetches their missing bodies, verifies them, and enters the findings in the book."""

    def __init__(self, *, book: Book, verifier: Verifier, ledger: Ledger, fetcher: Fetcher) -> None:
        self._book = book
        self._verifier = verifier
        self._ledger = ledger
        self._fetcher = fetcher
        self._fetched = {tier: _Fetched() for tier in Tier}

    def draw_ahead(self, wanted: int) -> None:
        """Draw as many turns as the next `verify_pending` will need, and begin to fetch their bodies.

        A round calls this before it generates, so that it seldom waits for bodies afterwards.
        """
        have = self._on_offer()
        for tier, fetched in self._fetched.items():
            have[tier] += sum(map(_groups_to_score, fetched.ready))
            while have[tier] < 2 * wanted and len(fetched.begun) < constants.VERIFICATIONS_PER_ROUND:
                turn = self._draw(tier)
                if turn is None:
                    break
                have[tier] += _groups_to_score(turn) if self._fetcher.expects(turn) else 0

    async def verify_pending(self, wanted: int) -> None:
        """Verify until 2 * `wanted` groups of each tier are on offer, or each tier had VERIFICATIONS_PER_ROUND turns.

        A turn verifies one drawn rollout.
        """
        deadline = trio.current_time() + WAIT_SECONDS
        have = self._on_offer()
        for _ in range(constants.VERIFICATIONS_PER_ROUND):
            for tier in Tier:
                if have[tier] < 2 * wanted and (turn := await self._next(tier, deadline)):
                    have[tier] += await self._verify(turn)

    def _on_offer(self) -> Counter[Tier]:
        """The number of verified groups on offer, by tier."""
        have: Counter[Tier] = Counter()
        for peer, count in self._book.per_peer().items():
            have[self._ledger.tier(peer)] += count
        return have

    def _draw(self, tier: Tier) -> Turn | None:
        """Draw a turn, and begin to fetch its missing bodies. Returns None if no rollout of this tier waits.

        Peers on probation come last.
        """
        fetched = self._fetched[tier]
        turn = self._book.draw(tier, last=self._is_on_probation)
        if turn is None:
            return None
        turn = self._verifier.spare(turn)
        if turn.missing:
            begun = trio.current_time() if self._fetcher.expects(turn) else -inf
            fetched.begun[turn.rollout.opened.envelope_id] = begun
            self._fetcher.begin(turn, fetched.add)
        else:
            fetched.add(turn)
        return turn

    async def _next(self, tier: Tier, deadline: float) -> Turn | None:
        """The next turn of a tier that waits for no bodies.

        At most AHEAD turns wait for bodies, so that few are fetched in vain. Late turns do not count, and at the
        `deadline` the node draws on: a peer that withholds bodies must not stop the turns of others.
        """
        fetched = self._fetched[tier]
        while not fetched.ready:
            late_at = fetched.late_at()
            is_over = trio.current_time() >= deadline
            has_room = (is_over or len(late_at) < AHEAD) and len(fetched.begun) < constants.VERIFICATIONS_PER_ROUND
            if has_room and self._draw(tier):
                continue
            if is_over or not late_at:
                return None
            with trio.move_on_at(min(deadline, late_at[0])):
                await fetched.changed.wait()
        return fetched.ready.popleft()

    async def _verify(self, turn: Turn) -> int:
        """Verify a turn. Returns the number of verified groups."""
        found = await self._verifier.verify(turn)
        peer = peer_id(turn.rollout.opened.issuer)
        groups = sum(isinstance(finding, VerifiedGroup) for finding in found.values())
        self._book.lottery.credit(peer, groups)
        self._book.judge(turn.rollout, found)
        if not self._ledger.admits(peer):
            logger.warning("%s is banned: %s", peer, ", ".join(map(str, self._ledger.offences(peer))))
            self._book.forget(peer)
            return 0
        return groups

    def _is_on_probation(self, peer: str) -> bool:
        return self._ledger.state(peer) is PeerState.PROBATION
