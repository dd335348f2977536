"""Write the configuration of a new node: `init`."""

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

from sapo_node.app.advice import EASY_SWARM
from sapo_node.app.config import Config, load_config
from sapo_node.app.places import placed
from sapo_node.cli.commands.model_options import asked_model, trained_model
from sapo_node.cli.commands.options import (
    as_json,
    fetch_model,
    networked,
    own_identity,
    require_startable,
    stderr,
    write_file,
)
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.commands.sections import SectionedCommand
from sapo_node.cli.findings import Finding, State
from sapo_node.cli.probe import Probe, probe_model
from sapo_node.cli.setup import begin_state, facts, fitted, look, outlook, rendered, require_learnable
from sapo_node.cli.terminal import Terminal, say_json
from sapo_node.groups.messages import Ready
from sapo_protocol import LocalError, Manifest, load_manifest


@click.command(cls=SectionedCommand)
@click.argument("file", default="node.toml", type=PATH)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--no-probe", is_flag=True, help="Load the model, but measure nothing.")
@click.option(
    "--prompts", type=click.IntRange(1), default=8, show_default=True, help="Held-out prompts per task of the probe."
)
@click.option("--swarm", help="The swarm to join.  [default: starter; smollm2-easy with another --model]")
@click.option("--key", help="The key file of the node.  [default: node.key]")
@click.option("--state", help="The folder under which each swarm and key keeps its state.")
@networked
@click.option("--local", type=int, metavar="I", help="Local groups per round.  [default: 4, fewer if that is slow]")
@trained_model
@asked_model
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), help="As for `start`.  [default: auto]")
@click.option("--gradient-checkpointing", is_flag=True, default=None, help="As for `start`.")
@click.option("--no-train", "train", flag_value=False, type=bool, default=None, help="Only verify and relay.")
@as_json
def init(
    file: Path,
    *,
    force: bool,
    no_probe: bool,
    prompts: int,
    passphrase: str | None,
    json_output: bool,
    **options: Any,
) -> None:
    """Write the configuration of a new node to FILE. If there is no key, `init` makes one.

    At a terminal, `init` asks for the model, the swarm and the address of a peer, unless options give them. It checks
    the machine as `doctor` does, and measures the model as `probe` does. It then writes every setting with its meaning,
    and prints what to expect: base pass rate, memory, seconds per round, and when the node can train on the first
    external group. If 4 local groups take more than a tenth of an epoch, it chooses fewer.

    `init` dials no peer. It downloads a model only if --model names one on the hub. If the model can learn no task, it
    writes nothing and says what may help. The node keeps the settings of the model that `init` wrote.

    \b
    sapo-node init
    sapo-node init --model smollm2                 after `sapo-node fetch smollm2`
    sapo-node init relay.toml --no-train --listen /ip4/0.0.0.0/tcp/4001
    """  # noqa: D301 - click reads the backspace
    _require_place(file, force=force)
    defaults = load_config(None)
    if sys.stdin.isatty() and not json_output:
        options |= _answers(options, defaults)
    options["swarm"] = options["swarm"] or _swarm_for(options["model"], defaults)
    config = defaults.overridden(options)
    _require_text(config)
    manifest = load_manifest(config.swarm)
    require_startable(config)
    if config.train:
        fetch_model(config)
    stderr.print("looking at this machine", highlight=False)
    measures = config.train and not no_probe
    # A probe loads the model itself.
    findings = trio.run(look, replace(config, train=config.train and not measures))
    if not config.train:
        findings = [finding for finding in findings if finding.name != "learner"]  # a relay needs no torch
    expected = None
    if measures:
        probe, ready = _probed(config, manifest, prompts, quiet=json_output)
        require_learnable(probe, config)
        config = fitted(config, manifest, probe, local=options["local"])
        expected = outlook(config, probe, ready)
    else:
        config = fitted(config, manifest, None, local=options["local"])
    told = facts(config, findings, expected)
    if not os.path.lexists(config.key):
        identity, _ = own_identity(config, passphrase)
        begin_state(config, manifest, identity)
    command = shlex.join(["sapo-node", "start", "--config", str(file)])
    write_file(file, rendered(_placed_for(file, config), told, command).encode())
    if json_output:
        figures = asdict(expected) | {"contact_seconds": expected.contact_seconds} if expected else None
        say_json({"file": str(file), "found": told, "expected": figures, "command": command})
    else:
        _print(told, findings, f"Written to {file}. Start the node with:\n  {command}")


def _placed_for(file: Path, config: Config) -> Config:
    """Return the configuration to write to a file. A path in the file begins at its folder, and one in an option in the
    working directory.
    """
    return config if file.parent == Path() else replace(config, **placed(asdict(config), Path.cwd()))


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


def _swarm_for(model: str | None, defaults: Config) -> str:
    """Return the swarm of the defaults; for another model than the one in the package the swarm with easier tasks."""
    is_seed = (model or defaults.model) == "seed"
    return defaults.swarm if is_seed or defaults.swarm != Config().swarm else EASY_SWARM


def _answers(options: dict[str, Any], defaults: Config) -> dict[str, Any]:
    """Ask for what matters most and no option gave. Enter takes the default."""
    found: dict[str, Any] = {}
    model = options["model"]
    if options["train"] is not False and model is None:
        text = "Model: seed, smollm2, a folder, a GGUF file or owner/name"
        found["model"] = model = click.prompt(text, defaults.model, err=True)
    if options["swarm"] is None:
        found["swarm"] = click.prompt("Swarm", _swarm_for(model, defaults), err=True)
    if not options["bootstrap"]:
        address = click.prompt("Address of a node elsewhere (Enter: none)", "", show_default=False, err=True)
        found["bootstrap"] = tuple(address.split())
    return found


def _probed(config: Config, manifest: Manifest, prompts: int, *, quiet: bool) -> tuple[Probe, Ready]:
    with Progress(console=stderr, transient=True, disable=quiet) as progress:
        bar = progress.add_task("loading the model", total=prompts * len(manifest.tasks))

        def advance(task: str, done: int) -> None:
            progress.update(bar, description=f"asking {task}", advance=done)

        return trio.run(partial(probe_model, config, manifest, prompts=prompts, progress=advance))


def _print(told: dict[str, str], findings: list[Finding], end: str) -> None:
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
