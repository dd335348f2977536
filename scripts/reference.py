"""Writes docs/reference.md, every command and every key of the configuration, from the code; `--check` only compares.

python scripts/reference.py
"""

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click

from sapo_adversary.cli.main import cli as adversary
from sapo_adversary.research.policies import DEFAULT_FOLDER
from sapo_node.app.config import Config
from sapo_node.app.environment import variable_of
from sapo_node.cli.main import cli as node
from sapo_node.observability.curves.names import CURVES, EVALUATION, REWARD_STD
from sapo_protocol.toml import toml_value

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
WIDTH = 110
HEAD = """# Reference

Every command as its `--help` tells it, and every key of the configuration with its default; written from the code by
`python scripts/reference.py`.
"""
CONFIGURATION = """## Configuration

Each key can be set in a file, in the environment and, for most keys, on the command line. The command line overrides
the environment, the environment overrides the file, and the file overrides the default.

`sapo-node config > node.toml` writes the file with the meaning of every key. `--config node.toml` names it, or
SAPO_NODE_CONFIG. In the environment a list has commas between its values, and a switch is `true` or `false`. An unknown
key or variable is an error. Two more variables are no keys: SAPO_NODE_PASSPHRASE, of the key file, and
SAPO_NODE_API_KEY, for `contribute --endpoint`.

| key | default | environment | option of `start` | meaning |
|---|---|---|---|---|
"""


CURVES_HEAD = """## Curves

`sapo-node start --log-to TARGET` writes these curves to jsonl, tensorboard, trackio or wandb, and several of them if
repeated. The names are those of TRL's GRPOTrainer where it has the curve, so that both can be drawn in one chart. The
table `completions` has the local completions of the first round and of every tenth.

| name | meaning |
|---|---|
"""


def sections() -> Iterator[str]:
    """The page, part by part."""
    yield HEAD
    for name, group in (("sapo-node", node), ("sapo-adversary", adversary)):
        yield f"## {name}\n"
        yield from commands(name, group)
    yield CONFIGURATION + "".join(f"| {' | '.join(row)} |\n" for row in keys())

    yield CURVES_HEAD + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in curves().items())


def curves() -> dict[str, str]:
    """The meaning of each curve."""
    rounds = {name: curve.meaning for name, curve in CURVES.items()}
    return rounds | {REWARD_STD: "standard deviation of the rewards of all local completions"} | EVALUATION


def keys() -> Iterator[tuple[str, ...]]:
    """The table of the configuration, row by row."""
    start = node.get_command(click.Context(node), "start")
    assert start is not None
    options = {each.name: " ".join((*each.opts, *each.secondary_opts)) for each in start.params}
    defaults = Config(state="~/.local/state/sapo-node")
    for each in fields(Config):
        option = f"`{options[each.name]}`" if each.name in options else ""
        default = f"`{toml_value(getattr(defaults, each.name))}`"
        yield f"`{each.name}`", default, f"`{variable_of(each.name)}`", option, each.metadata["doc"]


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
