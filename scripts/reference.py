"""Writes docs/reference.md, every command and every key of the configuration, from the code; `--check` only compares.

python scripts/reference.py
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from sapo_adversary.cli.main import cli as adversary
from sapo_adversary.research.policies import DEFAULT_FOLDER
from sapo_node.app.config import Config, render_config
from sapo_node.cli.main import cli as node

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
WIDTH = 110
HEAD = """# Reference

Every command as its `--help` tells it, and every key of the configuration with its default; written from the code by
`python scripts/reference.py`.
"""
CONFIGURATION = """## Configuration

`sapo-node config > node.toml` writes this file, `--config node.toml` reads it, and the command line overrides it.
"""


def sections() -> Iterator[str]:
    """The page, part by part."""
    yield HEAD
    for name, group in (("sapo-node", node), ("sapo-adversary", adversary)):
        yield f"## {name}\n"
        yield from commands(name, group)
    yield CONFIGURATION
    yield f"```toml\n{render_config(Config(state='~/.local/state/sapo-node'))}```\n"


def commands(name: str, group: click.Group) -> Iterator[str]:
    """The help of each command of a group."""
    parent = click.Context(group)
    for each in group.list_commands(parent):
        command = group.get_command(parent, each)
        assert command is not None
        called = f"{name} {each}"
        context = click.Context(command, info_name=called, max_content_width=WIDTH, terminal_width=WIDTH)
        # Of folders, those of the reader, not of whoever wrote this page.
        told = command.get_help(context).replace(str(DEFAULT_FOLDER), "~/.cache/sapo-node/policies")
        yield f"### {called}\n"
        yield f"```text\n{told}\n```\n"
        if isinstance(command, click.Group):
            yield from commands(called, command)


def main(arguments: list[str]) -> int:
    """Write the page, or tell by the exit status whether it is as it should be."""
    page = "\n".join(sections())
    if arguments == ["--check"]:
        return 0 if PAGE.read_text("utf-8") == page else 1
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
