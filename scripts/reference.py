"""The reference of the documentation site, written from the code: every command, key of the configuration and curve."""

from collections.abc import Iterator
from dataclasses import asdict

import click

from sapo_adversary.cli.main import cli as adversary
from sapo_node.app.config import SETTINGS, Config, variable_of
from sapo_node.cli.main import cli as node
from sapo_node.observability.curves import CURVES, EVALUATION, REWARD_STD
from sapo_protocol.toml import toml_value

STATE = "~/.local/state/sapo-node"
"""Where states lie by default on Linux: that of the reader, not of whoever wrote this page."""
PROGRAMS = (("sapo-node", node), ("sapo-adversary", adversary))
WIDTH = 84
"""Characters of a line of help: as many as a column of the site holds in a window of 1,280 pixels."""
CONFIGURATION = """# Configuration

Each key can be set in a file, in the environment and, for most keys, on the command line. The command line overrides
the environment, the environment overrides the file, and the file overrides the default.

`sapo-node config > node.toml` writes the file with the meaning of every key. `--config node.toml` names it, or
SAPO_NODE_CONFIG. In the environment a list has commas between its values, and a switch is `true` or `false`. An unknown
key or variable is an error. More variables are no keys: SAPO_NODE_PASSPHRASE, of the key file, or
SAPO_NODE_PASSPHRASE_FILE, which names a file that holds it; and SAPO_NODE_API_KEY, for `contribute --endpoint` and
`start --generate`.

| key | default | values | environment | option of `start` | meaning |
|---|---|---|---|---|---|
"""


CURVES_HEAD = """# Curves

`sapo-node start --log-to TARGET` writes these curves to jsonl, tensorboard, trackio or wandb, and several of them if
repeated. The names are those of TRL's GRPOTrainer where it has the curve, so that both can be drawn in one chart. The
table `completions` has the local completions of the first round and of every tenth.

| name | meaning |
|---|---|
"""


def pages() -> Iterator[tuple[str, str]]:
    """The file name and the text of each page."""
    for name, group in PROGRAMS:
        yield f"{name}.md", "\n".join([f"# {name}\n", *commands(name, group)])
    yield "configuration.md", CONFIGURATION + "".join(f"| {' | '.join(row)} |\n" for row in keys())
    yield "curves.md", CURVES_HEAD + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in curves().items())


def curves() -> dict[str, str]:
    """The meaning of each curve."""
    rounds = {name: meaning for name, (meaning, _) in CURVES.items()}
    return rounds | {REWARD_STD: "standard deviation of the rewards of all local completions"} | EVALUATION


def keys() -> Iterator[tuple[str, ...]]:
    """The table of the configuration, row by row."""
    start = node.get_command(click.Context(node), "start")
    assert start is not None
    options = {each.name: " ".join((*each.opts, *each.secondary_opts)) for each in start.params}
    defaults = asdict(Config()) | {"state": STATE}
    for name, row in SETTINGS.items():
        option = f"`{options[name]}`" if name in options else ""
        yield f"`{name}`", f"`{toml_value(defaults[name])}`", row.wanted, f"`{variable_of(name)}`", option, row.meaning


def commands(name: str, group: click.Group) -> Iterator[str]:
    """The help of each command of a group."""
    parent = click.Context(group)
    for each in group.list_commands(parent):
        command = group.get_command(parent, each)
        assert command is not None
        called = f"{name} {each}"
        context = click.Context(command, info_name=called, max_content_width=WIDTH, terminal_width=WIDTH)
        told = command.get_help(context).replace(Config().state, STATE)
        yield f"## {called}\n"
        yield f"```text\n{told}\n```\n"
        if isinstance(command, click.Group):
            yield from commands(called, command)
