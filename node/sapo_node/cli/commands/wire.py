"""Check messages, print manifests, and pass on rollouts as data: `verify`, `manifest`, `rollouts`."""

import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sapo_node.app.config import SETTINGS, Config
from sapo_node.cli.commands.group import Group
from sapo_node.cli.commands.options import (
    NODE,
    PATH,
    SectionedCommand,
    as_json,
    database_of,
    option,
    settings,
    write_file,
)
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.groups.prompt import task_name
from sapo_node.rollouts.export import CARD, GROUPS, SWARM
from sapo_node.rollouts.export import export as export_groups
from sapo_node.rollouts.verify import MAX_FAILURES, Verification
from sapo_node.rollouts.verify import verify as verify_groups
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
    evidence_topic,
    limits,
    load_manifest,
    open_message,
    peer_id,
    prove_equivocation,
    render_manifest,
    rollouts_topics,
)
from sapo_protocol.files import read_bounded

_STARTER = SETTINGS["swarm"].default
HOLDS = "holds"


def show_proof(message: bytes, swarm: Manifest, *, json_output: bool) -> None:
    """Print what an evidence message proves in a swarm. Raises LocalError if it proves nothing."""
    proof = inspect_evidence(message, swarm)
    if json_output:
        say_json({**asdict(proof), "evidence": message.hex()})
        return
    say(f"{proof.peer} signed two contents for its round {proof.counter} of epoch {proof.epoch}:")
    for envelope_id in proof.envelope_ids:
        say(f"  {envelope_id}")


@click.command(cls=SectionedCommand)
@click.argument("file", type=PATH)
@option("--swarm", default=_STARTER, metavar="NAME|FILE", help="The swarm that the message was signed for.")
@option("--evidence", "is_evidence", is_flag=True, help="FILE is evidence of equivocation.")
@settings("state")
@as_json
def verify(config: Config, file: Path, *, swarm: str, is_evidence: bool, json_output: bool) -> None:
    """Check the rollout message in FILE.

    The command checks the signature, rebuilds each task, and computes each level. The exit code is 0 if every check
    passes, else 1.
    """
    if is_evidence:
        evidence = read_bounded(file, limits.MAX_EVIDENCE_BYTES, "evidence")
        show_proof(evidence, load_manifest(swarm), json_output=json_output)
        return
    data = read_bounded(file, limits.MAX_MESSAGE_BYTES, "message")
    manifest = load_manifest(swarm)
    finding = trio.run(partial(inspect, data, manifest, config.files_of(manifest.tasks)))
    if json_output:
        say_json(asdict(finding))
    else:
        Terminal().print(render(finding))
    sys.exit(0 if finding.holds else 1)


@click.command(cls=SectionedCommand)
@click.argument("swarm", default=_STARTER)
@option("--encoded", type=PATH, metavar="FILE", help="Write the encoded manifest to FILE.")
@as_json
def manifest(swarm: str, *, encoded: Path | None, json_output: bool) -> None:
    """Print the manifest, network id and topics of SWARM.

    SWARM is the name of a shipped manifest, or the path of a TOML file. The network id is the SHA-256 of the encoded
    manifest. Another implementation needs the encoded manifest to join.

    \b
    sapo-node manifest starter > mine.toml
    sapo-node manifest interop --encoded interop.cbor
    """  # noqa: D301 - click reads the backspace
    loaded = load_manifest(swarm)
    topics = {"rollouts": list(rollouts_topics(loaded)), "evidence": evidence_topic(loaded)}
    if encoded is not None:
        write_file(encoded, loaded.encoded)
    if json_output:
        say_json({"name": loaded.name, "network_id": loaded.network_id.hex(), "topics": topics})
        return
    say(f"# network id {loaded.network_id.hex()}")
    for topic in (*rollouts_topics(loaded), evidence_topic(loaded)):
        say(f"# topic {topic}")
    say(render_manifest(loaded).removesuffix("\n"))


@click.group(cls=Group, short_help="rollouts of peers as a data set")
def rollouts() -> None:
    """Export verified rollouts of peers as a data set. Verify such a data set again, and upload it.

    A node keeps rollouts for this if it is started with --archive. Parquet needs the extra `data`.

    \b
    sapo-node start --archive 1024
    sapo-node rollouts export my-rollouts
    sapo-node rollouts verify my-rollouts
    sapo-node rollouts push my-rollouts somebody/my-rollouts          after `hf auth login`
    """  # noqa: D301 - click reads the backspace


@rollouts.command(cls=SectionedCommand)
@click.argument("folder", type=PATH)
@settings(*NODE)
@as_json
def export(config: Config, *, folder: Path, json_output: bool) -> None:
    """Write the kept rollouts into the new folder FOLDER. The node may be running.

    FOLDER then holds `rollouts.parquet` with one row for each group, the manifest of the swarm, and a card. The texts
    were written by peers, and nobody has read them.
    """
    with database_of(config) as database:
        groups = export_groups(database, load_manifest(config.swarm), folder)
    if json_output:
        say_json({"groups": groups})
    else:
        say(f"wrote {groups:,} groups to {folder}")


