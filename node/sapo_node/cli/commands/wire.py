"""Check messages and manifests: `verify`, `manifest`."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import trio

from sapo_node.cli import inspection
from sapo_node.cli.commands.options import as_json, write_file
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_protocol import Manifest, evidence_topic, limits, load_manifest, render_manifest, rollouts_topics
from sapo_protocol.files import read_bounded


def show_proof(message: bytes, swarm: Manifest, *, json_output: bool) -> None:
    """Print what an evidence message proves in a swarm. Raises LocalError if it proves nothing."""
    proof = inspection.inspect_evidence(message, swarm)
    if json_output:
        say_json({**asdict(proof), "evidence": message.hex()})
        return
    say(f"{proof.peer} signed two contents for its round {proof.counter} of epoch {proof.epoch}:")
    for envelope_id in proof.envelope_ids:
        say(f"  {envelope_id}")


@click.command()
@click.argument("file", type=PATH)
@click.option("--swarm", default="starter", show_default=True, help="The swarm that the message was signed for.")
@click.option("--evidence", "is_evidence", is_flag=True, help="FILE is evidence of equivocation.")
@as_json
def verify(file: Path, *, swarm: str, is_evidence: bool, json_output: bool) -> None:
    """Check the rollout message in FILE. Verify its signature, rebuild its tasks, and compute every reward again.

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


@click.command()
@click.argument("swarm", default="starter")
@click.option("--encoded", type=PATH, metavar="FILE", help="Write the encoded manifest to FILE.")
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
