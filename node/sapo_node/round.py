"""One round of one node: Algorithm 1 of SAPO (arXiv 2509.08721, section 3), with nothing of a peer's believed.

assign -> generate -> share -> take in and verify -> sample self (I) and external (J) -> train
"""

import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sapo_node.advantage import advantages
from sapo_node.counters import Counters, Slot
from sapo_node.intake import Intake
from sapo_node.jail.messages import ScoreRequest
from sapo_node.keyfile import Identity
from sapo_node.learner.messages import TrainReport
from sapo_node.pool import Pool
from sapo_node.sampler import Sampler
from sapo_node.trainer import LocalGroup, Policy, Trainer
from sapo_node.verify import Scorer
from sapo_protocol import (
    Assignment,
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    LocalError,
    Manifest,
    assign,
    encode_body,
    encode_header,
    encode_message,
    parse_envelope,
    seal,
)

Publish = Callable[[bytes], Awaitable[None]]

Phase = Literal["generate", "share", "verify", "train"]
"""What takes time in a round, in this order; a node that only listens leaves out `share`."""


class RoundFailed(LocalError):
    """The round could not be played; nothing was published or trained on, and its counter is spent."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What one round did, as people and scripts see it."""

    epoch: int
    counter: int
    step: int
    """Step of the policy after the round."""
    published: bool
    reward: float
    """Mean reward of all completions generated in the round, before any selection: the honest learning curve."""
    informative: int
    """Own groups with an advantage, of `local`."""
    local: int
    external: int
    """External groups trained on."""
    seconds: dict[Phase, float]
    """Wall time by phase."""
    training: TrainReport
    """What the learner says of the step."""


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
    """Plays rounds with one policy, one identity and one pool."""

    def __init__(
        self,
        *,
        manifest: Manifest,
        identity: Identity,
        policy: Policy,
        scorer: Scorer,
        counters: Counters,
        intake: Intake,
        sampler: Sampler,
        pool: Pool,
        trainer: Trainer,
        publish: Publish,
        rng: random.Random,
        local: int,
        external: int,
        max_tokens: int,
        model: str,
        on_phase: Callable[[Phase | None], None] = lambda _: None,
    ) -> None:
        """`local` and `external` are I and J, in groups; `model` is the free label in what is shared; `on_phase` hears
        each phase as it begins, and None as it ends.
        """
        self._manifest = manifest
        self._identity = identity
        self._policy = policy
        self._scorer = scorer
        self._counters = counters
        self._intake = intake
        self._sampler = sampler
        self._pool = pool
        self._trainer = trainer
        self._publish = publish
        self._rng = rng
        self._local = local
        self._external = external
        self._max_tokens = max_tokens
        self._model = model
        self._on_phase = on_phase

    async def play(self, slot: Slot, *, share: bool) -> RoundReport:
        """Play the round of a reserved counter; `share` is False while this node only listens."""
        watch = _Stopwatch(self._on_phase)
        tasks = [
            assign(self._manifest, self._identity.public_key, slot.epoch, slot.counter, k) for k in range(self._local)
        ]
        with watch.phase("generate"):
            local = await self._generate(tasks)
        if share:
            with watch.phase("share"):
                await self._share(slot, local)
        with watch.phase("verify"):
            await self._intake.take_in(self._external)
            external = self._sampler.draw(self._pool.groups(), self._external, epoch=slot.epoch)
        with watch.phase("train"):
            training = await self._trainer.train(local, external)
        rewards = [reward for group in local for reward in group.rewards]
        return RoundReport(
            epoch=slot.epoch,
            counter=slot.counter,
            step=training.step,
            published=share,
            reward=sum(rewards) / len(rewards),
            informative=sum(any(group.advantages) for group in local),
            local=len(local),
            external=len(external),
            seconds=watch.seconds,
            training=training,
        )

    async def _generate(self, tasks: list[Assignment]) -> list[LocalGroup]:
        """Answer this node's own tasks G times each, and score the answers as everybody else's."""
        specs = [(task.spec.dataset, task.spec.config, task.seed) for task in tasks]
        built = await self._scorer.score([ScoreRequest(*spec, ()) for spec in specs])
        questions = [task.question for task in built if task is not None]
        if len(questions) < len(specs):
            raise RoundFailed("this node's own tasks could not be built; its log names the cause")
        groups = await self._policy.generate(
            questions,
            completions=self._manifest.completions,
            max_tokens=self._max_tokens,
            seed=self._rng.getrandbits(31),
        )
        requests = [
            ScoreRequest(*spec, tuple(each.text for each in group)) for spec, group in zip(specs, groups, strict=True)
        ]
        local = []
        for request, group, scored in zip(requests, groups, await self._scorer.score(requests), strict=True):
            if scored is None:
                raise RoundFailed(
                    f"this node's own answers to {request.dataset} could not be scored; its log names the cause"
                )
            local.append(
                LocalGroup(
                    request.dataset, scored.question, scored.digest, group, scored.rewards, advantages(scored.rewards)
                )
            )
        return local

    async def _share(self, slot: Slot, local: list[LocalGroup]) -> None:
        """Sign the round, store the signed bytes, then publish them."""
        bodies = [
            encode_body(
                Body(tuple(Completion(each.text, Finish(each.finish)) for each in group.completions), self._model)
            )
            for group in local
        ]
        header = Header(
            slot.epoch,
            slot.counter,
            tuple(
                GroupHeader(group.digest, group.rewards, hashlib.sha256(body).digest())
                for group, body in zip(local, bodies, strict=True)
            ),
        )
        network = self._manifest.network_id
        envelope = seal(
            encode_header(header), issuer=self._identity.public_key, sign=self._identity.sign, network_id=network
        )
        message = encode_message(envelope, tuple(bodies))
        self._counters.keep(slot, parse_envelope(envelope, network_id=network).envelope_id, message)
        await self._publish(message)
