"""Keep who a node is and what it has become: `keygen`, `backup`, `restore`."""

import json
import sys
from pathlib import Path

import click

from sapo_node.app.config import Config
from sapo_node.app.state import state_folder
from sapo_node.cli.backup import restore_backup, write_backup
from sapo_node.cli.commands.options import as_json, configured, place_of, unlock
from sapo_node.cli.terminal import say
from sapo_node.storage.counters import LISTEN_EPOCHS
from sapo_node.storage.keys import create_key
from sapo_protocol import LocalError, load_manifest


@click.command()
@click.option("--key", default="node.key", show_default=True, type=click.Path(path_type=Path), help="File to write.")
@click.option("--passphrase/--no-passphrase", default=False, help="Ask for a passphrase to encrypt it with.")
@as_json
def keygen(key: Path, *, passphrase: bool, json_output: bool) -> None:
    """Make a key without starting a node.

    `start` makes its own. A key made beforehand is older than its node's state, so that node trains at once but
    listens for two epochs before it publishes: it cannot know that no copy of the key is in use.
    """
    if passphrase and not sys.stdin.isatty():
        raise LocalError("--passphrase asks at a terminal, and the input is none; make the key at a terminal")
    secret = click.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True) if passphrase else None
    identity = create_key(key, secret)
    if json_output:
        click.echo(json.dumps({"key": str(key), "peer_id": identity.peer_id}))
    else:
        say(f"{identity.peer_id}\nwritten to {key} (mode 0600)")


@click.command()
@click.argument("output", type=click.Path(path_type=Path))
@configured
@as_json
def backup(config: Config, output: Path, *, json_output: bool) -> None:
    """Write the state of a node to OUTPUT, one file: what it learnt, whom it trusts, what it published.

    A damaged database is not backed up. Only you can read the file.

    The node may be running. The key is not in it: keep its file apart, and never run one key on two machines.

    \b
    sapo-node backup state.tar
    sapo-node restore state.tar
    """  # noqa: D301 - click reads the backspace
    write_backup(place_of(config), output)
    if json_output:
        click.echo(json.dumps({"output": str(output)}))
    else:
        say(f"written to {output}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@configured
@as_json
def restore(config: Config, file: Path, *, json_output: bool) -> None:
    """Put the state in FILE back, for the same key and swarm, where there is none.

    The node then listens for two epochs before it publishes: it cannot know what its key has signed since the backup.
    """
    manifest, peer_id = load_manifest(config.swarm), unlock(Path(config.key), None).peer_id
    folder = state_folder(Path(config.state), manifest, peer_id)
    restore_backup(file, folder, peer_id=peer_id, network_id=manifest.network_id.hex())
    if json_output:
        click.echo(json.dumps({"state": str(folder.path)}))
    else:
        seconds = LISTEN_EPOCHS * manifest.epoch_seconds
        told = f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds} s"
        say(f"restored to {folder.path}; its node listens for two epochs ({told}) before it publishes")
