"""Prepare a node on this machine: `init`, `doctor`."""

import os
import shlex
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sapo_node.app.advice import EASY_SWARM, too_long_for
from sapo_node.app.bootstrap import bootstrap_of
from sapo_node.app.config import SETTINGS, Config
from sapo_node.app.recipe import recipe_of
from sapo_node.app.state import return_to_clock, state_folder
from sapo_node.cli.commands.options import (
    PATH,
    START,
    SectionedCommand,
    as_json,
    as_options,
    fetch_model,
    given,
    option,
    own_identity,
    require_startable,
    settings,
    stderr,
    unlock,
    unlocking,
    write_file,
)
from sapo_node.cli.doctor import Finding, State, examine
from sapo_node.cli.probe import Difficulty, Probe, advice_of, as_dict, print_probe, probe_model
from sapo_node.cli.setup import begin_state, facts, fitted, look, outlook, rendered, require_learnable
from sapo_node.cli.terminal import Terminal, say_json
from sapo_node.groups.messages import Ready
from sapo_protocol import LocalError, Manifest, load_manifest


@click.command(cls=SectionedCommand)
@click.argument("file", default="node.toml", type=PATH)
@settings(*START)
@unlocking
@option("--dry-run", is_flag=True, help="Measure and print the settings, and write nothing.")
@option("--force", is_flag=True, help="Overwrite FILE.")
@option("--no-probe", is_flag=True, help="Load the model, but measure nothing.")
@option("--prompts", type=click.IntRange(1), default=8, help="Held-out prompts per task of the probe.")
@as_json
def init(
    config: Config,
    file: Path,
    *,
    dry_run: bool,
    force: bool,
    no_probe: bool,
    prompts: int,
    passphrase: str | None,
    json_output: bool,
) -> None:
    """Find the settings of a new node, and write them to FILE. If there is no key, `init` makes one.

    At a terminal, `init` asks for the model, the swarm and the address of a peer, unless options give them. It checks
    the machine as `doctor` does, but dials no peer. Then it probes the model: it asks held-out prompts of each task,
    and prints for each task:

    \b
    base rate     share of correct completions before any training, with its 95 % interval
    informative   share of groups whose completions earn different levels, from which a node learns;
                  a task with 10 % or more can be learnt
    cut           share of completions cut at --max-tokens, or at the bytes that the swarm keeps

    It then writes every setting with its meaning, and prints what to expect: memory, seconds per round, and when the
    node can train on the first external group. If 4 local groups take more than a tenth of an epoch, it chooses fewer.

    If the model can learn no task, `init` says what may help, writes nothing, and ends with exit code 1. 16 prompts of
    6 tasks take a model of 135 M parameters about 4 minutes of processor time.

    \b
    sapo-node init
    sapo-node init --model smollm2                 after `sapo-node model fetch smollm2`
    sapo-node init --dry-run --prompts 64 --model smollm2 --swarm smollm2-easy
    sapo-node init relay.toml --no-train --listen /ip4/0.0.0.0/tcp/4001
    """  # noqa: D301 - click reads the backspace
    if not dry_run:
        _require_place(file, force=force)
    config = _chosen(config, asks=sys.stdin.isatty() and not json_output)
    manifest = load_manifest(config.swarm)
    _require_usable(config, manifest)
    measures = config.train and not no_probe
    stderr.print("looking at this machine", highlight=False)
    # A probe loads the model itself.
    findings = trio.run(look, replace(config, train=config.train and not measures))
    if not config.train:
        findings = [finding for finding in findings if finding.name != "learner"]  # a relay needs no torch
    probe, expected, advice = None, None, list[str]()
    if measures:
        probe, ready = _probed(config, manifest, prompts, quiet=json_output)
        advice = advice_of(probe, config)
        _tell(probe, advice, json_output=json_output)
        require_learnable(probe, config)
    config = fitted(config, manifest, probe, local=given().get("local"))
    if probe:
        expected = outlook(config, probe, ready)
    told = facts(config, findings, expected)
    command = shlex.join(["sapo-node", "start", *(as_options(config) if dry_run else ["--config", str(file)])])
    if not dry_run:
        _make_key(config, manifest, passphrase)
        placed = config if file.parent == Path() else config.in_folder(Path.cwd())
        write_file(file, rendered(placed, told, command).encode())
    if json_output:
        figures = asdict(expected) | {"contact_seconds": expected.contact_seconds} if expected else None
        say_json(
            {
                "file": None if dry_run else str(file),
                "found": told,
                "probe": as_dict(probe) if probe else None,
                "advice": advice,
                "settings": asdict(recipe_of(config)) | {"local": config.local},
                "expected": figures,
                "command": command,
            }
        )
    else:
        done = "Nothing was written." if dry_run else f"Written to {file}."
        _print_facts(told, findings, f"{done} Start the node with:\n  {command}")


def _chosen(config: Config, *, asks: bool) -> Config:
    """Return the configuration with the answers of the operator, or with a swarm that fits the model if `init` asks
    nothing.
    """
    if asks:
        return config.overridden(_answers(config))
    return config if "swarm" in given() else replace(config, swarm=_swarm_for(config.model, config.swarm))


def _require_usable(config: Config, manifest: Manifest) -> None:
    """Raise LocalError, before anything is measured, if no node could start with the configuration."""
    _require_text(config)
    require_startable(config)
    if config.train:
        fetch_model(config)
        if too_long := too_long_for(config, manifest.max_completion_bytes):
            stderr.print(too_long, highlight=False, soft_wrap=True)


