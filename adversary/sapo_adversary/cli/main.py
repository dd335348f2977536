"""The command `sapo-adversary`: a group whose commands are imported when they are called."""

import click

from sapo_node.cli.commands.group import CommandGroup
from sapo_node.cli.commands.options import run_command_line

_MODULES = {
    "list": "run",
    "run": "run",
    "matrix": "matrix",
    "report": "report",
    "experiment": "experiment",
    "load-keys": "load",
}


@click.group(
    cls=CommandGroup,
    package="sapo_adversary.cli",
    sections={"Commands": _MODULES},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="sapo-node")
def cli() -> None:
    """Play swarms of real nodes: learning experiments in honest swarms, attacks and defences in attacked ones.

    Everything runs on this machine, in memory or on loopback. Attacks go only to nodes that the command started.
    """


def main() -> None:
    """Entry point."""
    run_command_line(cli)
