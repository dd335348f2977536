"""The way into the command `sapo-adversary`."""

from sapo_node.cli.entry import run


def main() -> None:
    """Entry point."""
    run("sapo_adversary.cli", needs="adversary")
