"""One round of one node: Algorithm 1 of SAPO (arXiv 2509.08721, section 3), with nothing of a peer's believed.

assign -> generate -> share -> take in and verify -> sample self (I) and external (J) -> train
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sapo_node.groups.messages import Gate, Refusal, TrainReport
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.buffer import Pool
from sapo_node.sampling.filters import Gates
from sapo_node.sampling.filters.agreement import GradientVote
from sapo_node.sampling.mix import LocalExternalRatio
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.sampler import NotDrawn, Sampler, WeightedGroup
from sapo_node.storage.counters import Slot
from sapo_node.training.batch_log import Trainer
from sapo_node.training.rollout import Contribution
from sapo_node.verification.scheduler import VerificationScheduler

Phase = Literal["generate", "share", "verify", "train", "evaluate"]
"""What takes time in a round, in this order; a node that only listens leaves out `share`, and few rounds end with an
exam.
"""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What one round did, as people and scripts see it."""

    epoch: int
    counter: int
    step: int
    """Step of the policy after the round."""
    at: float
    """Unix time of the end of the round, by the node's clock."""
    published: bool
    reward: float
    """Mean reward of all completions generated in the round, before any selection: the honest learning curve."""
    informative: int
    """Own groups with an advantage, of `local`."""
    local: int
    external: int
    """External groups of which at least one token was trained on."""
    drawn: int
    """External groups in the batch: those of `external`, and those of which the learner left nothing."""
    seconds: dict[Phase, float]
    """Wall time by phase."""
    training: TrainReport
    """What the learner says of the step."""


NOTHING_LEFT = "every token masked"
"""Why nothing of a group was trained on whose correct completions hold masked phrases and nothing else."""


@dataclass(frozen=True, slots=True)
class TrainedGroup:
    """What the learner made of one external group."""

    weighted: WeightedGroup
    tokens: int
    """Tokens of the group that were trained on."""
    masked: int
    """Tokens of its correct completions that filters masked."""
    kept_out: Mapping[int, Gate]
    """The correct completions that a gate kept out, `surprise` only in part, by number."""
    refused: Refusal | None
    """Why nothing of the group was trained on, where that is not a gate's doing."""

    @property
    def left_out(self) -> str:
        """Why no token of the group was trained on; empty where one was."""
        if self.tokens:
            return ""
        if self.refused:
            return self.refused
        gates = Counter(self.kept_out.values()).most_common(1)
        return f"{gates[0][0]} gate" if gates else NOTHING_LEFT


@dataclass(frozen=True, slots=True)
class Choices:
    """What one round trained on and what it did not, for whoever keeps a journal."""

    epoch: int
    counter: int
    step: int
    local: Sequence[LocalGroup]
    local_refused: Mapping[int, Refusal]
    """By place in `local`, why nothing of the group was trained on."""
    external: Sequence[TrainedGroup]
    stopped: Sequence[tuple[VerifiedGroup, Gate]]
    """Of which a gate left nothing."""
    not_drawn: Sequence[tuple[VerifiedGroup, NotDrawn]]
    """On offer, and not drawn this time."""


class _Stopwatch:
    """Times the phases of one round and tells an observer of each as it begins, and of None as it ends."""

    def __init__(self, tell: Callable[[Phase | None], None]) -> None:
        self.seconds: dict[Phase, float] = {}
        self._tell = tell

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """A phase lasts as long as the block."""
        started = time.perf_counter()
        self._tell(phase)
        try:
            yield
        finally:
            self._tell(None)
            self.seconds[phase] = round(time.perf_counter() - started, 3)


class Rounds:
    """Plays rounds with what one node contributes, takes in and learns."""

    def __init__(
        self,
        *,
        contribution: Contribution,
        scheduler: VerificationScheduler,
        sampler: Sampler,
        pool: Pool,
        trainer: Trainer,
        pass_rates: PassRates,
        gates: Gates,
        ratio: LocalExternalRatio,
        now: Callable[[], float],
        on_phase: Callable[[Phase | None], None] = lambda _: None,
        on_chosen: Callable[[Choices], None] = lambda _: None,
    ) -> None:
        """`balance` says how many groups are a round's own and how many others', and `now` the Unix time; `on_phase`
        hears each phase as it begins, and None as it ends; `on_chosen` what was trained on.
        """
        self._contribution = contribution
        self._scheduler = scheduler
        self._sampler = sampler
        self._pool = pool
        self._trainer = trainer
        self._pass_rates = pass_rates
        self._gates = gates
        self._ratio = ratio
        self._now = now
        self._on_phase = on_phase
        self._on_chosen = on_chosen

    async def play(self, slot: Slot, *, share: bool) -> RoundReport:
        """Play the round of a reserved counter; `share` is False while this node only listens."""
        watch = _Stopwatch(self._on_phase)
        split = self._ratio.split()
        with watch.phase("generate"):
            local = await self._contribution.generate(slot, split.local)
        if share:
            with watch.phase("share"):
                await self._contribution.share(slot, local)
        with watch.phase("verify"):
            await self._scheduler.verify_pending(max(split.external, self._ratio.probe))
            offered, stopped = self._gates.sift(self._pool.groups())
            self._pool.remove(group for group, _ in stopped)
            draw = self._sampler.draw(offered, split.external, epoch=slot.epoch)
            external = draw.groups
        with watch.phase("train"):
            training = await self._trainer.train(local, external)
        self._ratio.observe(local, self._sampler.reference_set(offered), supply=len(offered), drawn=len(external))
        self._pass_rates.observe(local)
        self._gates.observe(local, list(_heard(external, training, len(local))))
        trained = trained_groups(external, training, len(local))
        refused = {place: reason for place, reason in training.refused if place < len(local)}
        self._on_chosen(
            Choices(slot.epoch, slot.counter, training.step, local, refused, trained, stopped, draw.not_drawn)
        )
        rewards = [reward for group in local for reward in group.rewards]
        return RoundReport(
            epoch=slot.epoch,
            counter=slot.counter,
            step=training.step,
            at=round(self._now(), 3),
            published=share,
            reward=sum(rewards) / len(rewards),
            informative=sum(any(group.advantages) for group in local),
            local=len(local),
            external=sum(each.tokens > 0 for each in trained),
            drawn=len(trained),
            seconds=watch.seconds,
            training=training,
        )


def _heard(external: Sequence[WeightedGroup], training: TrainReport, local: int) -> Iterator[GradientVote]:
    """What own learning says to others' right answers."""
    for number, _, agrees in training.agreement:
        group = external[number - local].group
        yield GradientVote(group.peer, group.dataset, agrees)


def trained_groups(external: Sequence[WeightedGroup], training: TrainReport, local: int) -> list[TrainedGroup]:
    """What the learner made of each external group of a batch that begins with so many local groups."""
    # By the gates that read texts, before training, and by the learner's.
    kept_out: list[dict[int, Gate]] = [dict(each.stopped) for each in external]
    for group, number, gate in training.kept_out:
        kept_out[group - local][number] = gate
    refused = dict(training.refused)
    return [
        TrainedGroup(
            weighted,
            training.group_tokens[local + place],
            training.group_masked[local + place],
            kept_out[place],
            refused.get(local + place),
        )
        for place, weighted in enumerate(external)
    ]
