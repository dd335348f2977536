"""Rounds of a node that does not train: it reserves a counter, asks for answers, and shares them."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping

import trio

from sapo_node.groups.record import ContributionReport, LocalGroup, by_task
from sapo_node.processes.worker import WorkerFailed
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters, Slot
from sapo_node.training.rollout import AnswerFailed, Contribution, NoText, RoundFailed, TaskSkipped
from sapo_node.trust.constants import PENDING_PER_PEER, UNTRUSTED_COUNTERS
from sapo_protocol import LocalError, Manifest, in_window
from sapo_protocol.limits import CLOCK_SKEW_SECONDS

logger = logging.getLogger(__name__)

FIRST_BACKOFF, MAX_BACKOFF = 1.0, 60.0
"""Seconds from a failure to the next attempt: the first, and the longest. Each failure doubles them until a round is
shared."""
MAX_FAILED_ROUNDS = 5
"""Rounds that the node may fail to build or score in a row before it stops with the last error."""


def seconds_after(manifest: Manifest, *, shared: bool) -> float:
    """Return the seconds from the start of a round to the start of the next.

    A peer keeps at most PENDING_PER_PEER rollouts of one issuer until it verifies them, so an epoch has no more rounds
    that share something. A round that shares nothing costs the peers nothing: the next one begins as soon as the
    counters that peers accept from an untrusted peer (UNTRUSTED_COUNTERS) still last for the epoch.
    """
    counters = manifest.max_rounds * UNTRUSTED_COUNTERS
    return manifest.epoch_seconds / (min(counters, PENDING_PER_PEER) if shared else counters)


def answered(local: list[LocalGroup]) -> list[LocalGroup]:
    """Return the groups of a round up to the last one that has an answer; none if no group has one.

    A header lists its groups from k = 0 without gaps, so an unanswered group before an answered one stays.
    """
    last = max((k for k, group in enumerate(local) if is_answered(group)), default=-1)
    return local[: last + 1]


def is_answered(group: LocalGroup) -> bool:
    """Return whether at least one completion of the group has more than white space."""
    return any(completion.text.strip() for completion in group.completions)


def answer_seconds(manifest: Manifest) -> float:
    """Return the seconds that a round may wait for its answers. Peers then still accept it, however late it began."""
    return manifest.epoch_seconds - min(CLOCK_SKEW_SECONDS, manifest.epoch_seconds / 2)


class ContributionRounds:
    """Shares round after round. Logs each failure and tries again, later and later."""

    def __init__(
        self,
        swarm: SwarmContext,
        contribution: Contribution,
        *,
        counters: Counters,
        local: int,
        reserve: Callable[[], Awaitable[Slot | None]],
        on_report: Callable[[ContributionReport], None],
        standing: MutableMapping[str, str],
    ) -> None:
        """`local` is I, the groups per round. `reserve` returns the next counter.

        If the epoch has no counter left, `reserve` waits for the next epoch and returns None. `standing["contributor"]`
        says why the contributor gave no completions, until it gives some.
        """
        self._contribution = contribution
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._counters = counters
        self._local = local
        self._reserve = reserve
        self._on_report = on_report
        self._standing = standing
        self._pause = FIRST_BACKOFF
        """Seconds to wait after the next failure."""
        self._failed = self._skipped = 0
        """Rounds in a row that failed, and that the contributor skipped."""

    async def run(self, rounds: int | None) -> None:
        """Play `rounds` rounds, or play until cancelled if it is None. A cancelled round uses at most one counter.

        A round begins when this node may publish, and not before `seconds_after` the start of the round before. The
        node does not share a round without a text. It counts as played, because its completions may have cost money.
        A round that is skipped, fails or comes too late does not count.

        Raises LocalError if no round of `rounds` had a text, or after MAX_FAILED_ROUNDS failed rounds in a row.
        """
        played, shared = 0, False
        while played != rounds:
            if seconds := self._listening_seconds():
                await trio.sleep(min(seconds, MAX_BACKOFF))  # the clock may be set meanwhile
                continue
            started = trio.current_time()
            slot = await self._reserve()
            if self._listening_seconds():  # `reserve` looks at the clock, and may not believe it
                continue
            local: list[LocalGroup] = []
            try:
                local = answered(await self._answers(slot) or []) if slot else []
            except NoText as failure:
                played += 1
                if played == rounds and not shared:
                    raise LocalError(f"{failure}; the node shared nothing") from failure
                await self._back_off(f"{failure}; the next round begins")
            if slot and local:
                await self._contribution.share(slot, local)
                played, shared = played + 1, True
                self._pause, self._failed, self._skipped = FIRST_BACKOFF, 0, 0
                given = [group for group in local if is_answered(group)]
                self._on_report(ContributionReport(slot.epoch, slot.counter, by_task(given)))
            await trio.sleep_until(started + seconds_after(self._manifest, shared=bool(local)))

    def _listening_seconds(self) -> float:
        return self._counters.listening_seconds(self._clock.now(), self._clock.steady())

    async def _answers(self, slot: Slot) -> list[LocalGroup] | None:
        """Ask until there are answers, and return them with at least one text. Return None if the round is skipped,
        failed, or has no answers within `answer_seconds`. Raises NoText.
        """
        with trio.move_on_after(answer_seconds(self._manifest)):
            try:
                local = await self._ask(slot)
            except TaskSkipped as skipped:
                self._skipped += 1
                if self._skipped.bit_count() == 1:
                    logger.warning("%s (%d in a row)", skipped, self._skipped)
                return None
            except (RoundFailed, WorkerFailed) as failure:
                self._failed += 1
                if self._failed == MAX_FAILED_ROUNDS:
                    raise
                await self._back_off(f"round failed, {self._failed} in a row: {failure}; the next one begins")
                return None
            # While the machine sleeps, the timer above may stand still.
            if in_window(self._manifest, slot.epoch, self._clock.now()):
                return local
        logger.warning(
            "the answers of this round came too late for peers to accept them; the node starts the next round"
        )
        return None

    async def _ask(self, slot: Slot) -> list[LocalGroup]:
        while True:
            try:
                local = await self._contribution.generate(slot, self._local)
            except AnswerFailed as failure:
                self._standing["contributor"] = str(failure)
                await self._back_off(f"{failure}; asking again")
            else:
                self._standing.pop("contributor", None)
                if not answered(local):
                    raise NoText("no completion of this round has a text")
                return local

    async def _back_off(self, failure: str) -> None:
        """Log a failure for the operator, and wait longer than after the failure before."""
        logger.error("%s in %.0f s", failure, self._pause)
        pause, self._pause = self._pause, min(2 * self._pause, MAX_BACKOFF)
        await trio.sleep(pause)
