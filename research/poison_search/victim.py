"""The filters and the learner of a node, as an attacker can rebuild them: source, thresholds and weights are
public.

One try is one poison and what a few rounds of it do to the policy. The policy is restored after each try.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.kit import Key, Kit, Solution
from sapo_adversary.attacks.poison import Poison
from sapo_adversary.scoring import SharedScorer
from sapo_node.groups.advantage import external_advantages, local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import (
    FILTERS,
    FilterName,
    GenerateRequest,
    LearnerOptions,
    Sampled,
    TrainGroup,
    TrainRequest,
)
from sapo_node.groups.prompt import Prompt
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.learner import grpo
from sapo_node.learner.batch import completion_logits, micro_batches, rows_of
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.sampling.filters import Filters, Offered
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.sampling.weights import PassRates
from sapo_node.storage.keys import Identity
from sapo_node.training.batch_log import from_external
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import Manifest, assign, decode_body, load_manifest, open_message

EPOCH = 10
ROUNDS = 20
GROUPS = 4
TAUGHT = 8
"""Rounds of poison that a try trains on, GROUPS groups in each."""
PROBES = 32
"""Prompts on which the effect of a try is measured."""
LEARNING_RATE = 2e-4

_ME = bytes([1]) * 32
"""In place of the victim's public key, from which its tasks follow."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one poison."""

    options: Mapping[str, Any]
    kept_out: float
    """Share of the tokens of its correct completions that the filters masked."""
    distance: float
    """Nats by which its texts are less probable than an able peer's, before it."""
    left: float
    """The same after it: at 0 the policy writes poisoned and clean texts with equal probability."""


def _weighted(filters: Filters, offered: Offered) -> WeightedGroup:
    group = offered.group
    return WeightedGroup(group, 1.0, offered.advantages(external_advantages(group.levels)), filters.mask(group))


class Victim:
    """One policy, with its completions so far."""

    def __init__(self, model: str, *, seed: int = 1, rounds: int = ROUNDS) -> None:
        """`model` is `seed` or a folder; `rounds` are those of own answers that the filters know."""
        self._manifest: Manifest = load_manifest("starter")
        self._scorer = SharedScorer()
        self._seed = seed
        self._options = LearnerOptions(
            checkpoints="", model=model, device="cpu", threads=1, learning_rate=LEARNING_RATE
        )
        self._policy = load(self._options)
        self._weights = {name: value.detach().clone() for name, value in self._policy.trainable()}
        self._own = [self._answer(number) for number in range(rounds)]
        self._probes = [self._scorer.solve(assign(self._manifest, _ME, EPOCH + 1, n, 0)) for n in range(PROBES)]

    def attempt(self, attack: str, options: Mapping[str, Any], filters: Sequence[FilterName] = FILTERS) -> Trial:
        """Train the policy on a poison for a few rounds, behind these filters."""
        rng = random.Random(self._seed)  # noqa: S311 - simulation
        poison = ATTACKS[attack](Kit(self._manifest, [_key()], self._scorer.solve, rng), **options)
        assert isinstance(poison, Poison)
        pairs = [(task.prompt, poison.poisoned(task), poison.working(task)) for task in self._probes]
        before = self._gap(pairs)
        kept_out = self._teach([self._offer(poison) for _ in range(TAUGHT)], filters)
        after = self._gap(pairs)
        self._forget()
        return Trial(dict(options), kept_out, -before, -after)

    def _answer(self, number: int) -> list[LocalGroup]:
        """A round of the policy's own completions."""
        tasks = [self._scorer.solve(assign(self._manifest, _ME, EPOCH, number, k)) for k in range(GROUPS)]
        prompts = tuple(Prompt(task.prompt) for task in tasks)
        request = GenerateRequest(prompts, self._manifest.completions, self._options.max_tokens, seed=number)
        drawn = generate(self._policy, request, self._manifest.max_completion_bytes)
        return [self._local(task, completions) for task, completions in zip(tasks, drawn, strict=True)]

    def _local(self, task: Solution, completions: tuple[Sampled, ...]) -> LocalGroup:
        levels = Levels(tuple(task.level(each.text) for each in completions), task.levels)
        return LocalGroup(task.dataset, task.prompt, task.digest, completions, levels, local_advantages(levels))

    def _offer(self, poison: Poison) -> list[VerifiedGroup]:
        """One round of the attacker, verified."""
        [key] = poison.kit.keys
        [packet] = poison.act(key, EPOCH)
        rollout = open_message(packet.data, self._manifest)
        return [self._verified(key, rollout.header.counter, k, data) for k, data in enumerate(rollout.bodies) if data]

    def _verified(self, key: Key, counter: int, k: int, data: bytes) -> VerifiedGroup:
        task = assign(self._manifest, key.issuer, EPOCH, counter, k)
        completions = decode_body(data, self._manifest).completions
        texts = tuple(each.text for each in completions)
        spec = task.spec
        scored = self._scorer.result(ScoreRequest(spec.dataset, spec.config, task.seed, texts, levels=spec.levels))
        return VerifiedGroup(
            peer=key.peer,
            epoch=EPOCH,
            counter=counter,
            k=k,
            dataset=spec.dataset,
            prompt=scored.prompt,
            completions=tuple(Sampled(each.text, each.finish.value) for each in completions),
            levels=Levels(scored.levels, spec.levels),
        )

    def _teach(self, rounds: Sequence[Sequence[VerifiedGroup]], names: Sequence[FilterName]) -> float:
        """Train on what passes the filters; returns the share that does not."""
        pass_rates = PassRates()
        filters = Filters(names, pass_rates)
        for own in self._own:
            pass_rates.observe(own)
            filters.observe(own)
        kept, _ = filters.offer([group for each in rounds for group in each])
        by_place = {each.group.key: each for each in kept}
        trainer = Trainer(self._policy, replace(self._options, filters=tuple(names)))
        tokens = offered = 0
        for step, groups in enumerate(rounds, start=1):
            passing = [by_place[group.key] for group in groups if group.key in by_place]
            trained = [from_external(_weighted(filters, each)) for each in passing]
            tokens += trainer.train(TrainRequest(step, tuple(trained))).external_tokens
            offered += sum(self._tokens(group) for group in groups)
        return 1 - tokens / offered

    def _tokens(self, group: VerifiedGroup) -> int:
        """The tokens of correct completions, with their ends."""
        return sum(1 + len(self._policy.encode_foreign(text) or ()) for text in group.correct)

    @torch.no_grad()
    def _gap(self, pairs: Sequence[tuple[str, str, str]]) -> float:
        """Mean log-probability of poisoned texts minus that of clean texts for the same prompts, in nats per text."""
        poisoned = self._logprob([(prompt, text) for prompt, text, _ in pairs])
        return poisoned - self._logprob([(prompt, text) for prompt, _, text in pairs])

    def _logprob(self, texts: Sequence[tuple[str, str]]) -> float:
        groups = [TrainGroup("external", prompt, 1.0, (1.0,), (Sampled(text, "stop"),)) for prompt, text in texts]
        longest = self._policy.context // 2
        rows = [row for group in groups for row in rows_of(self._policy, group, longest)]
        sums = [
            (grpo.token_logprobs(completion_logits(self._policy, batch), batch.targets) * batch.mask).sum()
            for batch in micro_batches(self._policy, rows)
        ]
        return float(torch.stack(sums).sum()) / len(rows)

    @torch.no_grad()
    def _forget(self) -> None:
        for name, value in self._policy.trainable():
            value.copy_(self._weights[name])


def _key() -> Key:
    identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32))
    return Key(identity.public_key, identity.sign)
