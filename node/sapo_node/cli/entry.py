"""Entry points of the commands. If an optional dependency is missing, they print how to install it."""

import sys
from importlib import import_module

from sapo_node.cli.encoding import accept_all_text
from sapo_node.processes.extras import command_for
from sapo_node.storage.files import deny_writing

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def main() -> None:
    """Entry point of `sapo-node`."""
    run("sapo_node.cli.main", needs="train")


def run(commands: str, *, needs: str) -> None:
    """Run the commands of the module `commands`. `needs` is the extra of this package that the module imports."""
    deny_writing()
    accept_all_text()
    try:
        import_module(commands).main()  # a command imports its own modules when it runs
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("sapo_"):
            raise
        sys.exit(f"this command needs {missing.name}, which is not installed: {command_for(needs)}")
