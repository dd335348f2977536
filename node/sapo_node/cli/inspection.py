"""Checks one message for a person: finds the layer that refuses it, its false claims, or the equivocation in it."""

from dataclasses import dataclass

import trio
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sapo_node.groups.task_name import task_name
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_node.verification.verifier import compare, request_for
from sapo_protocol import (
    LocalError,
    Manifest,
    RemoteError,
    Rollout,
    decode_body,
    decode_evidence,
    open_message,
    peer_id,
    prove_equivocation,
)

HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class GroupFinding:
    """The result of checking one group."""

    k: int
    dataset: str
    prompt: str
    verdict: str
    """`holds`, or the first check that failed."""
    claims: tuple[bool, ...]
    rewards: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking one message."""

    refused_by: str
    """The layer that refuses the message; empty if no layer does."""
    reason: str
    issuer: str = ""
    epoch: int = 0
    counter: int = 0
    groups: tuple[GroupFinding, ...] = ()

    @property
    def holds(self) -> bool:
        """True if no layer refuses the message and every claim of it is true."""
        return not self.refused_by and all(group.verdict == HOLDS for group in self.groups)


async def inspect(data: bytes, manifest: Manifest) -> Finding:
    """Open a message, rebuild its tasks and score its completions in the sandbox. Raises LocalError if this machine
    builds or scores the tasks of the swarm otherwise (VER-3).
    """
    try:
        rollout = open_message(data, manifest)
    except RemoteError as error:
        return Finding(error.layer, str(error))
    async with trio.open_nursery() as nursery:
        sandbox = Sandbox()
        await nursery.start(sandbox.run)
        await require_catalogue(manifest, sandbox)
        groups = [await _inspect_group(rollout, k, manifest, sandbox) for k in range(len(rollout.header.groups))]
        nursery.cancel_scope.cancel()
    return Finding("", "", peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, tuple(groups))


@dataclass(frozen=True, slots=True)
class Proof:
    """The equivocation that an evidence message proves."""

    peer: str
    epoch: int
    counter: int
    envelope_ids: tuple[str, str]
    """In hexadecimal."""


def inspect_evidence(data: bytes, manifest: Manifest) -> Proof:
    """Check an evidence message from its own bytes. Raises LocalError if it proves no equivocation."""
    try:
        accusation = decode_evidence(data, manifest)
        proof = prove_equivocation(accusation, manifest)
    except RemoteError as error:
        raise LocalError(f"this proves nothing in swarm {manifest.name!r}: {error}") from error
    first, second = (sealed.envelope_id.hex() for sealed in accusation.envelopes)
    return Proof(peer_id(proof.issuer), proof.epoch, proof.counter, (first, second))


async def _inspect_group(rollout: Rollout, k: int, manifest: Manifest, sandbox: Sandbox) -> GroupFinding:
    group, data = rollout.header.groups[k], rollout.bodies[k]
    body, problem = None, "body left out"
    if data is not None:
        try:
            body, problem = decode_body(data, manifest), ""
        except RemoteError as error:
            problem = str(error)
    request = request_for(manifest, rollout, k, body)
    (scored,) = await sandbox.score([request])
    verdict = problem or compare(group, scored) or HOLDS
    prompt, rewards = (scored.prompt, scored.rewards) if scored else ("", ())
    task = task_name(manifest, request.dataset, request.config)
    return GroupFinding(k, task, prompt, verdict, group.claims, rewards)


def render(finding: Finding) -> RenderableType:
    """Return the finding for the terminal."""
    if finding.refused_by:
        return Text.assemble(("refused: ", "bold red"), finding.reason)
    table = Table("k", "task", "prompt", "claimed", "earned", "verdict")
    for group in finding.groups:
        style = "green" if group.verdict == HOLDS else "red"
        prompt = group.prompt.strip().rpartition("\n")[2]
        table.add_row(
            str(group.k),
            group.dataset,
            prompt,
            _bits(group.claims),
            _bits(group.rewards),
            Text(group.verdict, style=style),
        )
    head = f"signed by {finding.issuer}, epoch {finding.epoch}, counter {finding.counter}"
    return Group(Text(head, style="bold"), table)


def _bits(rewards: tuple[bool, ...]) -> str:
    return "".join("1" if reward else "0" for reward in rewards)
