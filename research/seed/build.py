"""Builds the seed policy: teach the careful way, bury it under guesses, write a small Hugging Face model folder."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn
from transformers.utils.logging import disable_progress_bar

from research.seed import tokenizer as own_tokenizer
from research.seed.recipe import Lessons, Recipe
from research.seed.teach import IGNORED, Chunk, chunks, new_model
from sapo_node.learner.device import computes_bfloat16

CORPUS_STEPS = 30
SAVE_EVERY = 200
REPORT_EVERY = 25

Progress = Callable[[str], None]


def build(out: Path, configs: Mapping[str, Mapping[str, Any]], recipe: Recipe, progress: Progress) -> None:
    """Write the policy to `out`. An interrupted build goes on where it last saved, and ends in the same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    lessons = Lessons(recipe, configs)
    tokenizer = own_tokenizer.build(*corpus(lessons, recipe), recipe.vocabulary)
    torch.manual_seed(recipe.seed)
    model = new_model(recipe, *own_tokenizer.end_and_pad(tokenizer))
    progress(f"{sum(value.numel() for value in model.parameters()):,} parameters")
    work = out / "unfinished"
    for step, loss in teach(model, lessons, tokenizer, recipe, work):
        if step % REPORT_EVERY == 0 or step == recipe.steps:
            phase = "teaching" if step <= recipe.teach_steps else "burying"
            progress(f"{phase}: step {step} of {recipe.steps}, loss {loss:.4f}")
    write(model, tokenizer, out)
    meta = {
        "command": "python -m research.seed build",
        "recipe": asdict(recipe),
        "lessons": lessons.digest(),
        "tasks": {name: dict(config) for name, config in configs.items()},
    }
    (out / "meta.json").write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(work, ignore_errors=True)


def write(model: Any, tokenizer: Tokenizer, out: Path, template: str = own_tokenizer.CHAT_TEMPLATE) -> None:
    """Write the weights and the tokenizer as a Hugging Face model folder."""
    own_tokenizer.save(tokenizer, out, template)
    disable_progress_bar()
    # Half precision halves the package; sampling differs by less than its noise.
    model.to(torch.float16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    (out / "generation_config.json").unlink(missing_ok=True)


def corpus(lessons: Lessons, recipe: Recipe) -> tuple[list[str], list[str]]:
    """Return the prompts and the texts of lessons of both phases, to make a tokenizer from."""
    steps = [*range(CORPUS_STEPS), *range(recipe.teach_steps, recipe.teach_steps + CORPUS_STEPS)]
    drawn = [lesson for step in steps for lesson in lessons.step(step)]
    return [f"{lesson.task.prompt.strip()}\n" for lesson in drawn], [lesson.text for lesson in drawn]


def teach(
    model: nn.Module, lessons: Lessons, tokenizer: Tokenizer, recipe: Recipe, work: Path
) -> Iterator[tuple[int, float]]:
    """Take every step that is not yet taken; yields each step's number, from 1, and its loss.

    What it needs to go on after an interruption is kept in the folder `work`.
    """
    optimizer = _optimizer(model)
    done = _resume(model, optimizer, recipe, work)
    for step in range(done, recipe.steps):
        if step == recipe.teach_steps:
            optimizer = _optimizer(model)
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(recipe, step)
        loss = _step(model, optimizer, chunks(lessons.step(step), tokenizer))
        if (step + 1) % SAVE_EVERY == 0:
            _save(model, optimizer, recipe, work, step + 1)
        yield step + 1, loss


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: list[Chunk]) -> float:
    """Take one step on the mean loss over all target tokens of the batch."""
    tokens = sum(int((chunk.targets != IGNORED).sum()) for chunk in batch)
    total = 0.0
    optimizer.zero_grad()
    for chunk in batch:
        with torch.autocast("cpu", torch.bfloat16, enabled=computes_bfloat16(torch.device("cpu"))):
            logits = model(input_ids=chunk.ids, use_cache=False).logits
        loss = nn.functional.cross_entropy(
            logits.float().flatten(0, 1), chunk.targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        (loss / tokens).backward()  # type: ignore[no-untyped-call]
        total += loss.item() / tokens
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def _optimizer(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.01)


def _learning_rate(recipe: Recipe, step: int) -> float:
    """Warm up, then a cosine down to a twentieth, in each of the two phases."""
    burying = step >= recipe.teach_steps
    peak = recipe.bury_lr if burying else recipe.teach_lr
    place, length = (step - recipe.teach_steps, recipe.bury_steps) if burying else (step, recipe.teach_steps)
    warm = min(1.0, (place + 1) / min(100, length / 10))
    return peak * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * place / length)))


def _save(model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, work: Path, step: int) -> None:
    work.mkdir(exist_ok=True)
    tensors = {}
    for name, value in model.named_parameters():
        tensors[f"model/{name}"] = value.detach()
        tensors |= {f"{key}/{name}": held for key, held in optimizer.state[value].items()}
    new = work / "state.new"
    save_file(tensors, new, metadata={"recipe": recipe.digest(), "step": str(step)})
    new.replace(work / "state.safetensors")


def _resume(model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, work: Path) -> int:
    """Return the number of steps already taken, their outcome restored; 0 for another recipe's leftovers."""
    path = work / "state.safetensors"
    if not path.is_file():
        return 0
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    if metadata["recipe"] != recipe.digest():
        return 0
    tensors = load_file(path)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(tensors[f"model/{name}"])
            optimizer.state[value] = {key: tensors[f"{key}/{name}"] for key in ("step", "exp_avg", "exp_avg_sq")}
    return int(metadata["step"])
