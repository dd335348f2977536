"""Talk to the policy of a node: `chat`."""

import sys
from functools import partial
from io import TextIOWrapper
from typing import Any

import click
import trio

from sapo_node.app.config import Config
from sapo_node.cli.chat import Talk, lines_of, talk_to
from sapo_node.cli.commands.model_options import asked_model, trained_model
from sapo_node.cli.commands.numbers import Number
from sapo_node.cli.commands.options import configured, fetch_model, policy_of, stderr, tell
from sapo_node.cli.terminal import say
from sapo_node.groups.messages import Ready, Sampled
from sapo_protocol import load_manifest


@click.command()
@configured
@trained_model
@asked_model
@click.option("--base", is_flag=True, help="Talk to the model before any training.")
@click.option("--temperature", type=Number(0, 2, min_open=True), default=1.0, show_default=True, help="Of sampling.")
def chat(config: Config, *, base: bool, temperature: float, **options: Any) -> None:
    """Talk to the policy of a node. Write one line at a time; Ctrl-D or Ctrl-C ends it. The node may be running.

    The node remembers which model it trains, so no option for the model is needed. The policy is that of the averaged
    weights of the newest checkpoint, and gets the same system prompt as in training. It reads as many earlier turns
    before a prompt as it reads worked examples in training: the model in the package reads none.

    \b
    sapo-node chat
    sapo-node chat --base                   the same model before any training
    echo "Spell this word backward (example: sun -> nus): moon" | sapo-node chat
    """  # noqa: D301 - click reads the backspace
    manifest = load_manifest(config.swarm)
    config, folder = (config.overridden(options), None) if base else policy_of(config, options)
    fetch_model(config)
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # no tokenizer reads bytes that are no text
    talk = Talk(_begin, _ask, _answer, tell)
    try:
        trio.run(partial(talk_to, config, manifest, folder, talk, temperature=temperature))
    except* KeyboardInterrupt:
        say("")


def _begin(ready: Ready) -> None:
    trained = f"after {ready.step:,} rounds" if ready.step else "before any training"
    stderr.print(f"{ready.model} {trained}; Ctrl-D ends", highlight=False, soft_wrap=True)


def _ask() -> str | None:
    """Return a line of the standard input, or None at its end. The prompt appears on a terminal only."""
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None


def _answer(sampled: Sampled) -> None:
    say(lines_of(sampled))
