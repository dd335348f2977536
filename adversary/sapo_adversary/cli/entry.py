"""The entry point of the command `sapo-adversary`."""

from sapo_node.cli.entry import run


def main() -> None:
    """Entry point."""
    run("sapo_adversary.cli.main", needs="adversary")
