"""Draw the page of a matrix or a run again: `report`."""

from pathlib import Path

import click

from sapo_adversary.cli.played import DEFAULT_OUTPUT, WRITTEN_BY
from sapo_adversary.files import read_results, results_in, writable_folder, write_whole
from sapo_adversary.scenarios.page import page, pictures
from sapo_adversary.scenarios.table import markdown
from sapo_node.cli.commands.options import PATH
from sapo_node.cli.terminal import say
from sapo_protocol import LocalError
from sapo_protocol.printable import is_printable


@click.command()
@click.argument("file", type=PATH, required=False)
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print the table of threats that docs/trust/threats.md shows."
)
@click.option(
    "--pictures",
    "target",
    type=PATH,
    help="Write the figure of each scenario into this folder as SVG, in place of the page.",
)
@click.option("--only", multiple=True, metavar="SCENARIO", help="Only the figure of this scenario; may be repeated.")
def report(file: Path | None, *, as_markdown: bool, target: Path | None, only: tuple[str, ...]) -> None:
    """Draw the page of a matrix or a run again. FILE is its JSON; the default is results/matrix.json.

    Prints the path of the page.

    \b
    sapo-adversary report results/false-claim.json       after `sapo-adversary run false-claim`
    """  # noqa: D301 - click reads the backspace
    file = file or _of_matrix()
    summary = read_results(file, WRITTEN_BY)
    with results_in(file, WRITTEN_BY):
        drawn = pictures(summary) if target else {}
        text = markdown(summary) if as_markdown else page(summary) if not target else ""
    if as_markdown:
        say(text.removesuffix("\n"))  # somebody else may have written the results
    elif target:
        _write_pictures(file, drawn, target, only)
    else:
        written = file.with_suffix(".html")
        write_whole(written, text)
        say(str(written))


def _of_matrix() -> Path:
    """Return the results of the matrix. Raises LocalError with what to type instead if there are none."""
    matrix = DEFAULT_OUTPUT / "matrix.json"
    if matrix.exists():
        return matrix
    # An experiment writes JSON without a page.
    runs = [path for path in DEFAULT_OUTPUT.glob("*.json") if path.with_suffix(".html").exists()]
    newest = max(runs, key=lambda path: path.stat().st_mtime, default=DEFAULT_OUTPUT / "SCENARIO.json")
    raise LocalError(
        f"there is no {matrix}, which `sapo-adversary matrix` writes; for a run give its JSON: sapo-adversary report "
        f"{newest}"
    )


def _write_pictures(file: Path, drawn: dict[str, str], target: Path, only: tuple[str, ...]) -> None:
    if unknown := set(only) - set(drawn):
        raise LocalError(f"{file} has no {', '.join(sorted(unknown))}; it has {', '.join(drawn)}")
    for name in drawn:
        if not name or Path(name).name != name or not is_printable(name):
            raise LocalError(f"{file} has a scenario {name!r}, which cannot be the name of a file")
    writable_folder(target)
    for name in only or drawn:
        write_whole(target / f"{name}.svg", drawn[name])
        say(str(target / f"{name}.svg"))
