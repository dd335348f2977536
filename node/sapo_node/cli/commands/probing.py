"""Measure whether a model can learn from a swarm: `probe`."""

from functools import partial
from pathlib import Path
from typing import Any

import click
import trio
from rich.progress import Progress

from sapo_node.app.advice import too_long_for
from sapo_node.app.config import load_config
from sapo_node.cli.commands.model_options import asked_model, trained_model
from sapo_node.cli.commands.options import as_json, fetch_model, stderr
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.probe import Verdict, probe_model
from sapo_node.cli.probe_report import as_dict, print_probe
from sapo_node.cli.terminal import Terminal, say_json
from sapo_protocol import load_manifest


@click.command()
@click.option("--config", "config_file", type=PATH, help="A TOML file; see `sapo-node config`.")
@click.option("--swarm", help="Ask the tasks of this swarm.  [default: starter]")
@trained_model
@asked_model
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), help="As for `start`.  [default: auto]")
@click.option("--gradient-checkpointing", is_flag=True, default=None, help="As for `start`.")
@click.option("--prompts", type=click.IntRange(1), default=64, show_default=True, help="Held-out prompts per task.")
@as_json
def probe(config_file: Path | None, *, prompts: int, json_output: bool, **options: Any) -> None:
    """Measure whether a model can learn from a swarm.

    A node learns from a group of completions of one prompt only if some are correct and some are not: then the group
    is informative. `probe` loads the model as `start` would, asks held-out prompts of each task, and prints for each:

    \b
    base rate     share of correct completions, with its 95 % interval
    informative   share of informative groups; a task with 10 % or more can be learnt
    cut           share of completions cut at --max-tokens, or at the bytes that the swarm keeps

    It prints the memory that training needs and how long a round takes, says what to change if no task can be learnt,
    and ends with the command that starts a node. It keeps nothing. The exit code is 1 if no task can be learnt.

    16 prompts of 6 tasks take a model of 135 M parameters about 4 minutes of processor time, and 64 prompts 4 times
    that.

    \b
    sapo-node probe --model smollm2 --swarm smollm2-easy --prompts 16
    sapo-node probe --model smollm2 --swarm smollm2-easy --examples 0      what worked examples change
    """  # noqa: D301 - click reads the backspace
    config = load_config(config_file).overridden(options)
    manifest = load_manifest(config.swarm)
    fetch_model(config)
    if too_long := too_long_for(config, manifest.max_completion_bytes):
        stderr.print(too_long, highlight=False, soft_wrap=True)
    with Progress(console=stderr, transient=True, disable=json_output) as progress:
        bar = progress.add_task("loading the model", total=prompts * len(manifest.tasks))

        def advance(task: str, done: int) -> None:
            progress.update(bar, description=f"asking {task}", advance=done)

        found, ready = trio.run(partial(probe_model, config, manifest, prompts=prompts, progress=advance))
    file = str(config_file) if config_file else None
    if json_output:
        say_json(as_dict(found, ready, config, file))
    else:
        print_probe(Terminal(), found, ready, config, file)
    if not found.of(Verdict.LEARNABLE):
        raise click.exceptions.Exit(1)
