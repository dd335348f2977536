"""Makes the configuration of a new node that fits its model, its swarm and this machine, and estimates its rounds.

`sapo-node init` uses it in this order: `look` at the machine, probe the model, `fitted`, `begin_state`, `rendered`.
"""

import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass, replace

from sapo_node.app.config import AUTO, Config, render_config
from sapo_node.app.recipe import recipe_of
from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.cli.doctor import Finding, State, examine
from sapo_node.cli.probe import Difficulty, Probe, advice_of
from sapo_node.groups.messages import Ready
from sapo_node.net.addresses import require_bootstrap
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.storage.location import StateLocation
from sapo_protocol import LocalError, Manifest
from sapo_protocol.printable import printable

ROUNDS_PER_EPOCH = 10
"""Rounds that a node should play in an epoch. A slower machine gets fewer local groups."""
_MAY_BE_BAD = "sandbox"
"""The check without which a node still runs: it then trains on local groups only."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The rounds to expect of a configuration, by a probe."""

    model: str
    """Its name, its size, and the memory that it needs."""
    base_rate: float
    """Held-out pass@1 before any training, mean over tasks."""
    learnable: tuple[str, ...]
    """The tasks that the model can learn."""
    tasks: int
    round_seconds: float
    """Seconds of a round with local groups only, all of them informative."""
    full_round_seconds: float
    """Seconds of a round with as many external groups as local ones, or as many as the configuration allows."""

    contact_rounds: float
    """Rounds, on average, from the first contact with a peer to the first external group in a batch. The peer is as
    fast as this node and has the same model."""

    @property
    def contact_seconds(self) -> float:
        """`contact_rounds` in seconds."""
        return self.contact_rounds * self.round_seconds


async def look(config: Config) -> list[Finding]:
    """Check this machine as `doctor` does, but dial no peer. Raises LocalError if the node could not run."""
    for address in config.bootstrap:
        require_bootstrap(address)
    findings = []
    async with aclosing(examine(replace(config, bootstrap=()))) as examined:
        async for finding in examined:
            if finding.state is State.BAD and finding.name != _MAY_BE_BAD:
                raise LocalError(": ".join(filter(None, (finding.text, finding.advice))))
            findings.append(finding)
    return findings


def require_learnable(probe: Probe, config: Config) -> None:
    """Raise LocalError, with advice, if the model can learn no task of the swarm."""
    if not probe.of(Difficulty.LEARNABLE):
        advice = "; or ".join(advice_of(probe, config))
        raise LocalError(
            f"{config.model} can learn none of the {len(probe.tasks)} tasks of {config.swarm} yet: {advice}; or write "
            f"the configuration as it is, with --no-probe"
        )


def fitted(config: Config, manifest: Manifest, probe: Probe | None, *, local: int | None) -> Config:
    """Return a configuration that fits: with the settings of its model, and rounds that an epoch has room for.

    The settings of the model are numbers instead of `auto`, so that another version of this package keeps them. `local`
    is the number of local groups that the operator wants, or None.
    """
    if not config.train:
        return config
    settings = asdict(recipe_of(config))
    if local is None and probe:
        fit = int(manifest.epoch_seconds / ROUNDS_PER_EPOCH / _group_seconds(probe))
        settings["local"] = max(1, min(config.local, fit))
    return replace(config, **settings)


def outlook(config: Config, probe: Probe, ready: Ready) -> Outlook:
    """Return the rounds to expect of a configuration, by the measurements of a probe on this machine."""
    alone = config.local * _group_seconds(probe)
    external = config.local if config.external == AUTO else config.external
    memory = ready.memory or "fits anywhere"
    # The peer ends its round, and then shares `local` groups a round. Only informative ones are trained on.
    informative = sum(task.informative.point for task in probe.tasks) / len(probe.tasks)
    contact_rounds = 1 + 1 / (1 - (1 - informative) ** config.local)
    return Outlook(
        model=f"{ready.model}, {ready.parameters / 1e6:.1f} M parameters, on {ready.device}; {memory}",
        base_rate=sum(task.base_rate.point for task in probe.tasks) / len(probe.tasks),
        learnable=tuple(probe.of(Difficulty.LEARNABLE)),
        tasks=len(probe.tasks),
        round_seconds=alone,
        full_round_seconds=alone + external * probe.round.train_seconds / probe.round.groups,
        contact_rounds=contact_rounds,
    )


def _group_seconds(probe: Probe) -> float:
    return (probe.round.generate_seconds + probe.round.train_seconds) / probe.round.groups


def facts(config: Config, findings: Sequence[Finding], expected: Outlook | None) -> dict[str, str]:
    """Return the findings and the expected rounds by name, each as one line of text for people."""
    found = {finding.name: finding for finding in findings}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    told: dict[str, str] = {name: found[name].text for name in ("system", "swarm", "learner", "model") if name in found}
    told["system"] += f", {memory:.1f} GiB of memory"
    if config.train:
        told |= _rounds(config, found[_MAY_BE_BAD], expected)
    else:
        told["round"] = "none: this node only relays"
    return {name: printable(text) for name, text in told.items()}


def _rounds(config: Config, sandbox: Finding, expected: Outlook | None) -> dict[str, str]:
    external = f"none: {sandbox.text}; {sandbox.advice}" if sandbox.state is State.BAD else ""
    if not expected:
        unknown = "not measured: `sapo-node init --dry-run` measures it"
        return {"round": unknown, "external": external or "from the first informative group that a peer shares"}
    return {
        "model": expected.model,
        "base rate": f"{expected.base_rate:.1%} of the completions are correct before any training; "
        f"{len(expected.learnable)} of {expected.tasks} tasks can be learnt",
        "round": f"about {expected.round_seconds:.0f} s with {config.local} local groups, and up to "
        f"{expected.full_round_seconds:.0f} s with external groups",
        "external": external
        or f"the first external group can be trained on about {expected.contact_rounds:.0f} rounds "
        f"({expected.contact_seconds:.0f} s) after the first contact with a peer of the same kind",
    }


def begin_state(config: Config, manifest: Manifest, identity: Identity) -> None:
    """Make the state of a key that was created just now, so that its node publishes at once.

    Without a state, `start` could not know that the key is new. It would listen for two epochs before it publishes.
    """
    folder = state_folder(config.states, manifest, identity.peer_id)
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database:
        Counters(
            database,
            manifest,
            now=time.time(),
            key_is_new=True,
            rng=random.SystemRandom(),
            location=StateLocation(folder.path),
        )


def rendered(config: Config, told: Mapping[str, str], command: str) -> str:
    """Return the configuration as TOML. Its first lines are comments: what was found, and how to start the node."""
    width = max(map(len, told))
    head = [
        "What `sapo-node init` found on this machine:",
        *(f"  {name:{width}}  {text}" for name, text in told.items()),
    ]
    lines = [*head, f"Start the node with: {printable(command)}", ""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + render_config(config)
