"""One round of one node: Algorithm 1 of SAPO (arXiv 2509.08721, section 3); no claim of a peer is trusted.

assign -> generate -> share -> take in and verify -> sample self (I) and external (J) -> train

`Replay` keeps local groups of earlier rounds, so that a round may train on their best completions again: those above
the mean of their group. GRPO learns nothing from a group whose completions earn the same, and a policy that is hardly
ever correct has few other groups. `Replay` gives each group with an advantage to one later round that lacks such
groups, with the advantages that it had. The learner weighs each token by how much more or less probable it is for the
present policy (`grpo.importance`).
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from sapo_node.groups.book import Book
from sapo_node.groups.messages import FilterName, GroupReport, Refusal, TrainGroup, TrainReport, reason_of
from sapo_node.groups.record import LocalGroup, NotDrawn, VerifiedGroup
from sapo_node.sampling.alarm import Alarm
from sapo_node.sampling.external import ExternalSampler
from sapo_node.sampling.mix import Costs
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.counters import Slot
from sapo_node.training.batch_log import external_id
from sapo_node.training.rollout import Contribution
from sapo_node.training.trainer import Trainer
from sapo_node.verification.verifier import VerificationScheduler

KEPT = 32
"""Groups that wait to be replayed, the newest ones. A restart forgets them."""


class Replay:
    """The groups that wait to be replayed."""

    def __init__(self) -> None:
        self._kept: deque[LocalGroup] = deque(maxlen=KEPT)

    def beside(self, local: Sequence[LocalGroup]) -> list[LocalGroup]:
        """Return the groups to train on beside those of a round: the newest first, at most one for each group of the
        round without an advantage. The others of the round wait for a later one.
        """
        informative = [group for group in local if any(group.advantages)]
        lacking = len(local) - len(informative)
        replayed = [self._kept.pop() for _ in range(min(lacking, len(self._kept)))]
        self._kept.extend(map(_successes, informative))
        return replayed

    def forget(self) -> None:
        """Drop all groups that wait: they were sampled with weights that are taken back."""
        self._kept.clear()


def _successes(group: LocalGroup) -> LocalGroup:
    """Return the group with its completions above the mean alone."""
    kept = [number for number, advantage in enumerate(group.advantages) if advantage > 0]
    return replace(
        group,
        completions=tuple(group.completions[number] for number in kept),
        levels=group.levels.only(kept),
        advantages=tuple(group.advantages[number] for number in kept),
    )


Phase = Literal["generate", "share", "verify", "train", "evaluate"]
"""The phases of a round, in this order. A round that is not published leaves out `share`. Few rounds end with an
evaluation.
"""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """The facts of one round, for people and scripts."""

    epoch: int
    counter: int
    step: int
    """Step of the policy after the round."""
    at: float
    """Unix time of the end of the round, by the node's clock."""
    published: bool
    reward: float
    """Mean reward of all completions generated in the round, before any selection: the honest learning curve."""
    pass_rate: float
    """The share of them that is correct. It differs from the reward where a task has more than one level."""
    informative: int
    """Local groups with an advantage, of `local`."""
    local: int
    external: int
    """External groups of which at least one token was trained on."""
    drawn: int
    """External groups in the batch: those of `external`, and those of which the learner left nothing."""
    strangers_share: float
    """The part of the external groups of the next round that strangers may fill, between 0 and 1."""
    seconds: dict[Phase, float]
    """Wall time by phase."""
    training: TrainReport
    """The learner's report of the step."""
    rate_scale: float = 1.0
    """Factor that the alarms of `health` left on the learning rate of the next round, above 0 and at most 1."""
    filtered: Mapping[FilterName, int] = field(default_factory=dict)
    """Correct completions of external groups that a filter rejected or masked in part, by filter."""
    replayed: int = 0
    """Local groups of earlier rounds in the batch."""


_OF_TEXTS = frozenset({Refusal.TOO_LONG, Refusal.SPECIAL})


@dataclass(frozen=True, slots=True)
class TrainedGroup:
    """The result of one external group in the step."""

    weighted: WeightedGroup
    report: GroupReport

    @property
    def rejected(self) -> Mapping[int, FilterName]:
        """By number of the completion, the filter that rejected it, before the draw or in the learner."""
        return {**self.weighted.stopped, **self.report.rejected}

    @property
    def untaught(self) -> frozenset[int]:
        """By number, the correct completions that a filter rejected or that could not be trained on."""
        return frozenset({*self.rejected, *self.report.untrained})

    @property
    def taught(self) -> tuple[str, ...]:
        """The correct completions that were trained on."""
        return self.weighted.group.correct_without(self.untaught) if self.report.tokens else ()

    @property
    def accepted(self) -> float | None:
        """The share of its correct completions, by bytes, that no filter rejected and that were short enough to be
        trained on. A masked completion is accepted: an attacker may have the phrases of honest peers masked. None if
        nothing was trained on for a reason that is not in its texts, and for a group without a correct completion.
        """
        if self.report.refused and self.report.refused not in _OF_TEXTS:
            return None
        group, silent = self.weighted.group, self.weighted.silent
        masked = {number for number, spans in enumerate(silent) if spans}
        denied = self.rejected.keys() | (set(self.report.untrained) - masked)
        correct = enumerate(group.levels.correct)
        sizes = {number: 1 + group.lengths[number] for number, is_correct in correct if is_correct}
        return 1 - sum(sizes.get(number, 0) for number in denied) / sum(sizes.values()) if sizes else None


