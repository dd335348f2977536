"""Print the configuration of a node for a load test: `load-keys`."""

import json
from pathlib import Path

import click

from sapo_adversary.load.keys import identity_of
from sapo_node.app.config import load_config, render_config
from sapo_node.cli.commands.options import PATH, as_json
from sapo_node.cli.terminal import say

MOST_USERS = 1_000
"""Most users. A node holds 64 connections, so that more users would not reach it."""


@click.command("load-keys")
@click.option("--users", type=int, default=5, show_default=True, help="Number of users of the load test.")
@click.option(
    "--keys-from", default="load", show_default=True, help="Words from which the keys are derived, as for locust."
)
@click.option("--config", "file", type=PATH, help="Add the peers to this configuration, and print it whole.")
@as_json
def load_keys(*, users: int, keys_from: str, file: Path | None, json_output: bool) -> None:
    """Print a configuration for the target of a load test.

    With it the target trusts the peers of the test. A node limits what it takes from untrusted peers: without this
    configuration a load test measures those limits. The keys are public, so use the configuration only for the test.

    \b
    sapo-adversary load-keys --users 8 > load.toml                         all other settings are the defaults
    sapo-adversary load-keys --users 8 --config node.toml > load.toml      all other settings are those of node.toml
    sapo-node start --config load.toml
    locust -f adversary/sapo_adversary/load/locustfile.py --host MULTIADDR --headless -u 8 -t 5m
    """  # noqa: D301 - click reads the backspace
    if not 1 <= users <= MOST_USERS:
        raise click.UsageError(f"--users is {users}; give 1 to {MOST_USERS}: a node holds 64 connections")
    peers = [identity_of(keys_from, user).peer_id for user in range(users)]
    if json_output:
        click.echo(json.dumps(peers))
    elif file is None:
        say(f"trusted = {json.dumps(peers)}")
    else:
        config = load_config(file, {})
        trusted = tuple(dict.fromkeys((*config.trusted, *peers)))
        say(render_config(config.overridden({"trusted": trusted})).removesuffix("\n"))
