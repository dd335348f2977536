"""The options for a model that several commands share.

With `auto` the model decides: `app/recipe` has the table.
"""

import click

from sapo_node.cli.commands.numbers import NumberOrAuto, WholeOrAuto
from sapo_node.cli.commands.options import Command


def trained_model(command: Command) -> Command:
    """Add --model, --lora, --lora-layers and --dtype: which model, and what of it is trained."""
    for option in (
        click.option(
            "--dtype", type=click.Choice(["auto", "float32", "bfloat16"]), help="Compute in this.  [default: auto]"
        ),
        click.option(
            "--lora-layers",
            type=int,
            metavar="N",
            help="Layers with adapters, counted from the output; 0 is all.  [default: 0]",
        ),
        click.option(
            "--lora",
            type=WholeOrAuto(),
            metavar="RANK|auto",
            help="Train adapters of this rank only; 0 trains all weights.  [default: auto]",
        ),
        click.option(
            "--model",
            help="A fetched model, a folder, a GGUF file or a hub name.  [default: seed, the model in the package]",
        ),
    ):
        command = option(command)
    return command


def asked_model(command: Command) -> Command:
    """Add --examples, --thinking and --max-tokens: how the model is asked, and how long it may answer."""
    for option in (
        click.option(
            "--max-tokens", type=WholeOrAuto(), metavar="N|auto", help="Longest completion, in tokens.  [default: auto]"
        ),
        click.option(
            "--thinking/--no-thinking",
            default=None,
            help="Let a model that can think do so before it answers. It needs many tokens.  [default: off]",
        ),
        click.option(
            "--examples",
            type=WholeOrAuto(),
            metavar="N|auto",
            help="Worked examples that the model reads before each prompt.  [default: auto]",
        ),
    ):
        command = option(command)
    return command


def trained_how(command: Command) -> Command:
    """Add --device, --gradient-checkpointing, --learning-rate and --decay-rounds: where and how the steps are taken."""
    for option in (
        click.option(
            "--decay-rounds",
            type=int,
            metavar="N",
            help="Rounds until the rate is half of that.  [default: 100; 0: never]",
        ),
        click.option(
            "--learning-rate", type=NumberOrAuto(), metavar="RATE|auto", help="Adam's learning rate.  [default: auto]"
        ),
        click.option("--gradient-checkpointing", is_flag=True, default=None, help="Use less memory and more time."),
        click.option(
            "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), help="Device to train on.  [default: auto]"
        ),
    ):
        command = option(command)
    return command
