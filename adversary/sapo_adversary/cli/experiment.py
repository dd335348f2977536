"""Play, draw and list learning experiments: `experiment`."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from sapo_adversary.cli.played import on_device, warn_of_versions, with_engine, with_records
from sapo_adversary.experiments.experiment import Experiment, experiment_names, load_experiment
from sapo_adversary.experiments.plots import draw, draw_tasks, tasks_were_followed
from sapo_adversary.experiments.summary import summarise
from sapo_adversary.experiments.tables import header, markdown, rows
from sapo_adversary.files import read_results, results_in, to_json, writable_folder, write_whole
from sapo_adversary.simulator.engine import Engine
from sapo_adversary.simulator.runs import default_policies, load_record, play_all
from sapo_adversary.simulator.simulation import Device
from sapo_adversary.simulator.versions import versions_of
from sapo_node.cli.commands.options import PATH, as_json, stderr
from sapo_node.cli.terminal import Terminal, say

_SHOWN_COLUMNS = 6
"""Columns that fit into a terminal; `--markdown` and `--json` have all."""


@click.command()
@click.argument("name", required=False)
@click.argument("action", type=click.Choice(["run", "plot"]), default="run")
@click.option("--list", "only_list", is_flag=True, help="List the experiments of the package, and play nothing.")
@with_records
@click.option("--policies", type=PATH, help="Folder of the prepared policies.")
@with_engine
@click.option("--seeds", type=click.IntRange(1), help="Play only the first SEEDS seeds.")
@click.option("--arm", "only", multiple=True, help="Play only this arm; may be repeated.")
@on_device
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table in Markdown.")
@as_json
def experiment(
    name: str | None,
    action: str,
    *,
    only_list: bool,
    output: Path,
    records: Path,
    policies: Path | None,
    engine: Engine,
    seeds: int | None,
    only: tuple[str, ...],
    device: Device,
    as_markdown: bool,
    json_output: bool,
) -> None:
    """Run the learning experiment NAME, or draw its results.

    `plot` draws the results again. An experiment plays honest swarms of real nodes on virtual time. Its TOML file holds
    all of its numbers; NAME may be the path of your own file. The command writes the record of a run as soon as the run
    is finished. Stop it at any time: the same command continues. Writes NAME.json and NAME.svg (dashes become
    underscores), and NAME_tasks.svg where nodes differ and are followed by task.

    \b
    sapo-adversary experiment --list               the experiments of the package
    sapo-adversary experiment sapo-table           the table of the paper, with its controls
    sapo-adversary experiment sapo-table plot      draw it again from its JSON
    """  # noqa: D301 - click reads the backspace
    if only_list:
        _list(json_output=json_output)
        return
    if name is None:
        raise click.UsageError("Missing argument 'NAME'; `sapo-adversary experiment --list` lists the experiments")
    what = load_experiment(name)
    path = output / f"{what.name.replace('-', '_')}.json"
    if action == "plot":
        summary, pictures = _drawn_again(name, path)
    else:
        what = what.part(only, seeds).on(device)
        writable_folder(output)
        writable_folder(records)
        summary = _run(what, records, policies or default_policies(), engine)
        write_whole(path, to_json(summary))
        pictures = _draw(summary, path)
    if json_output:
        click.echo(json.dumps(summary))
        return
    if as_markdown:
        say(markdown(summary))
    else:
        Terminal().print(_table(summary))
    stderr.print(f"written to {', '.join(map(str, [path, *pictures]))}", highlight=False, soft_wrap=True)


def _list(*, json_output: bool) -> None:
    loaded = [load_experiment(name) for name in experiment_names()]
    if json_output:
        shown = ("name", "title", "question", "seeds", "reference")
        click.echo(
            json.dumps([{key: getattr(each, key) for key in shown} | {"arms": list(each.arms)} for each in loaded])
        )
        return
    table = Table("name", "question", "arms", "runs")
    for each in loaded:
        table.add_row(each.name, each.question, _arms(each), str(len(each.all_simulations())))
    Terminal().print(table)


def _drawn_again(name: str, path: Path) -> tuple[dict[str, Any], list[Path]]:
    """The results in a file, and the pictures that were drawn from them."""
    written_by = f"`sapo-adversary experiment {name}`"
    summary = read_results(path, written_by)
    with results_in(path, written_by):
        return summary, _draw(summary, path)


def _arms(what: Experiment) -> str:
    """The arms in short: those of a grid once, and then its axes."""
    names = dict.fromkeys(name.removesuffix(what.points[name]) for name in what.arms)
    axes = [f"{key} {', '.join(map(str, values))}" for key, values in what.table.get("grid", {}).items()]
    return "; ".join([", ".join(names), *axes])


def _run(what: Experiment, records: Path, policies: Path, engine: Engine) -> dict[str, Any]:
    wanted = what.all_simulations()
    play_all(wanted, records, policies=policies, engine=engine, console=stderr)
    found = {arm: [load_record(records, each) for each in what.simulations(arm)] for arm in what.arms}
    with results_in(records, "remove them, and new runs"):
        summary = summarise(what, found)
    versions = versions_of(record for runs in found.values() for record in runs)
    warn_of_versions([versions], records)
    return {**summary, "versions": versions}


def _draw(summary: dict[str, Any], path: Path) -> list[Path]:
    pictures = [path.with_suffix(".svg")]
    draw(summary, pictures[0])
    if tasks_were_followed(summary):
        pictures.append(path.with_name(f"{path.stem}_tasks.svg"))
        draw_tasks(summary, pictures[1])
    return pictures


def _table(summary: dict[str, Any]) -> Table:
    table = Table(title=summary["title"], title_justify="left")
    for place, column in enumerate(header(summary)[:_SHOWN_COLUMNS]):
        table.add_column(column, justify="right" if place else "left")
    for row in rows(summary):
        table.add_row(*row[:_SHOWN_COLUMNS])
    return table
