"""The truth that no node can see, compared with what honest nodes train on and with what their ledgers hold.

`Audit` knows who wrote each group and what the group is worth. `PeerStates` follows the ledger of one node. The
simulator calls both after each round. Neither changes a run.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from types import MappingProxyType
from typing import Any

from sapo_adversary.scoring import SharedScorer
from sapo_node.groups.advantage import counts
from sapo_node.groups.messages import ExternalObjective, TrainReport
from sapo_node.groups.record import GroupKey, LocalGroup
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.training.batch_log import external_id
from sapo_node.training.trainer import Trainer
from sapo_node.trust.constants import PeerState
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import Manifest, Rollout, assign, decode_body, public_key_of


class Violation(StrEnum):
    """Kinds of groups that no node may train on."""

    FORGED = "forged"
    """In the name of an honest peer that never signed it."""
    REPLAYED = "replayed"
    """Trained on before."""
    OFF_TASK = "off task"
    """For a prompt that was not assigned to its issuer."""
    WRONG_REWARD = "wrong reward"
    """With a reward that the text does not earn."""


OWN, HONEST, NOBODY = "own", "honest", "nobody"
"""Roles of writers, beside the attacks' own ids; nobody can hold a key of small order."""


@dataclass(slots=True)
class Findings:
    """The findings on one honest node."""

    loss_weight: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Sum of weight x |advantage| x completion bytes of the completions that the loss counts, by role of the writer."""
    poison: list[float] = field(default_factory=list)
    """After each round, the attackers' share of the loss weight so far."""
    violations: Counter[str] = field(default_factory=Counter)
    copied: int = 0
    """Groups of attackers that hold a text of an honest peer."""
    gains: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Weight x advantage of each correct external completion, by role of the writer."""
    habits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The mean of each round over its own completions, by the name of the habit."""
    taken: set[GroupKey] = field(default_factory=set)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "mass": {role: round(loss_weight, 1) for role, loss_weight in sorted(self.loss_weight.items())},
            "poison": self.poison,
            "violations": {str(each): self.violations[each] for each in Violation},
            "copied": self.copied,
            **({"habits": dict(self.habits), "gains": self._mean_gains()} if self.habits else {}),
        }

    def _mean_gains(self) -> dict[str, float]:
        return {role: round(fmean(gains), 4) for role, gains in sorted(self.gains.items()) if gains}


class Audit:
    """Compares trained groups with the truth. `roles` has the role of each peer."""

    def __init__(
        self,
        manifest: Manifest,
        scorer: SharedScorer,
        roles: Mapping[str, str],
        habits: Mapping[str, Callable[[str], float]] = MappingProxyType({}),
    ) -> None:
        """`habits` are functions of a text, by name, that the nodes' own completions are measured with."""
        self._manifest = manifest
        self._scorer = scorer
        self.roles = roles
        self._habits = habits
        self._signed: dict[GroupKey, int] = {}
        self._written: set[str] = set()

    def published(self, peer: str, rollout: Rollout) -> None:
        """Record a rollout that an honest peer signs."""
        for k, body in enumerate(rollout.bodies):
            if body is not None:
                texts = tuple(each.text for each in decode_body(body, self._manifest).completions)
                self.signed(peer, rollout.header.epoch, rollout.header.counter, k, texts)
                self._written.update(texts)

    def signed(self, peer: str, epoch: int, counter: int, k: int, texts: Sequence[str]) -> None:
        """Record the texts of one group that an honest peer signs; only a hash is kept, since crowds sign millions."""
        self._signed[peer, epoch, counter, k] = hash(tuple(texts))

    def trained(
        self,
        findings: Findings,
        local: Sequence[LocalGroup],
        external: Sequence[WeightedGroup],
        objective: ExternalObjective = "positive-only",
    ) -> None:
        """Enter a batch into the findings of the node that trains on it with this objective."""
        for own in local:
            findings.loss_weight[OWN] += _loss_weight(own.advantages, tuple(each.text for each in own.completions))
        for weighted in external:
            self._enter(findings, weighted, objective)
        own_texts = [each.text for own in local for each in own.completions]
        for name, shown in self._habits.items():
            findings.habits[name].append(round(fmean(map(shown, own_texts)), 4))
        taken = sum(loss_weight for role, loss_weight in findings.loss_weight.items() if role not in (OWN, HONEST))
        findings.poison.append(round(taken / (sum(findings.loss_weight.values()) or 1), 4))

    def _enter(self, findings: Findings, weighted: WeightedGroup, objective: ExternalObjective) -> None:
        group = weighted.group
        role = self.roles.get(group.peer, NOBODY)
        texts = tuple(each.text for each in group.completions)
        counted = [each if counts(each, external=True, objective=objective) else 0.0 for each in weighted.advantages]
        findings.loss_weight[role] += weighted.weight * _loss_weight(counted, texts)
        findings.gains[role] += [weighted.weight * each for each in weighted.advantages if each > 0]
        place = group.key
        if place in findings.taken:
            findings.violations[Violation.REPLAYED] += 1
        findings.taken.add(place)
        if role == HONEST and self._signed.get(place) != hash(texts):
            findings.violations[Violation.FORGED] += 1
        findings.copied += role != HONEST and not self._written.isdisjoint(texts)
        task = assign(self._manifest, public_key_of(group.peer), group.epoch, group.counter, group.k)
        spec = task.spec
        asked = ScoreRequest(spec.dataset, spec.config, task.seed, texts, levels=spec.levels)
        truth = self._scorer.result(asked)
        findings.violations[Violation.OFF_TASK] += truth.prompt != group.prompt
        findings.violations[Violation.WRONG_REWARD] += truth.levels != group.levels.each


