"""Show many nodes at once: `fleet`."""

from dataclasses import asdict

import click
import trio
from rich.table import Table
from rich.text import Text

from sapo_node.cli.commands.options import as_json
from sapo_node.cli.progress import figure
from sapo_node.cli.tables import short
from sapo_node.cli.terminal import Terminal, say_json
from sapo_node.observability.fleet import Summary, ask_all, place_of
from sapo_protocol.printable import excerpt

_HEADINGS = ("page", "node", "round", "ago", "reward", "held-out", "peers", "external", "doing")
_SHOWN_CHARACTERS = 60
"""Of a text of the node."""
_WIDEST = 500
"""Characters in a line of the table at most. A narrower terminal wraps the line, so that no address is cut."""


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@as_json
def fleet(urls: tuple[str, ...], *, json_output: bool) -> None:
    """Show many nodes in one table. URL is the address of a node's page, with the token if the page asks for one.

    Reads only. The exit status is 1 if a node does not answer. `ago` is the time since the last round, `reward` the
    mean of the last 20 rounds, `external` the share of the trained tokens that came from others.

    \b
    sapo-node fleet http://127.0.0.1:8080/ "http://192.0.2.7:8080/?token=TOKEN"
    watch sapo-node fleet $(cat pages.txt)
    """  # noqa: D301 - click reads the backspace
    # A list: two addresses of one host may differ in the token alone.
    asked = [(place_of(url), answer) for url, answer in trio.run(ask_all, urls).items()]
    if json_output:
        for place, answer in asked:
            facts = asdict(answer) if isinstance(answer, Summary) else {"error": answer}
            say_json({"page": place, **facts})
    else:
        terminal = Terminal(width=_WIDEST)
        if answered := [(place, answer) for place, answer in asked if isinstance(answer, Summary)]:
            terminal.print(_table(answered))
        for place, answer in asked:
            if isinstance(answer, str):
                terminal.print(Text(f"{place}: {answer}", "red"))
    if any(isinstance(answer, str) for _, answer in asked):
        raise click.exceptions.Exit(1)


def _table(asked: list[tuple[str, Summary]]) -> Table:
    table = Table(*_HEADINGS, box=None, pad_edge=False, header_style="dim")
    for place, answer in asked:
        # Foreign text is short and printable before the table measures how wide it is.
        table.add_row(place, *(excerpt(cell, _SHOWN_CHARACTERS) for cell in _cells(answer)))
    return table


def _cells(node: Summary) -> tuple[str, ...]:
    return (
        short(node.peer_id),
        str(node.rounds),
        figure(node.idle, ".0f") + (" s" if node.idle is not None else ""),
        figure(node.reward, ".3f"),
        figure(node.held_out, ".3f"),
        str(node.connected),
        figure(node.external, ".0%"),
        node.doing,
    )
