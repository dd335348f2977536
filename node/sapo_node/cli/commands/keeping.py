"""Make the key of a node, and save and restore its state: `keygen`, `backup`, `restore`."""

import sys
from pathlib import Path

import click

from sapo_node.app.config import Config
from sapo_node.app.state import require_root, state_folder
from sapo_node.cli.backup import restore_backup, write_backup
from sapo_node.cli.commands.options import as_json, configured, place_of, unlock
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.terminal import say, say_json
from sapo_node.storage.counters import LISTEN_EPOCHS
from sapo_node.storage.keys import create_key, require_no_key
from sapo_protocol import LocalError, load_manifest


@click.command()
@click.option("--key", default="node.key", show_default=True, type=PATH, help="File to write.")
@click.option("--passphrase/--no-passphrase", default=False, help="Ask for a passphrase, and encrypt the key with it.")
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


@click.command()
@click.argument("output", type=PATH)
@configured
@as_json
def backup(config: Config, output: Path, *, json_output: bool) -> None:
    """Write the state of a node to the file OUTPUT.

    The state is its checkpoints, its peers, and the counters of what it published. The node may be running. `backup`
    refuses a damaged database. Only you can read the file.

    The backup does not contain the key. Keep the key file separately, and never run one key on two machines.

    \b
    sapo-node backup state.tar
    sapo-node restore state.tar
    """  # noqa: D301 - click reads the backspace
    write_backup(place_of(config), output)
    if json_output:
        say_json({"output": str(output)})
    else:
        say(f"written to {output}")


@click.command()
@click.argument("file", type=PATH)
@configured
@as_json
def restore(config: Config, file: Path, *, json_output: bool) -> None:
    """Restore the state in FILE, for the same key and swarm. `restore` never overwrites a state.

    The node then listens for two epochs before it publishes, because its key may have signed messages since the backup.
    """
    manifest, peer_id = load_manifest(config.swarm), unlock(Path(config.key), None).peer_id
    require_root(config.states)
    folder = state_folder(config.states, manifest, peer_id)
    restore_backup(file, folder, peer_id=peer_id, network_id=manifest.network_id.hex())
    if json_output:
        say_json({"state": str(folder.path)})
    else:
        seconds = LISTEN_EPOCHS * manifest.epoch_seconds
        told = f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds} s"
        say(f"restored to {folder.path}; the node listens for two epochs ({told}) before it publishes")
