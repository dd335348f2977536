"""Show what a node did and its configuration: `status`, `why`, `config`."""

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import click
from rich.text import Text

from sapo_node.app.config import Config, load_config, render_config
from sapo_node.cli.commands.options import as_json, configured, database_of, view_of
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.tables import Screen
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.observability import explain
from sapo_node.observability.condition import condition_of
from sapo_node.observability.history import History
from sapo_node.observability.metrics import METRICS
from sapo_node.observability.overview import KINDS

_POLL_SECONDS = 0.5

_WORDS = "\b\nwhat was not trained on:\n" + "\n".join(f"  {kind:<16}{means}" for kind, means in KINDS.items())
_KEYS = f"{_WORDS}\n\n\b\nmetrics of a round:\n" + "\n".join(
    f"  {name:<16}{each.meaning}" for name, each in METRICS.items()
)


@click.command(epilog=_KEYS)
@configured
@click.option("--rounds", is_flag=True, help="Print the metrics of each round instead, one JSON object per line.")
@click.option("--follow", is_flag=True, help="As --rounds, then print each new round until Ctrl-C.")
@as_json
def status(config: Config, *, rounds: bool, follow: bool, json_output: bool) -> None:
    """Show how a node on this machine is and what it has done. The node may be running or stopped.

    \b
    sapo-node status --follow | jq .reward
    pandas.read_json("rounds.jsonl", lines=True)     after sapo-node status --rounds > rounds.jsonl
    """  # noqa: D301 - click reads the backspace
    if rounds or follow:
        with database_of(config) as database:
            _print_rounds(History(database), follow=follow)
        return
    view, runs = view_of(config)
    if json_output:
        condition = condition_of(view, runs=runs, now=time.time())
        say_json({"condition": condition.as_dict(), **view.as_dict(), "running": runs})
    else:
        terminal, started = Terminal(), view.session.get("started")
        since = Text(f"running since {explain.moment(started)}", "dim") if runs and started else None
        terminal.print(Screen(view, runs=runs, doing=since))
        for address in view.session.get("addresses", ()):
            terminal.print(address, style="dim", highlight=False, soft_wrap=True)  # to be copied


def _print_rounds(history: History, *, follow: bool) -> None:
    step = 0
    with suppress(KeyboardInterrupt):
        while True:
            for each in history.rounds_after(step):
                say_json(each)
                step = each["step"]
            if not follow:
                return
            time.sleep(_POLL_SECONDS)


@click.command(epilog=_WORDS)
@click.argument("envelope_id")
@configured
@as_json
def why(config: Config, *, envelope_id: str, json_output: bool) -> None:
    """Explain what the node did with each group of a rollout. It says why, and what would change that.

    ENVELOPE_ID is in hexadecimal, as the dashboard shows it. Its first 6 characters are enough. A node remembers its
    last 2,000 groups and 5,000 refusals.
    """
    with database_of(config) as database:
        _tell(explain.envelope(database, envelope_id), json_output=json_output)


def _tell(told: explain.Told, *, json_output: bool) -> None:
    if json_output:
        say_json(told.as_dict())
    else:
        say(told.text)


@click.command()
@click.argument("file", required=False, type=PATH)
@as_json
def config(file: Path | None, *, json_output: bool) -> None:
    """Print the configuration with the meaning of every key. It is the defaults, changed by FILE and the environment.

    The variable SAPO_NODE_MODEL sets the key `model`, and so on for each key. A list has commas between its values.
    SAPO_NODE_CONFIG names a file for every command without --config. The command line overrides the environment, and
    the environment overrides the file. A relative path in the file begins at the folder of the file.

    \b
    sapo-node config > node.toml
    sapo-node start --config node.toml
    """  # noqa: D301 - click reads the backspace
    loaded = load_config(file)
    if json_output:
        say_json(asdict(loaded))
    else:
        say(render_config(loaded).removesuffix("\n"))
