"""Check what a node needs on this machine: `doctor`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import trio
from rich.text import Text

from sapo_node.app.bootstrap import bootstrap_of
from sapo_node.app.clock_repair import return_to_clock
from sapo_node.app.config import Config
from sapo_node.app.state import state_folder
from sapo_node.cli.commands.model_options import trained_model
from sapo_node.cli.commands.options import as_json, configured, networked, unlock
from sapo_node.cli.doctor import examine
from sapo_node.cli.findings import Finding, State
from sapo_node.cli.terminal import Terminal, say_json
from sapo_protocol import load_manifest


@click.command()
@configured
@networked
@trained_model
@click.option(
    "--repair", is_flag=True, help="First set a state back that is ahead of the clock. The clock must be right."
)
@as_json
def doctor(config: Config, *, repair: bool, json_output: bool, **options: Any) -> None:
    """Check everything that a node needs on this machine. Print what is wrong and what to do.

    Checks the key, state, disk, clock, ports, addresses, learner, model, sandbox and tasks. With --bootstrap it also
    checks whether that node answers. `doctor` changes nothing without --repair, and may then run beside a running node.
    The exit code is 1 if a check is bad.

    \b
    sapo-node doctor
    sapo-node doctor --model Qwen/Qwen2.5-0.5B-Instruct
    sapo-node doctor --bootstrap /ip4/192.0.2.7/tcp/4001/p2p/12D3KooW...
    """  # noqa: D301 - click reads the backspace
    passphrase = options.pop("passphrase")
    if repair:
        _repair(config, passphrase)
    findings: list[Finding] = []

    chosen = config.overridden(options)

    async def look() -> None:
        async for finding in examine(replace(chosen, bootstrap=bootstrap_of(chosen))):
            findings.append(finding)
            if not json_output:
                Terminal().print(_line(finding), soft_wrap=True)

    trio.run(look)
    if json_output:
        say_json([asdict(finding) for finding in findings])
    if any(finding.state is State.BAD for finding in findings):
        raise click.exceptions.Exit(1)


def _repair(config: Config, passphrase: str | None) -> None:
    manifest = load_manifest(config.swarm)
    peer = unlock(Path(config.key), passphrase).peer_id
    epoch = return_to_clock(state_folder(config.states, manifest, peer), manifest)
    Terminal(stderr=True).print(f"the state is in epoch {epoch} again; the node listens for two epochs and goes on")


_MARKS = {State.GOOD: ("✓", "green"), State.DOUBTFUL: ("!", "yellow"), State.BAD: ("✗", "bold red")}


def _line(finding: Finding) -> Text:
    mark, style = _MARKS[finding.state]
    line = Text.assemble((f"{mark} ", style), (f"{finding.name:10}", "bold"), finding.text)
    return line.append(f"\n{'':12}{finding.advice}", "dim") if finding.advice else line