def _filtered(
    trained: Sequence[TrainedGroup], stopped: Sequence[tuple[VerifiedGroup, FilterName]]
) -> Counter[FilterName]:
    """Correct completions of external groups that a filter rejected or masked in part, by filter. Of the `stopped`
    groups it left nothing.
    """
    found: Counter[FilterName] = Counter(name for each in trained for name in each.rejected.values())
    for group, name in stopped:
        found[name] += group.levels.right
    for each in trained:
        correct = each.weighted.group.levels.correct
        found["n-gram"] += sum(bool(s) and c for s, c in zip(each.weighted.silent, correct, strict=False))
    return +found


class _Stopwatch:
    """Times the phases of one round and tells an observer of each as it begins, and of None as it ends."""

    def __init__(self, tell: Callable[[Phase | None], None]) -> None:
        self.seconds: dict[Phase, float] = {}
        self._tell = tell

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Time a phase, which lasts as long as the block."""
        started = time.perf_counter()
        self._tell(phase)
        try:
            yield
        finally:
            self._tell(None)
            self.seconds[phase] = round(time.perf_counter() - started, 3)


class Rounds:
    """Plays the rounds of one node."""

    def __init__(
        self,
        *,
        contribution: Contribution,
        scheduler: VerificationScheduler,
        book: Book,
        external: ExternalSampler,
        trainer: Trainer,
        replay: Replay | None = None,
        held_out: Collection[str] = (),
        now: Callable[[], float],
        on_phase: Callable[[Phase | None], None] = lambda _: None,
    ) -> None:
        """Without `replay` no group is replayed. Local groups with a prompt of `held_out` are shared, and not trained
        on. `now` gives the Unix time. `on_phase` is called with each phase as it begins, and with None as it ends.
        """
        self._contribution = contribution
        self._scheduler = scheduler
        self._book = book
        self._external = external
        self._trainer = trainer
        self._replay = replay
        self._held_out = held_out
        self._now = now
        self._on_phase = on_phase

    async def play(self, slot: Slot, *, share: bool) -> RoundReport:
        """Play the round of a reserved counter; without `share` the node trains on it and does not publish it."""
        watch = _Stopwatch(self._on_phase)
        self._scheduler.draw_ahead(self._external.wanted)
        with watch.phase("generate"):
            local = await self._contribution.generate(slot, self._external.split().local)
        informative = sum(any(group.advantages) for group in local)  # those with held-out prompts, too
        if share:
            with watch.phase("share"):
                await self._contribution.share(slot, local)
        local = [_untaught(group) if group.prompt in self._held_out else group for group in local]
        with watch.phase("verify"):
            await self._scheduler.verify_pending(self._external.wanted)
            choice = await self._external.choose(self._book.offered(), epoch=slot.epoch)
            for group, filter_name in choice.stopped:
                self._book.leave_out(group, reason_of(filter_name))
        with watch.phase("train"):
            replayed = self._replay.beside(local) if self._replay else []
            training = await self._trainer.train(local, [*choice.drawn, *choice.stand_ins], replayed)
        trained, spared = _trained([*choice.drawn, *choice.stand_ins], training)
        seconds = watch.seconds["generate"] + training.local_seconds
        costs = Costs(
            local=seconds,
            external=training.external_seconds,
            groups=sum(each.report.tokens > 0 for each in trained),
        )
        taught = [(each.weighted.group, each.taught) for each in trained if each.report.tokens]
        judged = [(each.weighted.group.peer, part) for each in trained if (part := each.accepted) is not None]
        alarm = await self._external.observe(local, choice, taught, costs, judged)
        self._book.pass_over([*choice.not_drawn, *((group, NotDrawn.ENOUGH) for group in spared)])
        if alarm and alarm.takes_back:
            await self._take_back(alarm)
        # Not before: a crash between the two must not leave a state that has raised its alarm, and no step taken back.
        self._external.save(training.step)
        pass_rate = fmean(is_correct for group in local for is_correct in group.levels.correct)
        health = self._trainer.health
        health.observe(
            training.step,
            pass_rate=pass_rate,
            informative=informative / len(local),
            groups=len(local),
            entropy=training.entropy,
        )
        return RoundReport(
            epoch=slot.epoch,
            counter=slot.counter,
            step=training.step,
            at=round(self._now(), 3),
            published=share,
            reward=fmean(group.levels.mean for group in local),
            pass_rate=pass_rate,
            informative=informative,
            local=len(local),
            external=sum(each.report.tokens > 0 for each in trained),
            drawn=len(trained),
            strangers_share=self._external.strangers_share,
            rate_scale=health.rate_scale,
            filtered=_filtered(trained, choice.stopped),
            replayed=len(replayed),
            seconds=watch.seconds,
            training=training,
        )

    async def _take_back(self, alarm: Alarm) -> None:
        """Replay the last steps without the external groups of which the alarm accuses a correct completion."""
        if self._replay:
            self._replay.forget()

        def accused(group: TrainGroup, peer: str) -> bool:
            tier = self._external.tier_of(peer)
            correct = zip(group.completions, group.advantages, strict=True)
            return any(advantage > 0 and alarm.accuses(tier, each) for each, advantage in correct)

        await self._trainer.take_back(accused, alarm.reason, alarm.phrase)


def _untaught(group: LocalGroup) -> LocalGroup:
    """Return the group without advantages: nothing is learnt from it."""
    return replace(group, advantages=(0.0,) * len(group.advantages))


def _trained(external: Sequence[WeightedGroup], report: TrainReport) -> tuple[list[TrainedGroup], list[VerifiedGroup]]:
    """Return the results of the external groups of a batch, and the unneeded stand-ins."""
    trained = [(each, report.groups.get(external_id(each.group))) for each in external]
    spared = [each.group for each, group in trained if group is None]
    return [TrainedGroup(each, group) for each, group in trained if group], spared
