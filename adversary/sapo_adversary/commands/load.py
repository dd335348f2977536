"""Before a load test: `load-keys`."""

import json

import click

from sapo_adversary.load.keys import identity_of
from sapo_node.commands.options import as_json


@click.command("load-keys")
@click.option("--users", type=click.IntRange(1), default=5, show_default=True, help="Of the load test.")
@click.option("--keys-from", default="load", show_default=True, help="Words that the keys follow from, as for locust.")
@as_json
def load_keys(*, users: int, keys_from: str, json_output: bool) -> None:
    """Name the peers of a load test, as a line for the configuration of the node that they are to load.

    A node takes only so much from strangers, by design: without this line a load test measures its quotas. The keys are
    no secret: take the line out again afterwards.

    \b
    sapo-adversary load-keys --users 8 >> node.toml
    sapo-node start --config node.toml
    locust -f adversary/sapo_adversary/load/locustfile.py --host MULTIADDR --headless -u 8 -t 5m
    """  # noqa: D301 - click reads the backspace
    peers = [identity_of(keys_from, user).peer_id for user in range(users)]
    click.echo(json.dumps(peers) if json_output else f"trusted = {json.dumps(peers)}")
