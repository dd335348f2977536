"""`python -m research.datasets`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import sapo_node.tasks
from research.datasets.measure import HASH_SEEDS, digests, hashes, measure, version_of
from research.datasets.page import page
from sapo_adversary.files import to_json, write_whole
from sapo_node.cli.commands.options import PATH, run_command_line, stderr
from sapo_node.tasks import DATASETS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
RESULTS, PAGE = REFERENCE / "datasets.json", REFERENCE / "datasets.md"
HASHES = Path(sapo_node.tasks.__file__).with_name("item_hashes.json")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--python", "pythons", type=PATH, multiple=True, help="Python that builds the items too; may be repeated."
)
@click.option("--smollm2", type=PATH, help="JSON file with the share of correct completions for each dataset.")
def datasets(names: tuple[str, ...], *, pythons: tuple[Path, ...], smollm2: Path | None) -> None:
    """Measure the datasets NAME..., or those that are not measured yet, and write their page.

    It writes docs/reference/datasets.json after each dataset, so an interrupted run continues where it stopped. It also
    writes the hashes of the items that nodes compare at their start. Datasets that are no longer in the catalogue are
    taken out. Each --python needs reasoning-gym and the packages of the wire protocol.

    \b
    python -m research.datasets                                      measure what is missing
    python -m research.datasets maze --python ~/3.12/bin/python ...  measure one again
    """  # noqa: D301 - click reads the backspace
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {"pythons": [], "datasets": {}}
    rows = {name: row for name, row in results["datasets"].items() if name in DATASETS and name not in names}
    missing = sorted(DATASETS.keys() - rows.keys())
    results["datasets"] = rows
    same = _same(missing, pythons) if missing and pythons else {}
    for number, name in enumerate(missing, 1):
        stderr.print(f"{number} of {len(missing)}: {name}")
        rows[name] = {**measure(name), "items": hashes(name), "same": same.get(name, False)}
        results["pythons"] = sorted({*results["pythons"], *map(version_of, pythons)})
        write_whole(RESULTS, to_json(_sorted(results)))
    if smollm2:
        for name, rate in json.loads(smollm2.read_text("utf-8")).items():
            rows[name]["smollm2"] = rate
    write_whole(RESULTS, to_json(_sorted(results)))
    write_whole(HASHES, json.dumps({name: row["items"] for name, row in sorted(rows.items())}, indent=1) + "\n")
    write_whole(PAGE, page(results))


def _sorted(results: dict[str, Any]) -> dict[str, Any]:
    return {**results, "datasets": dict(sorted(results["datasets"].items()))}


def _same(names: Sequence[str], pythons: Sequence[Path]) -> dict[str, bool]:
    """Return for each dataset whether all Pythons build the same items under all hash seeds."""
    built = []
    for python in pythons:
        for seed in HASH_SEEDS:
            stderr.print(f"{version_of(python)} with hash seed {seed}")
            built.append(digests(python, seed, names))
    return {name: len({digest[name] for digest in built}) == 1 for name in names}


if __name__ == "__main__":
    run_command_line(datasets)