class WatchedTrainer(Trainer):
    """A node's trainer that shows to `look` each batch that it has trained on."""

    def __init__(
        self,
        *parts: Any,
        look: Callable[[Sequence[LocalGroup], Sequence[WeightedGroup]], None],
        **settings: Any,
    ) -> None:
        """`look` is called with the local and the external groups of every batch, without the stand-ins that were not
        needed.
        """
        super().__init__(*parts, **settings)
        self._look = look

    async def train(
        self, local: Sequence[LocalGroup], external: Sequence[WeightedGroup], replayed: Sequence[LocalGroup] = ()
    ) -> TrainReport:
        """Train on the batch and show it."""
        report = await super().train(local, external, replayed)
        self._look(local, [each for each in external if external_id(each.group) in report.groups])
        return report


def _loss_weight(advantages: Sequence[float], texts: Sequence[str]) -> float:
    return sum(abs(advantage) * len(text.encode()) for advantage, text in zip(advantages, texts, strict=True))


@dataclass(slots=True)
class PeerStates:
    """The ledger of one node, round by round."""

    trust: dict[str, list[float]] = field(default_factory=dict)
    """Mean trust in the peers of a role, after each round."""
    healthy: dict[str, list[int]] = field(default_factory=dict)
    """The number of healthy peers of a role after each round."""
    banned: dict[str, int] = field(default_factory=dict)
    """The round after which a peer was first seen banned."""
    last: dict[str, Counter[str]] = field(default_factory=dict)
    """By role, how many peers have each state at the end."""

    def look(self, ledger: Ledger, roles: Mapping[str, str], step: int) -> None:
        """Enter the states after a round. `roles` has the role of each peer."""
        accounts: dict[str, list[float]] = {}
        self.last = {}
        for peer, role in roles.items():
            account = ledger.of(peer)
            accounts.setdefault(role, []).append(account.trust)
            self.last.setdefault(role, Counter())[account.state] += 1
            if account.state is PeerState.BANNED:
                self.banned.setdefault(peer, step)
        for role, trusts in accounts.items():
            self.trust.setdefault(role, []).append(round(fmean(trusts), 4))
            self.healthy.setdefault(role, []).append(self.last[role][PeerState.HEALTHY])

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "trust": self.trust,
            "healthy": self.healthy,
            "banned": dict(sorted(self.banned.items())),
            "last": {role: dict(sorted(counts.items())) for role, counts in sorted(self.last.items())},
        }
