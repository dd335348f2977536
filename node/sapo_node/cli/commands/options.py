"""What several commands share: options, how to find a node's key and state, and how to report an error."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from sapo_node.app.config import Config, load_config
from sapo_node.app.state import (
    StateFolder,
    is_running,
    read_database,
    reading,
    require_root,
    require_usable,
    state_folder,
)
from sapo_node.app.trained_model import of_checkpoints, require_same_policy
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.entry import INTERRUPTED
from sapo_node.cli.terminal import ReaderGone, Terminal
from sapo_node.groups.model_name import is_gguf, is_hub_name
from sapo_node.learner.client import require_installed
from sapo_node.net.addresses import require_addresses
from sapo_node.observability.dashboard import parse_place
from sapo_node.observability.overview import Overview, at_rest, overview
from sapo_node.storage.database import Database
from sapo_node.storage.keys import (
    PASSPHRASE_FILE_VARIABLE,
    PASSPHRASE_VARIABLE,
    Identity,
    PassphraseNeeded,
    create_key,
    load_key,
    read_passphrase,
    require_folder,
)
from sapo_protocol import LocalError, SapoError, load_manifest
from sapo_protocol.files import NoSuchFile, expanded
from sapo_protocol.printable import printable

Command = Callable[..., None]

stderr = Terminal(stderr=True)

as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON for scripts.")


def configured(command: Command) -> Command:
    """Add --config, --swarm, --key and --state, and pass one Config to the command."""

    @click.option("--config", "config_file", type=PATH, help="A TOML file; see `sapo-node config`.")
    @click.option("--swarm", help="The swarm: a shipped manifest or the path of a manifest.  [default: starter]")
    @click.option("--key", help="The key file of the node.  [default: node.key]")
    @click.option("--state", help="The folder under which each swarm and key keeps its state.")
    @wraps(command)
    def wrapped(config_file: Path | None, swarm: str, key: str, state: str, **options: Any) -> None:
        config = load_config(config_file).overridden({"swarm": swarm, "key": key, "state": state})
        command(config=config, **options)

    return wrapped


def networked(command: Command) -> Command:
    """Add the options for addresses and peer discovery, and --passphrase with --passphrase-file."""

    @wraps(command)
    def wrapped(passphrase: str | None, passphrase_file: Path | None, **options: Any) -> None:
        if passphrase and passphrase_file:
            raise click.UsageError("give either --passphrase or --passphrase-file")
        command(passphrase=read_passphrase(passphrase_file) if passphrase_file else passphrase, **options)

    added: Command = wrapped
    for option in (
        click.option(
            "--passphrase-file",
            type=PATH,
            envvar=PASSPHRASE_FILE_VARIABLE,
            help="A file with the passphrase of the key file, which only you can read.",
        ),
        click.option(
            "--passphrase",
            envvar=PASSPHRASE_VARIABLE,
            help="The passphrase itself. Other users of the machine can read it from the list of processes.",
        ),
        click.option("--mdns/--no-mdns", default=None, help="Find nodes on the local network.  [default: on]"),
        click.option("--bootstrap", multiple=True, metavar="MULTIADDR", help="Dial this node; ends in /p2p/<peer id>."),
        click.option(
            "--announce",
            multiple=True,
            metavar="ADDRESS",
            help="Tell peers to dial this address, if it differs from --listen.",
        ),
        click.option("--listen", multiple=True, metavar="ADDRESS", help="Listen here: IP:PORT or a multiaddress."),
    ):
        added = option(added)
    return added


def tell(error: BaseException) -> None:
    """Print an error as one line on stderr."""
    stderr.print(Text.assemble(("error:", "bold red"), f" {error}"), soft_wrap=True)


def run_command_line(cli: click.Command) -> None:
    """Run a command line. A SapoError becomes one line on stderr and exit code 1; Ctrl-C is exit code INTERRUPTED.

    An OSError that names a file becomes such a line, too: in a folder that the user may not enter, even to ask whether
    a file is there fails.

    If the reader of standard output has gone, there is no line: `sapo-node why ID | head -1` is no error.
    """
    try:
        cli()
    except* KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except* SapoError as group:
        if not isinstance(error := _first(group), ReaderGone):
            tell(error)
        sys.exit(1)
    except* OSError as group:
        error = _first(group)
        if not isinstance(error, OSError) or error.filename is None:
            raise
        tell(LocalError(f"cannot use {printable(os.fsdecode(error.filename))}: {error.strerror}"))
        sys.exit(1)


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def unlock(path: Path, passphrase: str | None) -> Identity:
    """Load a key. If it needs a passphrase, take that of the environment, or ask for it at a terminal."""
    try:
        return load_key(path, passphrase)
    except PassphraseNeeded:
        if not passphrase and (stored := _stored_passphrase()):
            return load_key(path, stored)
        if passphrase or not sys.stdin.isatty():
            raise
        return load_key(path, click.prompt(f"passphrase of {path}", hide_input=True, err=True))


def _stored_passphrase() -> str | None:
    if file := os.environ.get(PASSPHRASE_FILE_VARIABLE):
        return read_passphrase(Path(expanded(file)))
    return os.environ.get(PASSPHRASE_VARIABLE)


def require_startable(config: Config) -> None:
    """Raise LocalError for a path or an address that no node can use. A command calls this before it makes a key."""
    path = Path(config.key)
    if not os.path.lexists(path):
        require_folder(path)
    require_root(config.states)
    require_addresses(config.listen, config.announce, config.bootstrap)
    parse_place(config.dashboard)
    parse_place(config.feed, "feed")


def own_identity(config: Config, passphrase: str | None) -> tuple[Identity, bool]:
    """Return the identity of the node to start, and whether this call made its key."""
    require_startable(config)
    path = Path(config.key)
    with suppress(NoSuchFile):
        return unlock(path, passphrase), False
    # A key that is older than its state may not publish at first. So none is made where the start must fail.
    require_usable(config.states, load_manifest(config.swarm))
    identity = create_key(path, passphrase)
    made = f"made a new key in {path.absolute()} (mode 0600); this node is {identity.peer_id}"
    stderr.print(made, highlight=False, soft_wrap=True)
    return identity, True


def place_of(config: Config) -> StateFolder:
    """Return the state folder for this key and swarm. It may not exist."""
    return state_folder(config.states, load_manifest(config.swarm), unlock(Path(config.key), None).peer_id)


def folder_of(config: Config) -> StateFolder:
    """Return the state folder for this key and swarm. Raises LocalError if no node ever ran on it."""
    folder = place_of(config)
    read_database(folder).close()
    return folder


def policy_of(config: Config, options: Mapping[str, Any]) -> tuple[Config, StateFolder]:
    """Return the configuration for the checkpoints of the node of this key and swarm, and its state folder.

    Raises LocalError if no node ever ran on it, or if the options name another model than that of its checkpoints.
    """
    folder = folder_of(config)
    with reading(folder) as database:
        config = of_checkpoints(config, database, options)
        require_same_policy(database, config, folder.checkpoints)
    return config, folder


def database_of(config: Config) -> AbstractContextManager[Database]:
    """Open the database of the node of this key and swarm for reading. The node may be running."""
    return reading(place_of(config))


def view_of(config: Config, **wanted: Any) -> tuple[Overview, bool]:
    """Return the overview of the node of this key and swarm, and whether the node is running."""
    folder = place_of(config)
    with reading(folder) as database:
        view, runs = overview(database, **wanted), is_running(folder)
    return (view if runs else at_rest(view)), runs


def fetch_model(config: Config) -> None:
    """Download the model if it is a name on the hub, and convert it if it is a GGUF file, unless the cache has it.

    Raises LocalError if there is no such model, or if the settings in its folder are refused.
    """
    if config.model == "seed":
        return
    require_installed()
    # Imported here: it takes half a second, which other commands do not need to wait.
    from sapo_node.learner.folder import model_folder  # noqa: PLC0415
    from sapo_node.learner.gguf import convert  # noqa: PLC0415
    from sapo_node.learner.hub import fetch  # noqa: PLC0415

    def tell(text: str) -> None:
        stderr.print(text, highlight=False, soft_wrap=True)

    if is_gguf(config.model):
        convert(Path(config.model), tell)
    elif is_hub_name(config.model):
        fetch(config.model, tell)
    model_folder(config.model)


def write_file(file: Path, data: bytes) -> None:
    """Write a file. Raises LocalError if that fails."""
    try:
        file.write_bytes(data)
    except OSError as error:
        raise LocalError(f"cannot write {file}: {error.strerror}") from error
