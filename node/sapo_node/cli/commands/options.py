"""Shared by the commands: settings as options, the help in sections, the key and state of a node, and errors.

`@settings(*NODE, "model")` adds --config, --swarm, --key, --state and --model to a command, as the table of settings
describes them, and gives it the Config.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from math import isfinite
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from sapo_node.app.config import AUTO, SETTINGS, Config, Section, load_config
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
from sapo_node.cli.entry import INTERRUPTED
from sapo_node.cli.terminal import ReaderGone, Terminal
from sapo_node.groups.messages import is_gguf, is_hub_name
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

NODE = ("swarm", "key", "state")
NETWORK = ("listen", "announce", "bootstrap", "network")
MODEL = ("model", "lora", "lora_layers", "dtype")
ASKED = ("examples", "thinking", "max_tokens")
"""Settings of how a model is asked, and how long it may answer."""
START = tuple(name for name, row in SETTINGS.items() if row.option)

stderr = Terminal(stderr=True)


class _PathOf(click.Path):
    """A path as a Path. A shell leaves `~` as it is in --state=~/x and in quotes, so it is expanded here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises LocalError for `~` of a user without a home folder."""
        return super().convert(expanded(os.fspath(value)), param, ctx)


PATH = _PathOf(path_type=Path)


class Number(click.FloatRange):
    """A finite number within bounds. click's own type accepts `nan` for any bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Fails with a usage error if the value is none."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class _ValueOf(click.ParamType[Any]):
    """The value of a setting. Its bounds are checked by Config, as for a value of a file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value. Fails with a usage error if the text stands for none."""
        row = SETTINGS[self.name]
        found = row.parse(value) if isinstance(value, str) else value
        if type(found) is not row.kind and not (row.auto and found == AUTO):
            self.fail(f"{value!r}; give {row.wanted}", param, ctx)
        return found


class Option(click.Option):
    """An option that stands in a section of the help, with its default if it has one."""

    def __init__(self, *args: Any, section: Section | None = None, **settings: Any) -> None:
        settings.setdefault("show_default", settings.get("default") is not None)
        super().__init__(*args, **settings)
        self.section = section or "Options"


option = partial(click.option, cls=Option)


class SectionedCommand(click.Command):
    """A command whose help shows its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Options", *get_args(Section))}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                rows[param.section if isinstance(param, Option) else "Options"].append(record)
        for name, records in rows.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


as_json = option("--json", "json_output", is_flag=True, help="Print JSON for scripts.")


def settings(*names: str) -> Callable[[Command], Command]:
    """Add --config and an option for each of these settings, and pass the Config that they make as `config`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(config_file: Path | None, **options: Any) -> None:
            chosen = {name: options.pop(name) for name in names}
            command(config=load_config(config_file).overridden(chosen), **options)

        decorated: Command = wrapped
        for name in reversed(names):
            decorated = _setting_option(name)(decorated)
        file = option("--config", "config_file", type=PATH, section="Node", help="A TOML file; see `sapo-node config`.")
        return file(decorated)

    return decorate


def given() -> dict[str, Any]:
    """Return the settings that options of this command give, by key."""
    params = click.get_current_context().params
    return {name: value for name, value in params.items() if name in SETTINGS and value not in (None, ())}


def _setting_option(name: str) -> Callable[[Command], Command]:
    row, flag = SETTINGS[name], name.replace("_", "-")
    told = f"{row.help}  [default: {_as_text(row.default)}]"
    add = partial(option, section=row.section, default=None, help=told)
    if row.kind is bool:
        return add(f"--{flag}/--no-{flag}")
    kind: click.ParamType[Any] = click.Choice(row.choices) if row.choices else _ValueOf(name)
    if row.kind is tuple:
        return add(f"--{flag}", multiple=True, type=kind if row.choices else str, metavar=row.unit or None)
    if row.bare:
        return add(f"--{flag}", type=kind, metavar=f"[{row.unit}]", is_flag=False, flag_value=row.bare)
    unit = f"{row.unit}|{AUTO}" if row.auto else row.unit
    return add(f"--{flag}", type=kind, metavar=unit or None)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)


def as_options(config: Config) -> list[str]:
    """Return the options of `start` that make a configuration of the defaults."""
    words = []
    for name in START:
        row, value, flag = SETTINGS[name], getattr(config, name), name.replace("_", "-")
        if value == row.default:
            continue
        if row.kind is bool:
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, tuple) else [value]
            for each in values:
                words += [f"--{flag}", f"{each:g}" if row.kind is float else str(each)]
    return words


def unlocking(command: Command) -> Command:
    """Add --passphrase and --passphrase-file, and pass the passphrase as `passphrase`."""

    @option(
        "--passphrase-file",
        type=PATH,
        envvar=PASSPHRASE_FILE_VARIABLE,
        section="Node",
        help="A file with the passphrase of the key file, which only you can read.",
    )
    @option(
        "--passphrase",
        envvar=PASSPHRASE_VARIABLE,
        section="Node",
        help="The passphrase itself. Other users of the machine can read it from the list of processes.",
    )
    @wraps(command)
    def wrapped(passphrase: str | None, passphrase_file: Path | None, **options: Any) -> None:
        if passphrase and passphrase_file:
            raise click.UsageError("give either --passphrase or --passphrase-file")
        command(passphrase=read_passphrase(passphrase_file) if passphrase_file else passphrase, **options)

    return wrapped


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
    # A key that is older than its state may not publish at first. So none is made if the start must fail.
    require_usable(config.states, load_manifest(config.swarm))
    identity = create_key(path, passphrase)
    made = f"made a new key in {path.absolute()} (mode 0600); this node is {identity.peer_id}"
    stderr.print(made, highlight=False, soft_wrap=True)
    return identity, True


def place_of(config: Config) -> StateFolder:
    """Return the state folder for this key and swarm. It may not exist."""
    try:
        identity = unlock(Path(config.key), None)
    except NoSuchFile as error:
        raise NoSuchFile(f"{error}. `sapo-node nodes` shows the nodes of this machine") from error
    return state_folder(config.states, load_manifest(config.swarm), identity.peer_id)


def folder_of(config: Config) -> StateFolder:
    """Return the state folder for this key and swarm. Raises NoState if no node ever ran on it."""
    folder = place_of(config)
    read_database(folder).close()
    return folder


def database_of(config: Config) -> AbstractContextManager[Database]:
    """Open the database of the node of this key and swarm for reading. The node may be running."""
    return reading(place_of(config))


def policy_of(config: Config) -> tuple[Config, StateFolder]:
    """Return the configuration for the checkpoints of the node of this key and swarm, and its state folder.

    Raises LocalError if no node ever ran on it, or if the options name another model than that of its checkpoints.
    """
    folder = folder_of(config)
    with reading(folder) as database:
        config = of_checkpoints(config, database, given())
        require_same_policy(database, config, folder.checkpoints)
    return config, folder


def view_of(config: Config, **wanted: Any) -> tuple[Overview, bool]:
    """Return the overview of the node of this key and swarm, and whether the node is running."""
    folder = folder_of(config)
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
