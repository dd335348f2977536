"""The command `sapo-adversary`."""

import click

from sapo_adversary.commands.campaigns import list_, matrix, report, run
from sapo_adversary.commands.experiments import experiment, experiments
from sapo_adversary.commands.frontier import frontier
from sapo_adversary.commands.load import load_keys
from sapo_adversary.commands.policies import policies
from sapo_adversary.commands.soak import soak
from sapo_node.commands.options import run_command_line


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="sapo-node")
def cli() -> None:
    """Swarms on demand: learning experiments in honest ones, and what a node withstands in malicious ones.

    Everything runs on this machine, in memory or on loopback, and attacks only what it has started itself.
    """


for command in (list_, run, matrix, report, experiment, experiments, frontier, policies, load_keys, soak):
    cli.add_command(command)


def main() -> None:
    """Entry point."""
    run_command_line(cli)
