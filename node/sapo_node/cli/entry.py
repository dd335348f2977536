"""The way into the commands: where a part of the package is not installed, it says so instead of failing to import."""

import sys
from importlib import import_module


def main() -> None:
    """Entry point of `sapo-node`."""
    run("sapo_node.cli.main", needs="train")


def run(commands: str, *, needs: str) -> None:
    """Run the commands of a module, which needs an extra of this package."""
    try:
        command_line = import_module(commands).main
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("sapo_"):
            raise
        sys.exit(f"{missing.name} is not installed, which this command needs: pip install 'sapo-node[{needs}]'")
    command_line()
