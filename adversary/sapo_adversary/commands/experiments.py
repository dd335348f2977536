"""Play and draw learning experiments: `experiment`, `experiments`."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from sapo_node.cli.commands.options import as_json, stderr

from sapo_adversary.commands.engines import with_engine
from sapo_adversary.commands.policies import prepare_for
from sapo_adversary.commands.results import folder, with_records
from sapo_adversary.experiments.experiment import Experiment, experiment_names, load_experiment
from sapo_adversary.experiments.plots import draw, draw_tasks, tasks_were_followed
from sapo_adversary.experiments.summary import summarise
from sapo_adversary.experiments.tables import header, markdown, rows
from sapo_adversary.policies import DEFAULT_FOLDER
from sapo_adversary.records import read_results, results_in, to_json, writable_folder, write_whole
from sapo_adversary.simulator.engine import Engine
from sapo_adversary.simulator.runs import load_record, play_all

_SHOWN_COLUMNS = 6
"""What fits into a terminal; `--markdown` and `--json` have the rest."""
_PACKAGES = ("sapo-node", "torch", "transformers", "reasoning-gym")


@click.command()
@click.argument("name")
@click.argument("action", type=click.Choice(["run", "plot"]), default="run")
@with_records
@click.option("--policies", type=folder, help="Where prepared policies lie; missing ones are built first.")
@with_engine
@click.option("--seeds", type=click.IntRange(1), help="Only the first so many seeds.")
@click.option("--arm", "only", multiple=True, help="Only this arm; may be repeated.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table in Markdown.")
@as_json
def experiment(
    name: str,
    action: str,
    *,
    output: Path,
    records: Path,
    policies: Path | None,
    engine: Engine,
    seeds: int | None,
    only: tuple[str, ...],
    as_markdown: bool,
    json_output: bool,
) -> None:
    """Run the learning experiment NAME, or draw its results with `plot`.

    Honest swarms of real nodes on virtual time; every number of an experiment is in its TOML file, and NAME may be the
    path of your own. A run is kept as soon as it is finished: stop at any time, the same command goes on. Writes
    NAME.json and NAME.svg (dashes become underscores), and NAME_tasks.svg where nodes differ and are followed by task.

    \b
    sapo-adversary experiments                     what there is
    sapo-adversary experiment sapo-table           the table of the paper, with its controls
    sapo-adversary experiment sapo-table plot      draw it again from its JSON
    """  # noqa: D301 - click reads the backspace
    what = load_experiment(name)
    path = output / f"{what.name.replace('-', '_')}.json"
    if action == "plot":
        written_by = f"`sapo-adversary experiment {name}`"
        summary = read_results(path, written_by)
        with results_in(path, written_by):
            pictures = _draw(summary, path)
    else:
        what = what.part(only, seeds)
        writable_folder(output)
        writable_folder(records)
        summary = _run(what, records, policies or DEFAULT_FOLDER, engine)
        write_whole(path, to_json(summary))
        pictures = _draw(summary, path)
    if json_output:
        click.echo(json.dumps(summary))
        return
    if as_markdown:
        click.echo(markdown(summary))
    else:
        Console().print(_table(summary))
    stderr.print(f"written to {', '.join(map(str, [path, *pictures]))}", highlight=False, soft_wrap=True)


@click.command()
@as_json
def experiments(*, json_output: bool) -> None:
    """List the learning experiments."""
    loaded = [load_experiment(name) for name in experiment_names()]
    if json_output:
        shown = ("name", "title", "question", "seeds", "reference")
        click.echo(
            json.dumps([{key: getattr(each, key) for key in shown} | {"arms": list(each.arms)} for each in loaded])
        )
        return
    table = Table("name", "question", "arms", "runs")
    for each in loaded:
        table.add_row(each.name, each.question, _arms(each), str(len(each.all_scenarios())))
    Console().print(table)


def _arms(what: Experiment) -> str:
    """The arms in short: those of a grid once, and then its axes."""
    names = dict.fromkeys(name.removesuffix(what.points[name]) for name in what.arms)
    axes = [f"{key} {', '.join(map(str, values))}" for key, values in what.table.get("grid", {}).items()]
    return "; ".join([", ".join(names), *axes])


def _run(what: Experiment, records: Path, policies: Path, engine: Engine) -> dict[str, Any]:
    wanted = what.all_scenarios()
    prepare_for(wanted, policies, stderr)
    play_all(wanted, records, policies=policies, engine=engine, console=stderr)
    found = {arm: [load_record(records, each) for each in what.scenarios(arm)] for arm in what.arms}
    with results_in(records, "remove them, and new runs"):
        summary = summarise(what, found)
    return {**summary, "versions": {package: version(package) for package in _PACKAGES}}


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
