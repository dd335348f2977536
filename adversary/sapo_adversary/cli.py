"""The command `sapo-adversary`."""

import sys

import click

from sapo_adversary.commands.experiments import experiment, experiments
from sapo_adversary.commands.policies import policies
from sapo_protocol import LocalError


@click.group()
@click.version_option(package_name="sapo-node")
def cli() -> None:
    """Swarms on demand: learning experiments in honest ones, and what a node withstands in malicious ones.

    Everything runs on this machine, in memory or on loopback, and attacks only what it has started itself.
    """


for command in (experiment, experiments, policies):
    cli.add_command(command)


def main() -> None:
    """Run the command line; what the user can mend is one line."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except LocalError as error:
        click.echo(f"sapo-adversary: {error}", err=True)
        sys.exit(1)
