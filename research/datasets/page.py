"""Writes the page of the datasets from what was measured."""

import json
from collections.abc import Mapping
from typing import Any

from research.datasets.measure import COMPARED, HASH_SEEDS, ITEMS
from research.datasets.notes import LEFT_OUT, NOTES

COLUMNS = (
    "dataset",
    "an answer is correct if it is, or has",
    "graded",
    "defaults",
    "best constant",
    "earns",
    "build ms, mean and most",
    "score ms, mean",
    "prompt characters, median and most",
    "accepted as it is: ours, library",
    "in all forms: ours, library",
    "same",
    "SmolLM2",
)

HEAD = f"""# Datasets of reasoning-gym

A manifest may name these datasets of [reasoning-gym](https://github.com/open-thought/reasoning-gym) 0.1.25. The scorers
are those of this project; they never call the library's. A graded dataset gives shares of an item, so a manifest may
set `levels` above 1. `defaults` are the values of its configuration that this project changes. The table is measured
with them: {ITEMS} items for what the best constant answer earns on average and for processor time on one core,
{COMPARED} items for the share of honest answers that is accepted, ours and by the library's own scorer. An honest
answer is the reference in seven forms: as it is, in a box, dollars, bold, backticks, a fence or a sentence. `same` says
that prompt and answer of {COMPARED} items are equal on VERSIONS, each with PYTHONHASHSEED
{", ".join(map(str, HASH_SEEDS))}. `SmolLM2` is the share of 64 completions of
SmolLM2-135M-Instruct that is correct before any training, to held-out prompts behind up to three worked examples, where
it was measured. `python -m research.datasets` measures what is missing and writes this page.

| {" | ".join(COLUMNS)} |
{"|---" * len(COLUMNS)}|
"""


def page(results: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    rows = results["datasets"]
    text = HEAD.replace("VERSIONS", "Python " + ", ".join(results["pythons"]))
    text += "".join(_line(name, row) for name, row in sorted(rows.items()))
    remarks = "".join(f"- `{name}`: {note}\n" for name, note in sorted(NOTES.items()))
    left_out = "".join(f"- `{name}`: {reason}.\n" for name, reason in sorted(LEFT_OUT.items()))
    return f"{text}\n## Remarks\n\n{remarks}\n## Left out\n\n{left_out}"


def _line(name: str, row: Mapping[str, Any]) -> str:
    defaults = ", ".join(f"{key} = {value}" for key, value in row["defaults"].items())
    constant = json.dumps(row["constant"], ensure_ascii=False)[1:-1].replace("|", "\\|").replace("`", "'")
    base = row.get("smollm2")
    cells = (
        f"`{name}`",
        row["correct"].replace("|", "\\|"),
        "yes" if row["graded"] else "",
        defaults,
        f"`{constant[:24]}`" if constant else "",
        f"{row['constant_earns']:.3f}",
        " ".join(f"{value:g}" for value in row["build_ms"]),
        f"{row['score_ms'][0]:g}",
        " ".join(map(str, row["prompt_characters"])),
        f"{row['forms_accepted']['as it is']:.0%} {row['forms_accepted_by_library']['as it is']:.0%}",
        f"{_mean(row['forms_accepted']):.0%} {_mean(row['forms_accepted_by_library']):.0%}",
        "yes" if row["same"] else "no",
        "" if base is None else f"{base:.1%}",
    )
    return f"| {' | '.join(cells)} |\n"


def _mean(shares: Mapping[str, float]) -> float:
    return sum(shares.values()) / len(shares)
