"""Check messages, manifests and implementations of the wire: `verify`, `manifest`, `conformance`."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import trio
from rich.progress import Progress

from sapo_node.cli import inspection
from sapo_node.cli.commands.options import as_json, stderr, tell, write_file
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.conformance.cases import load_cases
from sapo_node.conformance.driver import Implementation
from sapo_node.conformance.report import Report, run_cases
from sapo_node.conformance.report import render as render_conformance
from sapo_protocol import LocalError, Manifest, evidence_topic, limits, load_manifest, render_manifest, rollouts_topics
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


@click.command()
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGUMENT ...]]")
@click.option(
    "--rule", default="", metavar="RULE", help="Run only the vectors of one rule (ENC-3) or of one section (ENC)."
)
@as_json
def conformance(command: tuple[str, ...], *, rule: str, json_output: bool) -> None:
    """Test an implementation of the wire with the vectors.

    The implementation may be in any language. COMMAND starts it. It reads one request per line, {"kind": "header",
    "input": {...}}, and writes one response per line, {"verdict": "accept", "output": {...}} or {"verdict": "header"}.
    The contract is in spec/conformance/README.md. Without COMMAND the node tests itself.

    \b
    sapo-node conformance
    sapo-node conformance -- node spec/conformance/js/cli.mjs
    sapo-node conformance --rule ENV -- ./my-implementation --quiet

    The exit code is 0 if all verdicts agree, 1 if any differs, and 2 if the implementation could not be run.
    """  # noqa: D301 - click reads the backspace
    command = command or (sys.executable, "-P", "-m", "sapo_node.conformance")
    quiet = json_output or not stderr.is_terminal
    hear = partial(stderr.print, soft_wrap=True, highlight=False)
    try:
        cases = load_cases(rule)
        with (
            Progress(console=stderr, transient=True, disable=quiet) as progress,
            Implementation(command, hear=hear) as reader,
        ):
            bar = progress.add_task("asking", total=len(cases))
            report = Report(command, run_cases(cases, reader, progress=partial(progress.advance, bar)))
    except LocalError as error:
        tell(error)
        sys.exit(2)
    if json_output:
        say_json(report.as_dict())
    else:
        Terminal().print(render_conformance(report), soft_wrap=True)
    sys.exit(0 if report.all_agree else 1)
