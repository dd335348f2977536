"""What several commands share: their options, how they find a node's key and state, and how they tell of an error."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sapo_node.app.config import Config, load_config
from sapo_node.app.state import StateFolder, read_database, state_folder
from sapo_node.cli.terminal import Terminal
from sapo_node.groups.messages import is_hub_name
from sapo_node.learner.client import require_installed
from sapo_node.storage.database import Database
from sapo_node.storage.keys import PASSPHRASE_VARIABLE, Identity, PassphraseNeeded, create_key, load_key
from sapo_protocol import LocalError, SapoError, load_manifest
from sapo_protocol.files import NoSuchFile

Command = Callable[..., None]

stderr = Terminal(stderr=True)

as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON for scripts.")


def configured(command: Command) -> Command:
    """Add --config, --swarm, --key and --state, and hand the command one Config."""

    @click.option(
        "--config", "config_file", type=click.Path(path_type=Path), help="A TOML file; see `sapo-node config`."
    )
    @click.option("--swarm", help="The swarm: a shipped manifest or the path of one.  [default: starter]")
    @click.option("--key", help="The key file of the node.  [default: node.key]")
    @click.option("--state", help="The folder that keeps state.")
    @wraps(command)
    def wrapped(config_file: Path | None, swarm: str, key: str, state: str, **options: Any) -> None:
        config = load_config(config_file).overridden({"swarm": swarm, "key": key, "state": state})
        command(config=config, **options)

    return wrapped


def networked(command: Command) -> Command:
    """Add what says where a node listens and whom it meets, and the passphrase of its key."""
    for option in (
        click.option("--passphrase", envvar=PASSPHRASE_VARIABLE, help="Of the key file; asked for when needed."),
        click.option("--mdns/--no-mdns", default=None, help="Find nodes on the local network.  [default: on]"),
        click.option(
            "--bootstrap", multiple=True, metavar="MULTIADDR", help="A node to dial, ending in /p2p/<peer id>."
        ),
        click.option(
            "--announce", multiple=True, metavar="MULTIADDR", help="The address others should dial, if another."
        ),
        click.option("--listen", multiple=True, metavar="MULTIADDR", help="Listen here, e.g. /ip4/0.0.0.0/tcp/4001."),
    ):
        command = option(command)
    return command


def tell(error: BaseException) -> None:
    """One line on stderr."""
    stderr.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def run_command_line(cli: click.Group) -> None:
    """Run a command line to its end: an error of ours is one line on stderr and exit code 1."""
    try:
        cli()
    except* KeyboardInterrupt:
        sys.exit(130)
    except* SapoError as group:
        tell(_first(group))
        sys.exit(1)


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def unlock(path: Path, passphrase: str | None) -> Identity:
    """Load a key, asking for its passphrase where there is somebody to ask."""
    try:
        return load_key(path, passphrase)
    except PassphraseNeeded:
        if passphrase or not sys.stdin.isatty():
            raise
        return load_key(path, click.prompt(f"passphrase of {path}", hide_input=True, err=True))


def own_identity(config: Config, passphrase: str | None) -> tuple[Identity, bool]:
    """The identity of the node to start, and whether its key was made just now."""
    path = Path(config.key)
    with suppress(NoSuchFile):
        return unlock(path, passphrase), False
    load_manifest(config.swarm)  # no key is made for a swarm that there is not
    identity = create_key(path, passphrase)
    made = f"made a new key in {path} (mode 0600); this node is {identity.peer_id}"
    stderr.print(made, markup=False, highlight=False, soft_wrap=True)
    return identity, True


def place_of(config: Config) -> StateFolder:
    """Where the node of this key and swarm keeps its state, be there one or not."""
    return state_folder(Path(config.state), load_manifest(config.swarm), unlock(Path(config.key), None).peer_id)


def folder_of(config: Config) -> StateFolder:
    """The same, of a node that ran. Raises LocalError where it never did."""
    folder = place_of(config)
    read_database(folder).close()
    return folder


def database_of(config: Config) -> Database:
    """The database of the node of this key and swarm, running or not, for reading."""
    return read_database(place_of(config))


def fetch_model(config: Config) -> None:
    """Download the model where it is one of the hub's that is not in the local cache yet.

    Raises LocalError where the name leads to no folder, or where the settings in the folder are refused.
    """
    if config.model == "seed":
        return
    require_installed()
    # Half a second that other commands need not wait.
    from sapo_node.learner.folder import model_folder  # noqa: PLC0415
    from sapo_node.learner.hub import fetch  # noqa: PLC0415

    if is_hub_name(config.model):
        fetch(config.model, lambda text: stderr.print(text, highlight=False, soft_wrap=True))
    model_folder(config.model)


def write_file(file: Path, data: bytes) -> None:
    """Raises LocalError where it cannot be written."""
    try:
        file.write_bytes(data)
    except OSError as error:
        raise LocalError(f"cannot write {file}: {error.strerror}") from error
