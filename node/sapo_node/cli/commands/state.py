"""Key, settings and state of a node: `keygen`, `config`, `state backup`, `state restore`."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from sapo_node.app.config import Config, load_config, render_config
from sapo_node.app.state import require_root, state_folder
from sapo_node.cli.backup import restore_backup, write_backup
from sapo_node.cli.commands.group import Group
from sapo_node.cli.commands.options import NODE, PATH, SectionedCommand, as_json, option, place_of, settings, unlock
from sapo_node.cli.terminal import say, say_json
from sapo_node.storage import row_files
from sapo_node.storage.counters import LISTEN_EPOCHS
from sapo_node.storage.keys import create_key, require_no_key
from sapo_protocol import LocalError, load_manifest


@click.command(cls=SectionedCommand)
@option("--key", default="node.key", type=PATH, metavar="FILE", help="File to write.")
@option("--passphrase/--no-passphrase", is_flag=True, help="Ask for a passphrase, and encrypt the key with it.")
@as_json
def keygen(key: Path, *, passphrase: bool, json_output: bool) -> None:
    """Make a key without starting a node.

    `start` makes a key if there is none. If you make the key with `keygen`, its node trains at once but listens for
    two epochs before it publishes, because a copy of the key may be in use on another machine.
    """
    if passphrase and not sys.stdin.isatty():
        raise LocalError("--passphrase needs a terminal, and the standard input is none; make the key at a terminal")
    require_no_key(key)  # before anybody types a passphrase
    secret = click.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True) if passphrase else None
    identity = create_key(key, secret)
    if json_output:
        say_json({"key": str(key), "peer_id": identity.peer_id})
    else:
        say(f"{identity.peer_id}\nwritten to {key} (mode 0600)")


@click.command(cls=SectionedCommand)
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


@click.group(cls=Group, short_help="the state of a node in one file")
def state() -> None:
    """Save the state of a node to a file, and restore it.

    The state is its checkpoints, its peers, the counters of what it published, and the files of the swarm's tasks. It
    does not contain the key. Keep the key file separately, and never run one key on two machines.

    \b
    sapo-node state backup state.tar
    sapo-node state restore state.tar
    """  # noqa: D301 - click reads the backspace


@state.command(cls=SectionedCommand)
@click.argument("output", type=PATH)
@settings(*NODE)
@as_json
def backup(config: Config, output: Path, *, json_output: bool) -> None:
    """Write the state of a node to the file OUTPUT. Only you can read the file.

    The node may be running. `backup` refuses a damaged database.
    """
    tasks = load_manifest(config.swarm).tasks
    rows = {row_files.place_of(config.task_files, task.source.file) for task in tasks if task.source}
    write_backup(place_of(config), output, rows)
    if json_output:
        say_json({"output": str(output)})
    else:
        say(f"written to {output}")


@state.command(cls=SectionedCommand)
@click.argument("file", type=PATH)
@settings(*NODE)
@as_json
def restore(config: Config, file: Path, *, json_output: bool) -> None:
    """Restore the state in FILE, for the same key and swarm. `restore` never overwrites a state.

    The node then listens for two epochs before it publishes, because its key may have signed messages since the backup.
    """
    manifest, peer_id = load_manifest(config.swarm), unlock(Path(config.key), None).peer_id
    require_root(config.states)
    folder = state_folder(config.states, manifest, peer_id)
    restore_backup(file, folder, config.task_files, peer_id=peer_id, network_id=manifest.network_id.hex())
    if json_output:
        say_json({"state": str(folder.path)})
    else:
        seconds = LISTEN_EPOCHS * manifest.epoch_seconds
        told = f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds} s"
        say(f"restored to {folder.path}; the node listens for two epochs ({told}) before it publishes")
