"""Shows what `sapo-node probe` measured, says which tasks can be learnt, and what to do."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sapo_node.app.advice import MANY_CUT, for_too_easy, for_too_hard
from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.cli.probe import LEARNABLE, Probe, TaskProbe, Verdict
from sapo_node.groups.messages import Ready
from sapo_node.groups.model_name import trained_part
from sapo_node.groups.stats import LEVEL
from sapo_node.sampling.mix import AUTO

_STYLES = {Verdict.LEARNABLE: "green", Verdict.TOO_HARD: "red", Verdict.TOO_EASY: "yellow"}


def start_command(config: Config, config_file: str | None) -> str:
    """Return the command that starts a node with the settings that were probed."""
    recipe, default = recipe_of(config), Config()
    words = ["sapo-node", "start", *(["--config", config_file] if config_file else [])]
    words += ["--model", config.model, "--swarm", config.swarm]
    words += ["--lora", str(recipe.lora), *(["--lora-layers", str(config.lora_layers)] if config.lora_layers else [])]
    words += ["--dtype", recipe.dtype, "--examples", str(recipe.examples), "--max-tokens", str(recipe.max_tokens)]
    words += ["--learning-rate", f"{recipe.learning_rate:g}"]
    if config.thinking:
        words.append("--thinking")
    if config.device != default.device:
        words += ["--device", config.device]
    if config.gradient_checkpointing:
        words.append("--gradient-checkpointing")
    return shlex.join(words)


def advice_of(probe: Probe, config: Config) -> list[str]:
    """Return what may help: if no task can be learnt, if many completions are cut, or if the prompts were too few."""
    advice = []
    hard = for_too_hard(config, cut=probe.cut, over_bytes=probe.over_bytes, max_bytes=probe.max_bytes)
    if not probe.of(Verdict.LEARNABLE):
        advice = hard if probe.of(Verdict.TOO_HARD) else for_too_easy()
    elif probe.cut >= MANY_CUT:
        advice = hard[:1]
    if unsure := [task.dataset for task in probe.tasks if task.is_unsure]:
        advice.append(f"ask more --prompts than {probe.prompts}, which are too few to be sure of {', '.join(unsure)}")
    return advice


def as_dict(probe: Probe, ready: Ready, config: Config, config_file: str | None) -> dict[str, Any]:
    """For JSON."""
    return {
        "model": ready.model,
        "parameters": ready.parameters,
        "device": ready.device,
        "memory": ready.memory,
        "swarm": config.swarm,
        "settings": asdict(recipe_of(config)) | {"lora_layers": config.lora_layers},
        "prompts": probe.prompts,
        "completions": probe.completions,
        "level": LEVEL,
        "tasks": {
            task.dataset: {
                **{name: asdict(getattr(task, name)) for name in ("base_rate", "informative")},
                "cut": task.cut,
                "over_bytes": task.over_bytes,
                "verdict": task.verdict,
            }
            for task in probe.tasks
        },
        "round": {**asdict(probe.round), "tokens_per_second": probe.round.tokens_per_second},
        "learnable": probe.of(Verdict.LEARNABLE),
        "advice": advice_of(probe, config),
        "command": start_command(config, config_file),
    }


def print_probe(console: Console, probe: Probe, ready: Ready, config: Config, config_file: str | None) -> None:
    """Print the figures, the verdict, and what to do."""
    console.print(_facts(probe, ready, config))
    console.print()
    console.print(_table(probe))
    console.print()
    learnable = probe.of(Verdict.LEARNABLE)
    console.print(
        f"{len(learnable) or 'none'} of {len(probe.tasks)} tasks can be learnt. A task can be learnt if at least "
        f"{LEARNABLE:.0%} of its groups are informative, that is, have correct and incorrect completions.",
        highlight=False,
    )
    if advice := advice_of(probe, config):
        console.print("What may help, with another probe after each:", highlight=False)
        for each in advice:
            console.print(f"  - {each}", highlight=False)
    if learnable:
        console.print("To start a node with these settings:")
        # One line, so that it can be copied.
        console.print(f"  {start_command(config, config_file)}", highlight=False, soft_wrap=True)


def _facts(probe: Probe, ready: Ready, config: Config) -> Table:
    timed = probe.round
    facts = {
        "model": f"{ready.model}, {ready.parameters / 1e6:.1f} M parameters, on {ready.device}",
        "settings": _settings(config),
        "memory": (ready.memory or "not estimated for the model in the package").removeprefix("memory: "),
        "speed": f"{timed.tokens_per_second:.0f} tokens/s; a round of {timed.groups} local groups takes "
        f"{timed.generate_seconds:.1f} s to generate, and {timed.train_seconds:.1f} s to train if all are informative",
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, fact in facts.items():
        table.add_row(Text(name, "bold"), Text(fact))
    return table


def _settings(config: Config) -> str:
    recipe = recipe_of(config)
    trained = trained_part(recipe.lora, config.lora_layers)
    dtype = "bfloat16 if the device computes in it" if recipe.dtype == AUTO else recipe.dtype
    return (
        f"{trained}, learning rate {recipe.learning_rate:g}, {dtype}, {recipe.examples} worked examples, "
        f"at most {recipe.max_tokens} tokens"
    )


def _table(probe: Probe) -> Table:
    title = f"held-out, {probe.prompts} prompts per task, {probe.completions} completions each"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("task")
    for name in ("base rate", f"{LEVEL:.0%}", "informative", "cut"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for task in probe.tasks:
        table.add_row(task.dataset, *_cells(task), task.verdict, style=_STYLES[task.verdict])
    return table


def _cells(task: TaskProbe) -> Sequence[str]:
    rate = task.base_rate
    return f"{rate.point:.3f}", f"{rate.low:.2f} to {rate.high:.2f}", f"{task.informative.point:.0%}", f"{task.cut:.0%}"
