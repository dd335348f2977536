"""The command line: `sapo-node`."""

import logging

import click

from sapo_node.cli.commands.group import CommandGroup
from sapo_node.cli.commands.options import run_command_line
from sapo_node.cli.terminal import PrintableFormatter

_SECTIONS = {
    "First steps": {
        "demo": "running",
        "init": "setup",
        "start": "running",
        "status": "looking",
        "doctor": "setup",
    },
    "Nodes and peers": {
        "nodes": "looking",
        "peers": "peers",
        "why": "looking",
    },
    "Models and completions": {
        "model": "model",
        "contribute": "contributing",
        "rollouts": "wire",
    },
    "Tasks": {
        "task": "task",
    },
    "Key, settings and state": {
        "config": "state",
        "keygen": "state",
        "state": "state",
    },
    "The wire": {
        "verify": "wire",
        "manifest": "wire",
    },
}
"""The commands in sections, each with its module."""


@click.group(
    cls=CommandGroup,
    package="sapo_node.cli.commands",
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="sapo-node")
@click.option("-v", "--verbose", is_flag=True, help="Write the log to stderr, from level INFO.")
def cli(*, verbose: bool) -> None:
    """Train a language model together with strangers, and verify everything they send.

    \b
    A first node, on this machine:     sapo-node start
    A second one, in a new terminal:   sapo-node start --key other.key
    A demo with an attacker:           sapo-node demo
    The nodes of this machine:         sapo-node nodes

    `sapo-node COMMAND --help` explains a command by examples.
    """  # noqa: D301 - click reads the backspace
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(PrintableFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[to_stderr])
    if not verbose:
        # libp2p logs the connections of every peer. The node's own notices report the failures that matter.
        logging.getLogger("libp2p").setLevel(logging.CRITICAL)


def main() -> None:
    """Entry point."""
    run_command_line(cli)
