"""One simulated node: the parts of a real one, with a log of each round."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from sapo_adversary.ablations.defences import Undefended
from sapo_adversary.ablations.replacements import BlamesCarriers
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.attackers import insiders
from sapo_adversary.simulator.learners import learner_for
from sapo_adversary.simulator.lookahead import LookingAhead
from sapo_adversary.simulator.oracle import HONEST, Audit, Findings, PeerStates, WatchedTrainer
from sapo_adversary.simulator.prompts import examples_of, heldout_prompts
from sapo_adversary.simulator.simulation import NodeSpec, Simulation
from sapo_adversary.simulator.versions import versions_now
from sapo_node.app.config import Config
from sapo_node.app.exchange import broadcast_evidence, follow_shards, pull
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA
from sapo_node.net.in_memory import MemoryHub
from sapo_node.net.interface import PeerInfo, Requests
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.training.batch_log import stored_batch, trained_per_peer
from sapo_node.training.round import RoundReport
from sapo_node.trust.constants import PeerState
from sapo_protocol import LocalError, Manifest, open_message

if TYPE_CHECKING:
    from sapo_adversary.simulator.libp2p.honest import HonestNetwork
    from sapo_adversary.simulator.libp2p.loopback import Loopback
    from sapo_node.net.in_memory import MemoryNetwork

_STAGGER = 0.37
"""Virtual seconds between the starts of neighbours in number: no two nodes act at one moment."""

Progress = Callable[[int], None]
"""Told how many node-rounds were just played."""


def _acquaint(database: Database, peers: Iterable[str]) -> None:
    """Enter peers into the ledger as healthy; from there on their behaviour counts. A peer in `Config.trusted` would
    stay healthy whatever it does, and no undefended node could ban an honest peer.
    """
    with database.transaction():
        for peer in peers:
            database.execute("INSERT INTO ledger VALUES (?, ?, 0, 0, 0, 0, 0, 0, 0, 0)", peer, PeerState.HEALTHY)


def _counters(shared: "Shared", spec: NodeSpec, database: Database, identity: Identity, rng: random.Random) -> Counters:
    now = shared.clock.now()
    if spec.control == "lookahead":
        return LookingAhead(database, shared.manifest, identity, spec.local, now=now, rng=rng)
    return Counters(database, shared.manifest, now=now, key_is_new=True, rng=rng)


@dataclass(slots=True)
class _Log:
    """The log of one node, by round."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    examined: list[dict[str, Any]] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    carried: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Tokens trained on, by dataset and by the peer who wrote them."""
    findings: Findings = field(default_factory=Findings)
    states: PeerStates = field(default_factory=PeerStates)
    seconds: float = 0.0
    """Virtual seconds for all its rounds."""
    requests: int = 0
    """Requests of honest peers that came."""
    answered: int = 0
    """Bytes of its answers to all peers."""

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The parts that all nodes of one simulation share."""

    simulation: Simulation
    manifest: Manifest
    clock: TrioClock
    scorer: SharedScorer
    hub: "MemoryHub | Loopback"
    identities: Sequence[Identity]
    undefended: Undefended
    audit: Audit | None
    policies: Path = Path()


class Member:
    """One simulated node with its log."""

    def __init__(self, shared: Shared, number: int, spec: NodeSpec) -> None:
        simulation, manifest, scorer = shared.simulation, shared.manifest, shared.scorer
        identity = shared.identities[number]
        self.spec = spec
        self.log = _Log()
        self._simulation = simulation
        self._scorer = scorer
        self._fatal: LocalError | None = None
        self._database = Database(None, SCHEMA)
        self._audit = audit = shared.audit
        rng = random.Random(f"node/{simulation.seed}/{number}")  # noqa: S311 - simulation
        self.learner = learner_for(simulation, manifest, number, shared.policies, scorer)
        self._offset = _STAGGER * number
        if simulation.trusted:
            _acquaint(self._database, (*(each.peer_id for each in shared.identities), *insiders(simulation)))
        examples = examples_of(spec, manifest, scorer)
        self.node = build_node(
            _config_of(simulation, spec),
            SwarmContext(manifest, shared.clock, identity, rng),
            database=self._database,
            counters=_counters(shared, spec, self._database, identity, rng),
            scorer=scorer,
            policy=self.learner,
            examples=examples,
            on_fatal=self._stop,
            parts=shared.undefended.parts,
        )
        self.node.verifier.held_out.update(heldout_prompts(simulation, manifest, scorer))
        if audit:
            self.node.trainer = WatchedTrainer(
                self._database,
                self.node.book,
                self.learner,
                objective=spec.external_objective,
                checkpoint_every=Config().checkpoint_every,
                examples=examples,
                look=partial(audit.trained, self.log.findings, objective=spec.external_objective),
            )
        self.peer = self.node.peer_id
        channels = self.node.channels
        if isinstance(self.node.verifier, BlamesCarriers):
            channels = self.node.verifier.noting(channels)
        self._network: MemoryNetwork | HonestNetwork = shared.hub.join(
            identity,
            channels,
            requests=self._counted(self.node.requests(self._peers)) if simulation.pulls else None,
            admit=self.node.admits,
            notify=self.node.notice,
        )

    def _peers(self) -> Sequence[PeerInfo]:
        return self._network.peers()

    def _counted(self, requests: Requests) -> Requests:
        """Count the requests of honest peers, and the bytes of all answers."""

        async def answer(peer: str, data: bytes) -> bytes | None:
            self.log.requests += bool(self._audit and self._audit.roles.get(peer) == HONEST)
            given = await requests.answer(peer, data)
            self.log.answered += len(given or b"")
            return given

        return replace(requests, answer=answer)

    def _stop(self, error: LocalError) -> None:
        self._fatal = error
        self.node.stopping.set()

    async def play(self, played: Progress) -> None:
        """Join, play all rounds, leave."""
        await trio.sleep(self.spec.joins + self._offset)
        self._evaluate(self._simulation.final_questions)
        rounds = self.spec.rounds(self._simulation.seconds)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._network.run)
            nursery.start_soon(broadcast_evidence, self.node, self._network.publish)
            nursery.start_soon(follow_shards, self.node, self._network)
            if self._simulation.pulls:
                nursery.start_soon(pull, self.node, self._network)
            begun = trio.current_time()
            await run_node(self.node, self._publish, rounds=rounds, on_round=lambda r: self._played(r, played))
            self.log.seconds = trio.current_time() - begun
            nursery.cancel_scope.cancel()
        if self._fatal:
            raise self._fatal
        self._evaluate(self._simulation.final_questions)

    async def _publish(self, topic: str, message: bytes) -> None:
        if self._audit:
            rollout = open_message(message, self.node.swarm.manifest)
            bodies = self.node.message_store.held(rollout.opened.envelope_id)
            self._audit.published(self.peer, replace(rollout, bodies=bodies))
        await self._network.publish(topic, message)

    def _played(self, report: RoundReport, played: Progress) -> None:
        self.log.add(
            reward=report.reward,
            informative=report.informative,
            local=report.local,
            external=report.external,
            loss=report.training.loss,
            grad_norm=report.training.grad_norm,
            entropy=report.training.entropy,
            rate_scale=report.rate_scale,
            generated_tokens=self.learner.meter.generated_tokens,
        )
        self._tally(report)
        if self._audit:
            self.log.states.look(self.node.ledger, self._audit.roles, report.step)
        self.log.cpu_seconds.append(round(self.learner.meter.cpu_seconds, 3))
        every = self._simulation.eval_every
        before, now = ((report.step - past) * self.spec.round_seconds for past in (1, 0))
        if (
            every
            and int(now / every) > int(before / every)
            and report.step < self.spec.rounds(self._simulation.seconds)
        ):
            self._evaluate(self._simulation.examine_questions)
        played(1)

    def _tally(self, report: RoundReport) -> None:
        """Count the trained tokens by dataset and peer, from the batch that the node stored for the round."""
        batch = stored_batch(self._database, report.step)
        if batch is None:
            return
        for group in batch.request.groups:
            dataset, tokens = self._scorer.tasks[group.prompt].dataset, report.training.groups[group.id].tokens
            self.log.carried[dataset, batch.members[group.id].peer] += tokens

    def _evaluate(self, prompts: int) -> None:
        per_task = self.learner.examine(self._scorer, prompts)
        measured = {
            "round": self.learner.step,
            "pass_at_1": sum(per_task.values()) / len(per_task),
            "per_task": per_task,
            "questions": prompts,
        }
        if self._simulation.averaged:
            measured["averaged"] = fmean(self.learner.examine(self._scorer, prompts, averaged=True).values())
        self.log.examined.append(measured)

    def record(self) -> dict[str, Any]:
        """The log of the node, as plain values."""
        trained = trained_per_peer(self._database)
        refused = {**self.node.ingest.refused, **self.node.verifier.unusable}
        audited = {
            "findings": self.log.findings.as_dict(),
            "states": self.log.states.as_dict(),
            "stored": _bytes_in_use(self._database),
            "seconds": round(self.log.seconds, 1),
            "requests": self.log.requests,
            "answered": self.log.answered,
        }
        return {
            "peer": self.peer,
            "rounds": self.log.columns,
            "heldout": self.log.examined,
            "trained": {peer or "own": {"groups": g, "tokens": t} for peer, (g, t) in sorted(trained.items())},
            "carried": [[*key, tokens] for key, tokens in sorted(self.log.carried.items()) if tokens],
            "refused": {str(why): count for why, count in sorted(refused.items())},
            **(audited if self._audit else {}),
        }


def _bytes_in_use(database: Database) -> int:
    pages, free, size = (
        database.rows(f"PRAGMA {each}")[0][0] for each in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _config_of(simulation: Simulation, spec: NodeSpec) -> Config:
    return Config(
        local=spec.local,
        external=spec.external,
        selection=spec.selection,
        external_objective=spec.external_objective,
        replay=spec.replay,
        filters=simulation.filters_of(spec),
        max_tokens=spec.max_tokens,
        eval_every=0,
    )


def members_of(shared: Shared) -> list[Member]:
    """All nodes of a simulation, by number."""
    return [Member(shared, number, spec) for number, spec in enumerate(shared.simulation.members)]


def record_of(simulation: Simulation, members: Sequence[Member]) -> dict[str, Any]:
    """The record of a run: the same for the same simulation in memory, except under `timing`."""
    return {
        "scenario": simulation.as_dict(),
        "digest": simulation.digest(),
        "versions": versions_now(),
        "nodes": [member.record() for member in members],
        "timing": {"cpu_seconds": [member.log.cpu_seconds for member in members]},
    }
