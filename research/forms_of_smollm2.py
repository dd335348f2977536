"""Counts the forms in which SmolLM2-135M writes its answers, and what two versions of the scorers give them.

    python -m research.forms_of_smollm2 sample texts.jsonl
    python -m research.forms_of_smollm2 score texts.jsonl --before FOLDER

`sample` asks held-out prompts as a node does, with worked examples and its limit of tokens, and keeps the texts. It
loads the model: `sapo-node model fetch smollm2` first. `score` rebuilds each task and scores its texts, here and by the
scorers of FOLDER, a checkout of another commit.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import click
import trio

from research.answer_forms.measure import Case, scored_here, scored_in
from sapo_adversary.files import to_json
from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.cli.commands.options import PATH, run_command_line
from sapo_node.cli.evaluation import read_only_learner
from sapo_node.groups.prompt import task_name
from sapo_node.tasks import build_task
from sapo_node.tasks.answer import answer_span, extract_answer
from sapo_node.tasks.wrappers import stages
from sapo_node.training.evaluation import heldout_request
from sapo_node.verification.catalogue import build_examples
from sapo_protocol import load_manifest

SWARMS = ("smollm2-easy", "paper-nine")

AT_ONCE = 5
"""Prompts that the model answers in one batch."""


@click.group()
def forms() -> None:
    """Count the forms of a model's answers."""


@forms.command()
@click.argument("texts", type=PATH)
@click.option("--swarm", "swarms", multiple=True, default=SWARMS, show_default=True)
@click.option("--prompts", type=click.IntRange(1, 1_000), default=40, show_default=True, help="Prompts of each task.")
@click.option(
    "--examples", type=click.IntRange(0, 8), default=3, show_default=True, help="Worked examples before each prompt."
)
def sample(texts: Path, *, swarms: tuple[str, ...], prompts: int, examples: int) -> None:
    """Sample G completions of each prompt, and add one JSON line per prompt to a file."""
    with texts.open("a", encoding="utf-8") as lines:
        for swarm in swarms:
            trio.run(_sample, swarm, prompts, examples, lines)


async def _sample(swarm: str, prompts: int, shown: int, lines: TextIO) -> None:
    manifest, config = load_manifest(swarm), Config(model="smollm2", swarm=swarm)
    recipe = recipe_of(config)
    async with read_only_learner(config, manifest, None) as (learner, sandbox):
        examples = await build_examples(manifest, sandbox, shown)
        for spec in manifest.tasks:
            name = task_name(manifest, spec.dataset, spec.config)
            for first in range(0, prompts, AT_ONCE):
                numbers = range(first, min(first + AT_ONCE, prompts))
                chunk = [heldout_request(manifest, spec, number) for number in numbers]
                asked = [build_task(spec.dataset, spec.config, request.seed).prompt for request in chunk]
                groups = await learner.generate(
                    [examples.prompt(name, prompt) for prompt in asked],
                    completions=manifest.completions,
                    max_tokens=recipe.max_tokens,
                    seed=chunk[0].seed % 2**31,
                )
                for request, group in zip(chunk, groups, strict=True):
                    row = {"swarm": swarm, "examples": shown, "dataset": spec.dataset, "seed": request.seed}
                    row["texts"] = [each.text for each in group]
                    lines.write(json.dumps(row) + "\n")
                lines.flush()


@forms.command()
@click.argument("texts", type=PATH)
@click.option("--before", type=PATH, required=True, help="A checkout of the commit to compare with.")
def score(texts: Path, *, before: Path) -> None:
    """Print the forms and the shares accepted as JSON."""
    rows = [json.loads(line) for line in texts.read_text("utf-8").splitlines()]
    configs = {(swarm, spec.dataset): spec.config for swarm in SWARMS for spec in load_manifest(swarm).tasks}
    tasks = [build_task(row["dataset"], configs[row["swarm"], row["dataset"]], row["seed"]) for row in rows]
    listed = [Case(task, "", text) for row, task in zip(rows, tasks, strict=True) for text in row["texts"]]
    versions = {"before": scored_in(before, listed), "after": scored_here(listed)}
    found: dict[str, Any] = {"command": "python -m research.forms_of_smollm2 score TEXTS --before FOLDER"}
    for swarm, examples in sorted({(row["swarm"], row["examples"]) for row in rows}):
        chosen = {"swarm": swarm, "examples": examples}
        asked = found[f"{swarm}, {examples} examples"] = {"all": _figures(rows, versions, chosen)}
        for dataset in sorted({row["dataset"] for row in rows if row.items() >= chosen.items()}):
            asked[dataset] = _figures(rows, versions, {**chosen, "dataset": dataset})
    click.echo(to_json(found), nl=False)


def _figures(
    rows: Sequence[dict[str, Any]], versions: dict[str, tuple[int, list[int]]], chosen: dict[str, Any]
) -> dict[str, Any]:
    """Return the figures of the rows that have the chosen swarm and dataset."""
    forms, groups = Counter[str](), dict[str, list[list[int]]]()
    place = 0
    for row in rows:
        after = place + len(row["texts"])
        if row.items() >= chosen.items():
            forms.update(form_of(text) for text in row["texts"])
            for name, (_, scores) in versions.items():
                groups.setdefault(name, []).append(scores[place:after])
        place = after
    completions = sum(forms.values())
    return {
        "prompts": len(groups["after"]),
        "completions": completions,
        "forms": dict(forms.most_common()),
        **{
            name: {
                "accepted": round(sum(map(sum, found)) / completions, 4),
                "informative": round(sum(0 < sum(group) < len(group) for group in found) / len(found), 4),
            }
            for name, found in groups.items()
        },
    }


def form_of(text: str) -> str:
    """Return the name of the form of a completion: how its answer begins and ends, if it has a wrapper."""
    answer = extract_answer(text)
    if answer is None:
        return "no answer tags"
    tags = "" if text[(answer_span(text) or (0, 0))[0] - len("<answer>") :].startswith("<answer>") else "other tags, "
    found = list(stages(answer))
    if len(found) == 1:
        return f"{tags}no wrapper"
    begin, _, end = answer.partition(found[-1])
    return f"{tags}{begin[:20]}X{end[-20:]}"


if __name__ == "__main__":
    run_command_line(forms)