@rollouts.command("verify", cls=SectionedCommand)
@click.argument("folder", type=PATH)
@option("--swarm", metavar="NAME|FILE", help="The swarm that the rollouts must be of. Without it: that of FOLDER.")
@settings("state")
@as_json
def verify_folder(config: Config, folder: Path, *, swarm: str | None, json_output: bool) -> None:
    """Verify signature, task and levels of each group in FOLDER.

    The exit code is 0 if every group holds, else 1. Give --swarm if you do not trust the manifest in FOLDER.
    """
    if not swarm and not (folder / SWARM).exists():
        raise LocalError(f"{folder} has no {SWARM}: give the folder of an export")
    manifest = load_manifest(swarm or str(folder / SWARM))
    found = trio.run(partial(_verified, folder, manifest, config.files_of(manifest.tasks)))
    if json_output:
        facts = {
            "groups": found.groups,
            "failures": dict(found.failures),
            "ended_early": found.ended_early,
            "network_id": manifest.network_id.hex(),
        }
        say_json(facts)
    else:
        say(f"{found.groups - found.failures.total():,} of {found.groups:,} groups hold, in {manifest.name}")
        for reason, count in found.failures.most_common():
            say(f"  {count:,}: {reason}")
        if found.ended_early:
            say(f"{MAX_FAILURES:,} groups do not hold: the rest was not read")
    sys.exit(0 if found.holds else 1)


@rollouts.command(cls=SectionedCommand)
@click.argument("folder", type=PATH)
@click.argument("repository", metavar="OWNER/NAME")
@as_json
def push(folder: Path, *, repository: str, json_output: bool) -> None:
    """Upload the export in FOLDER to the hub as a private data set.

    It uploads the three files of an export, and nothing else that may lie in FOLDER.
    The texts were written by unknown peers, and nobody has read them. The card says so. Think before you make the data
    set public. This command needs the extra `train`.
    """
    files = (GROUPS, SWARM, CARD)
    for name in files:
        if not (folder / name).is_file():
            raise LocalError(f"{folder} has no {name}: give the folder of an export")
        if (folder / name).is_symlink():  # somebody else may have made the folder, and the file may be any file of ours
            raise LocalError(f"{folder / name} is a link: give the folder of an export")
    # Imported here: it takes half a second, and needs a library that the other commands do not need.
    from sapo_node.learner.push import push as upload  # noqa: PLC0415

    address = upload(folder, repository, message="Exported by sapo-node", kind="dataset", only=files)
    if json_output:
        say_json({"pushed": address})
    else:
        say(f"uploaded to {address}; a new repository is private, and one that was public still is")


async def _verified(folder: Path, manifest: Manifest, files: Path | None) -> Verification:
    async with trio.open_nursery() as nursery:
        sandbox = Sandbox(manifest.tasks, files)
        await nursery.start(sandbox.run)
        await require_catalogue(manifest, sandbox)
        found = await verify_groups(folder, manifest, sandbox)
        nursery.cancel_scope.cancel()
    return found


@dataclass(frozen=True, slots=True)
class InspectedGroup:
    """The result of checking one group."""

    k: int
    dataset: str
    prompt: str
    verdict: str
    """`holds`, or the first check that failed."""
    claims: tuple[int, ...]
    levels: tuple[int, ...]
    """The level of each completion; empty where it could not be scored."""
    top: int
    """L, the level of a correct completion."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of checking one message."""

    refused_by: str
    """The layer that refuses the message; empty if no layer does."""
    reason: str
    issuer: str = ""
    epoch: int = 0
    counter: int = 0
    groups: tuple[InspectedGroup, ...] = ()

    @property
    def holds(self) -> bool:
        """True if no layer refuses the message and every claim of it is true."""
        return not self.refused_by and all(group.verdict == HOLDS for group in self.groups)


async def inspect(data: bytes, manifest: Manifest, files: Path | None = None) -> Inspection:
    """Open a message, rebuild its tasks and score its completions in the sandbox. Raises LocalError if this machine
    builds or scores the tasks of the swarm otherwise (VER-3).
    """
    try:
        rollout = open_message(data, manifest)
    except RemoteError as error:
        return Inspection(error.layer, str(error))
    async with trio.open_nursery() as nursery:
        sandbox = Sandbox(manifest.tasks, files)
        await nursery.start(sandbox.run)
        await require_catalogue(manifest, sandbox)
        groups = [await _inspect_group(rollout, k, manifest, sandbox) for k in range(len(rollout.header.groups))]
        nursery.cancel_scope.cancel()
    return Inspection(
        "", "", peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, tuple(groups)
    )


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


async def _inspect_group(rollout: Rollout, k: int, manifest: Manifest, sandbox: Sandbox) -> InspectedGroup:
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
    prompt, levels = (scored.prompt, scored.levels) if scored else ("", ())
    task = task_name(manifest, request.dataset, request.config)
    return InspectedGroup(k, task, prompt, verdict, group.claims, levels, request.levels)


def render(finding: Inspection) -> RenderableType:
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
            _told(group.claims, group.top),
            _told(group.levels, group.top),
            Text(group.verdict, style=style),
        )
    head = f"signed by {finding.issuer}, epoch {finding.epoch}, counter {finding.counter}"
    return Lines(Text(head, style="bold"), table)


def _told(levels: tuple[int, ...], top: int) -> str:
    """Return levels as `10010000` for bits, and as `4 0 2 of 4` for others."""
    return "".join(map(str, levels)) if top == 1 else f"{' '.join(map(str, levels))} of {top}"
