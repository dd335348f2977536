"""The node's real learner in the simulating process: the same generation, loss and optimizer, without a process of its
own.

Virtual time passes at the node's pace. What is sampled depends only on the swarm's seed, the node and its step, so that
the arms of an experiment share their random numbers.
"""

import hashlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
import trio
from torch import Tensor

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.pace import GENERATING, Meter, Stopwatch
from sapo_adversary.simulator.prompts import examples_of
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, RequestError, Sampled, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.checkpoint import KEPT, Snapshot
from sapo_node.learner.device import ROWS
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.training.evaluation import heldout_requests
from sapo_protocol import Manifest


@contextmanager
def one_core() -> Iterator[None]:
    """Set torch to one thread and to flush denormals, until the end of the block.

    The order in which threads add up would change the numbers. A policy that is very sure of itself makes denormals,
    which are slow. Both settings hold for the whole process.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


class SimulatedLearner:
    """Implements `sapo_node.training.trainer.Policy` in this process; `policies` has the prepared ones."""

    def __init__(
        self, simulation: Simulation, manifest: Manifest, number: int, policies: Path, scorer: SharedScorer
    ) -> None:
        spec = simulation.members[number]
        options = LearnerOptions(
            checkpoints="",
            model=str(policies / spec.model) if spec.is_prepared else spec.model,
            lora=spec.lora,
            lora_layers=spec.lora_layers,
            dtype=spec.dtype,
            device=spec.device,
            threads=1,
            learning_rate=spec.learning_rate,
            decay_rounds=spec.decay_rounds,
            groups=simulation.groups,
            completions=manifest.completions,
            max_tokens=spec.max_tokens,
            max_completion_bytes=manifest.max_completion_bytes,
            filters=simulation.filters_of(spec),
        )
        self._manifest = manifest
        self._seed = f"{simulation.seed}/{number}"
        self._pace = spec.round_seconds
        self._max_tokens = spec.max_tokens
        self._examples = examples_of(spec, manifest, scorer)
        self._trainer = Trainer(load(options), options)
        self._checkpoints = deque([Snapshot.of(self._trainer).copy()], maxlen=KEPT)
        self._best: dict[int, dict[str, Tensor]] = {}
        """The best weights that are kept, by step."""
        self.meter = Meter()

    @property
    def step(self) -> int:
        """The step of the weights as they are now."""
        return self._trainer.step

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int, averaged: bool = False
    ) -> list[tuple[Sampled, ...]]:
        """G completions for each question. Simulated nodes do not evaluate themselves: the simulator does."""
        del seed, averaged
        await trio.sleep(self._pace * GENERATING)
        return self.sample(prompts, completions=completions, max_tokens=max_tokens, purpose="round")

    def sample(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, purpose: str
    ) -> list[tuple[Sampled, ...]]:
        """The same without virtual time; `purpose` keeps streams of random numbers apart."""
        with Stopwatch(self.meter):
            groups = self._generate(prompts, completions, max_tokens, purpose)
        self.meter.generated_tokens += sum(len(each.tokens or ()) for group in groups for each in group)
        return groups

    async def train(self, request: TrainRequest) -> TrainReport:
        """One update; its step is the one after the last."""
        await trio.sleep(self._pace * (1 - GENERATING))
        with Stopwatch(self.meter):
            report = self._trainer.train(request, None if request.restart is None else self._best[request.restart])
        # A simulation repeats exactly, so nothing in it may depend on how fast the machine is.
        return replace(report, seconds=0.0, local_seconds=0.0, external_seconds=0.0)

    async def checkpoint(self) -> int:
        """Keep the weights in memory, beside those of the checkpoint before."""
        if self._checkpoints[-1].step < self.step:
            self._checkpoints.append(Snapshot.of(self._trainer).copy())
        return self.step

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        """Keep the averaged weights of now in memory."""
        weights = {name: value.clone() for name, value in self._trainer.average.items()}
        self._best = {kept: self._best[kept] for kept in needed} | {step: weights}

    async def restore(self, step: int) -> None:
        """Go back to the checkpoint of a step, or for step 0 to the initial weights, and drop all later checkpoints and
        best weights.
        """
        if self.step > step:
            if step not in {each.step for each in self._checkpoints}:
                raise RequestError(f"there is no checkpoint of step {step}")
            while self._checkpoints[-1].step > step:
                self._checkpoints.pop()
            self._checkpoints[-1].put_into(self._trainer)
        self._best = {kept: weights for kept, weights in self._best.items() if kept <= step}

    def examine(self, scorer: SharedScorer, prompts: int, *, averaged: bool = False) -> dict[str, float]:
        """Held-out pass@1 by dataset, one sample to each of the swarm's own questions; costs the meter nothing."""
        with self._trainer.averaged() if averaged else nullcontext():
            return self._examine(scorer, prompts)

    def _examine(self, scorer: SharedScorer, prompts: int) -> dict[str, float]:
        requests = heldout_requests(self._manifest, prompts)
        right = {spec.dataset: 0 for spec in self._manifest.tasks}
        for start in range(0, len(requests), ROWS):
            chunk = requests[start : start + ROWS]
            asked = [self._examples.prompt(each.dataset, scorer.result(each).prompt) for each in chunk]
            answers = self._generate(asked, 1, self._max_tokens, f"held-out/{start}")
            for request, [answer] in zip(chunk, answers, strict=True):
                scored = scorer.result(replace(request, completions=(answer.text,)))
                right[request.dataset] += scored.levels[0] == request.levels
        return {dataset: count / prompts for dataset, count in right.items()}

    def _generate(
        self, prompts: Sequence[Prompt], completions: int, max_tokens: int, purpose: str
    ) -> list[tuple[Sampled, ...]]:
        digest = hashlib.sha256(f"{self._seed}/{self.step}/{purpose}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big") >> 1
        request = GenerateRequest(tuple(prompts), completions, max_tokens, seed)
        return generate(self._trainer.policy, request, self._manifest.max_completion_bytes)
