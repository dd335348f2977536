"""Check messages, print manifests, and pass on rollouts as data: `verify`, `manifest`, `rollouts`."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import trio

from sapo_node.app.config import SETTINGS, Config
from sapo_node.cli import inspection
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
from sapo_node.rollouts.export import export as export_groups
from sapo_node.rollouts.table import CARD, GROUPS, SWARM
from sapo_node.rollouts.verify import MAX_FAILURES, Verification
from sapo_node.rollouts.verify import verify as verify_groups
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import (
    LocalError,
    Manifest,
    evidence_topic,
    limits,
    load_manifest,
    render_manifest,
    rollouts_topics,
)
from sapo_protocol.files import read_bounded

_STARTER = SETTINGS["swarm"].default


def show_proof(message: bytes, swarm: Manifest, *, json_output: bool) -> None:
    """Print what an evidence message proves in a swarm. Raises LocalError if it proves nothing."""
    proof = inspection.inspect_evidence(message, swarm)
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
@as_json
def verify(file: Path, *, swarm: str, is_evidence: bool, json_output: bool) -> None:
    """Check the rollout message in FILE. It verifies the signature, rebuilds the tasks, and computes each reward again.

    The exit code is 0 if every check passes, else 1.
    """
    if is_evidence:
        evidence = read_bounded(file, limits.MAX_EVIDENCE_BYTES, "evidence")
        show_proof(evidence, load_manifest(swarm), json_output=json_output)
        return
    data = read_bounded(file, limits.MAX_MESSAGE_BYTES, "message")
    finding = trio.run(partial(inspection.inspect, data, load_manifest(swarm)))
    if json_output:
        say_json(asdict(finding))
    else:
        Terminal().print(inspection.render(finding))
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


@click.group(cls=Group)
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
@as_json
def verify_folder(folder: Path, *, swarm: str | None, json_output: bool) -> None:
    """Verify signature, task and rewards of each group in FOLDER.

    The exit code is 0 if every group holds, else 1. Give --swarm if you do not trust the manifest in FOLDER.
    """
    if not swarm and not (folder / SWARM).exists():
        raise LocalError(f"{folder} has no {SWARM}: give the folder of an export")
    manifest = load_manifest(swarm or str(folder / SWARM))
    found = trio.run(partial(_verified, folder, manifest))
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


async def _verified(folder: Path, manifest: Manifest) -> Verification:
    async with trio.open_nursery() as nursery:
        sandbox = Sandbox()
        await nursery.start(sandbox.run)
        await require_catalogue(manifest, sandbox)
        found = await verify_groups(folder, manifest, sandbox)
        nursery.cancel_scope.cancel()
    return found
