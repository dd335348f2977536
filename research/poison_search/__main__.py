"""`python -m research.poison_search`."""

import json
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress
from rich.table import Table

from research.poison_search.play import play
from research.poison_search.plot import draw
from research.poison_search.search import POPULATION, SPACES
from research.policies import prepare_all
from sapo_adversary.cli.played import to_output
from sapo_adversary.files import to_json, writable_folder, write_whole
from sapo_adversary.simulator.runs import default_policies
from sapo_node.cli.commands.options import as_json, run_command_line, stderr
from sapo_node.cli.terminal import Terminal
from sapo_node.groups.messages import FILTERS

_POLICY = "talkative"


@click.command()
@click.argument("attacks", nargs=-1, type=click.Choice(sorted(SPACES)), metavar="[ATTACK]...")
@click.option(
    "--tries",
    type=click.IntRange(2 * POPULATION, 100_000),
    default=200,
    show_default=True,
    help="Number of tries for each attack, about.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Random seed of the search.")
@to_output
@as_json
def poison_search(attacks: tuple[str, ...], *, tries: int, seed: int, output: Path, json_output: bool) -> None:
    """Search for poison that passes the filters of a node.

    It searches for the strongest version of each ATTACK, by default of all poison attacks. The attacker has the node's
    source, thresholds and weights. Each try trains a copy of the node's policy on a few rounds of poison. The search
    measures by how many nats the poisoned texts remain less probable than those of an able peer, and which share of
    their tokens the filters mask. The best try then meets each filter alone, and all filters but that one. Writes
    poison_search.json and .svg. Takes about ten minutes of one core for each attack.

    \b
    python -m research.poison_search                       all attacks, 200 tries each
    python -m research.poison_search poison-text --tries 400
    """  # noqa: D301 - click reads the backspace
    writable_folder(output)
    policies = default_policies()
    prepare_all([_POLICY], policies, stderr)
    names = attacks or tuple(SPACES)
    with Progress(console=stderr) as progress:
        bar = progress.add_task("attacks", total=len(names))
        found = play(names, policies / _POLICY, tries=tries, seed=seed, done=lambda _attack: progress.advance(bar))
    command = " ".join(["python -m research.poison_search", *attacks, f"--tries {tries} --seed {seed}"])
    summary = {"command": command, "attacks": found}
    path = output / "poison_search.json"
    write_whole(path, to_json(summary))
    draw(found, path.with_suffix(".svg"))
    if json_output:
        click.echo(json.dumps(summary))
    else:
        Terminal().print(_table(found))
        Terminal().print(_by_filter(found))
    stderr.print(f"written to {path}, {path.with_suffix('.svg')}", highlight=False, soft_wrap=True)


def _table(found: dict[str, Any]) -> Table:
    table = Table(
        title="nats by which poison stays less probable after eight rounds of it, and share masked",
        title_justify="left",
    )
    for column in ("attack", "at first", "plain, no filters", "plain, filters", "best, filters", "the best"):
        table.add_column(column, justify="left" if column in ("attack", "the best") else "right")
    for attack, each in found.items():
        plain, best = each["plain"], each["best"]["filters"]
        table.add_row(
            attack,
            f"{plain['filters']['distance']:.1f}",
            *map(_cell, (plain["no filters"], plain["filters"], best)),
            json.dumps(best["options"], default=list),
        )
    return table


def _by_filter(found: dict[str, Any]) -> Table:
    table = Table(title="the best try: this filter alone; all filters but this", title_justify="left")
    table.add_column("filter")
    for attack in found:
        table.add_column(attack, justify="right")
    for filter_name in FILTERS:
        sides = [(each["best"]["alone"][filter_name], each["best"]["left out"][filter_name]) for each in found.values()]
        table.add_row(filter_name, *("; ".join(map(_cell, each)) for each in sides))
    return table


def _cell(trial: dict[str, Any]) -> str:
    return f"{trial['left']:.1f} ({trial['kept_out']:.0%})"


if __name__ == "__main__":
    run_command_line(poison_search)