def _make_key(config: Config, manifest: Manifest, passphrase: str | None) -> None:
    """Make the key of the node, unless there is one, and a state by which `start` knows that the key is new."""
    if not os.path.lexists(config.key):
        identity, _ = own_identity(config, passphrase)
        begin_state(config, manifest, identity)


def _require_place(file: Path, *, force: bool) -> None:
    """Raise LocalError, before anything is measured, if the configuration could not be written."""
    if file.is_dir() or (os.path.lexists(file) and not file.is_file()):
        raise LocalError(f"{file} is a folder, a link to nothing, or no plain file: give the path of a new file")
    if file.exists() and not force:
        raise LocalError(f"{file} exists: give another path, or overwrite it with --force")
    if not file.parent.is_dir():
        raise LocalError(f"{file.parent} is not a folder: make it first, or give another path")


def _require_text(config: Config) -> None:
    """Raise LocalError if a value has bytes that are not UTF-8: TOML cannot express them."""
    for name, value in asdict(config).items():
        for text in value if isinstance(value, tuple) else [value]:
            try:
                str(text).encode()
            except UnicodeEncodeError as error:
                raise LocalError(f"{name} is {text!r}, which is not UTF-8 text: give another name") from error


def _swarm_for(model: str, swarm: str) -> str:
    """Return the swarm, but the one with easier tasks in place of the default if the model is not in the package."""
    return EASY_SWARM if model != "seed" and swarm == SETTINGS["swarm"].default else swarm


def _answers(config: Config) -> dict[str, Any]:
    """Ask for the settings that matter most, unless options give them. Enter takes the default."""
    found: dict[str, Any] = {}
    model = config.model
    if config.train and "model" not in given():
        text = "Model: seed, smollm2, a folder, a GGUF file or owner/name"
        found["model"] = model = click.prompt(text, model, err=True)
    if "swarm" not in given():
        found["swarm"] = click.prompt("Swarm", _swarm_for(model, config.swarm), err=True)
    if "bootstrap" not in given():
        address = click.prompt("Address of a node elsewhere (Enter: none)", "", show_default=False, err=True)
        found["bootstrap"] = tuple(address.split())
    return found


def _probed(config: Config, manifest: Manifest, prompts: int, *, quiet: bool) -> tuple[Probe, Ready]:
    with Progress(console=stderr, transient=True, disable=quiet) as progress:
        bar = progress.add_task("loading the model", total=prompts * len(manifest.tasks))

        def advance(task: str, done: int) -> None:
            progress.update(bar, description=f"asking {task}", advance=done)

        return trio.run(partial(probe_model, config, manifest, prompts=prompts, progress=advance))


def _tell(probe: Probe, advice: list[str], *, json_output: bool) -> None:
    """Print the figures of a probe. In JSON they are part of the last line, so here only if `init` ends with them."""
    if not json_output:
        print_probe(Terminal(), probe, advice)
    elif not probe.of(Difficulty.LEARNABLE):
        say_json({"file": None, "probe": as_dict(probe), "advice": advice})


def _print_facts(told: dict[str, str], findings: list[Finding], end: str) -> None:
    """Print what was found and what to expect, then what is not good on this machine, then what to do next."""
    terminal = Terminal()
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, text in told.items():
        table.add_row(Text(name, "bold"), Text(text))
    terminal.print(table)
    for finding in findings:
        if finding.state is not State.GOOD:
            terminal.print(Text(f"! {finding.name}: {finding.text}; {finding.advice}", "yellow"), soft_wrap=True)
    terminal.print(f"\n{end}", highlight=False, soft_wrap=True)


@click.command(cls=SectionedCommand)
@settings(*START)
@unlocking
@option("--repair", is_flag=True, help="First set a state back that is ahead of the clock. The clock must be right.")
@as_json
def doctor(config: Config, *, repair: bool, passphrase: str | None, json_output: bool) -> None:
    """Check everything that a node needs on this machine. Print what is wrong and what to do.

    It takes the options of `start`. It checks the key, state, disk, clock, ports, addresses, learner, model, sandbox
    and tasks. With --bootstrap it also checks whether that node answers. `doctor` changes nothing without --repair, and
    may then run beside a running node. The exit code is 1 if a check is bad.

    \b
    sapo-node doctor
    sapo-node doctor --model Qwen/Qwen2.5-0.5B-Instruct
    sapo-node doctor --bootstrap /ip4/192.0.2.7/tcp/4001/p2p/12D3KooW...
    """  # noqa: D301 - click reads the backspace
    if repair:
        _repair(config, passphrase)
    findings: list[Finding] = []

    async def look() -> None:
        async for finding in examine(
            replace(config, bootstrap=bootstrap_of(config.bootstrap, load_manifest(config.swarm)))
        ):
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
    stderr.print(f"the state is in epoch {epoch} again; the node listens for two epochs and goes on", highlight=False)


_MARKS = {State.GOOD: ("✓", "green"), State.DOUBTFUL: ("!", "yellow"), State.BAD: ("✗", "bold red")}


def _line(finding: Finding) -> Text:
    mark, style = _MARKS[finding.state]
    line = Text.assemble((f"{mark} ", style), (f"{finding.name:10}", "bold"), finding.text)
    return line.append(f"\n{'':12}{finding.advice}", "dim") if finding.advice else line
