"""Evaluate a policy, and export it: `eval`, `export`."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio
from rich.progress import Progress
from rich.table import Table

from sapo_node.app.config import Config
from sapo_node.app.learner_options import learner_options
from sapo_node.app.model_card import card_facts
from sapo_node.app.state import reading
from sapo_node.cli.commands.model_options import asked_model, trained_model
from sapo_node.cli.commands.options import as_json, configured, fetch_model, policy_of, stderr
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.evaluation import evaluate
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.groups.model_name import is_hub_name
from sapo_node.groups.stats import LEVEL, Interval
from sapo_node.learner.export_client import ExportRequest, run_export
from sapo_node.training.evaluation import HeldOut
from sapo_protocol import LocalError, load_manifest

_BAR = 20
"""Characters from 0 to 1 in the bars of `eval`."""


@click.command("eval")
@configured
@trained_model
@asked_model
@click.option("--base", is_flag=True, help="Evaluate the model alone, before any training.")
@click.option("--prompts", type=click.IntRange(1), default=64, show_default=True, help="Held-out prompts per task.")
@click.option("--samples", type=click.IntRange(1, 64), default=1, show_default=True, help="Completions per prompt.")
@as_json
def eval_(config: Config, *, base: bool, prompts: int, samples: int, json_output: bool, **options: Any) -> None:
    """Measure pass@1 of a node on held-out prompts. Print it by task and as the mean over tasks, with 95 % confidence
    intervals.

    `eval` takes the averaged weights of the newest checkpoint. The node may be running. It remembers which model it
    trains, and how it is asked, so no option for the model is needed. With --base, `eval` takes the model before any
    training, and needs no node: give the same --model and --examples as for `start`.

    No round of the swarm assigns the seeds of these prompts. The prompts are the same for every node. Completions are
    sampled at temperature 1. More prompts narrow the intervals most; more samples per prompt reduce the sampling noise.

    \b
    sapo-node eval
    sapo-node eval --base --model smollm2 --swarm smollm2-easy
    """  # noqa: D301 - click reads the backspace
    manifest = load_manifest(config.swarm)
    config, folder = (config.overridden(options), None) if base else policy_of(config, options)
    fetch_model(config)
    with Progress(console=stderr, transient=True, disable=json_output) as progress:
        bar = progress.add_task("starting the learner", total=prompts * len(manifest.tasks))

        def advance(task: str, done: int) -> None:
            progress.update(bar, description=f"asking {task}", advance=done)

        measured = partial(evaluate, config, manifest, folder, prompts=prompts, samples=samples, progress=advance)
        result, step = trio.run(measured)
    if json_output:
        say_json({**result.as_dict(), "prompts": prompts, "step": step})
    else:
        Terminal().print(_table(result, prompts, step))


@click.command()
@click.argument("output", type=PATH)
@configured
@trained_model
@click.option("--best", is_flag=True, help="Take the weights of the best evaluation on held-out prompts.")
@click.option(
    "--merge/--adapter-only",
    default=True,
    help="Merge LoRA adapters into the model, or write the adapters alone.  [default: merge]",
)
@click.option("--push", "repository", metavar="OWNER/NAME", help="Upload the folder to the hub, as a private model.")
@as_json
def export(
    config: Config,
    output: Path,
    *,
    best: bool,
    merge: bool,
    repository: str | None,
    json_output: bool,
    **options: Any,
) -> None:
    """Write what a node has learnt as a Hugging Face folder.

    OUTPUT is a new folder, which AutoTokenizer and AutoModelForCausalLM load. README.md in it is the model card.

    `export` takes the averaged weights of the newest checkpoint. With --best it takes those of the evaluation with the
    highest held-out pass@1, which may be of an earlier round. The node may be running; it writes a checkpoint every ten
    rounds, and evaluates every fifty. The node remembers which model it trains, so no option for the model is needed.
    Give --model if a model folder has moved.

    \b
    sapo-node export learnt
    sapo-node export adapters --adapter-only
    sapo-node export learnt --push somebody/learnt          after `hf auth login`
    """  # noqa: D301 - click reads the backspace
    manifest = load_manifest(config.swarm)
    config, folder = policy_of(config, options)
    config = replace(config, device="cpu")
    with reading(folder) as database:
        facts = card_facts(config, manifest, database)
    if repository and not merge and not is_hub_name(config.model):
        raise LocalError(
            f"nobody else could use these adapters: their base model, {config.model_label}, is a folder of this "
            "machine; leave out --adapter-only to upload the whole model, or leave out --push"
        )
    asked = learner_options(config, manifest, folder)
    # Imported here: it takes half a second, which `eval` does not need to wait.
    from sapo_node.learner.folder import require_new_folder  # noqa: PLC0415

    require_new_folder(output)
    exported = run_export(ExportRequest(asked, str(output), facts, best=best, adapter_only=not merge))
    address = _push(output, repository, exported.step) if repository else None
    if json_output:
        say_json({**asdict(exported), "output": str(output), "pushed": address})
        return
    say(f"{'best weights, ' if best else ''}step {exported.step} written to {output}")
    if address:
        say(f"uploaded to {address}; a new repository is private, and one that was public still is")
    if best and not exported.step:
        stderr.print(
            "these are the weights before any training: no evaluation was better yet, or none came after the first. "
            "Without --best, `export` takes the newest checkpoint.",
            soft_wrap=True,
        )
    if exported.note:
        stderr.print(exported.note, highlight=False, soft_wrap=True)


def _push(folder: Path, repository: str, step: int) -> str:
    # Imported here: it takes half a second, which an export to a folder alone does not need to wait.
    from sapo_node.learner.push import push  # noqa: PLC0415

    return push(folder, repository, message=f"Round {step}, exported by sapo-node")


def _table(result: HeldOut, prompts: int, step: int) -> Table:
    asked = f"{prompts} prompts per task" + (f", {result.samples} completions each" if result.samples > 1 else "")
    table = Table(title=f"held-out, {asked}, after {step} rounds", title_justify="left")
    table.add_column("task")
    table.add_column("pass@1", justify="right")
    table.add_column(f"{LEVEL:.0%} interval", justify="right")
    table.add_column(f"0{1:>{_BAR - 1}}")
    for task, interval in result.per_task.items():
        table.add_row(task, *_cells(interval))
    table.add_section()
    table.add_row("mean of tasks", *_cells(result.pass_at_1), style="bold")
    return table


def _cells(interval: Interval) -> tuple[str, str, str]:
    """Return the figures of an interval, and a bar from 0 to 1 that shows it."""
    low, point, high = (round(share * (_BAR - 1)) for share in (interval.low, interval.point, interval.high))
    bar = "".join("●" if at == point else "─" if low <= at <= high else "·" for at in range(_BAR))
    return f"{interval.point:.3f}", f"{interval.low:.3f} to {interval.high:.3f}", bar
