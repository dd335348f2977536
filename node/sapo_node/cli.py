"""The command line: `sapo-node`."""

import logging

import click

from sapo_node.commands.contributing import contribute
from sapo_node.commands.keeping import backup, restore
from sapo_node.commands.looking import config, doctor, evidence, peers, status, why
from sapo_node.commands.measuring import eval_, export, metrics
from sapo_node.commands.options import run_command_line
from sapo_node.commands.running import demo, keygen, start
from sapo_node.commands.wire import conformance, manifest, verify


def main() -> None:
    """Entry point."""
    run_command_line(cli)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="sapo-node")
@click.option("-v", "--verbose", is_flag=True, help="Log what is going on, to stderr.")
def cli(*, verbose: bool) -> None:
    """Train a language model together with strangers, believing none of them.

    \b
    A first node, on this machine:     sapo-node start
    A second one, in a new terminal:   sapo-node start --key other.key
    Everything at once, with a cheat:  sapo-node demo
    """  # noqa: D301 - click reads the backspace
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    if not verbose:
        # What libp2p logs about strangers' connections is of no use to an operator; our own notices tell what matters.
        logging.getLogger("libp2p").setLevel(logging.CRITICAL)


for command in (
    start,
    contribute,
    demo,
    keygen,
    status,
    peers,
    why,
    doctor,
    metrics,
    evidence,
    eval_,
    export,
    backup,
    restore,
    config,
    verify,
    manifest,
    conformance,
):
    cli.add_command(command)
