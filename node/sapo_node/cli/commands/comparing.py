"""Measure what a node would have learnt without peers: `alone`."""

from functools import partial
from typing import Any

import click
import trio
from rich.progress import Progress

from sapo_node.app.alone import alone_folder, play_alone
from sapo_node.app.config import Config
from sapo_node.app.state import reading
from sapo_node.app.trained_model import of_checkpoints
from sapo_node.cli.commands.model_options import asked_model, trained_how, trained_model
from sapo_node.cli.commands.options import as_json, configured, fetch_model, folder_of, stderr
from sapo_node.cli.progress import alone_line
from sapo_node.cli.terminal import Terminal, say_json
from sapo_node.observability.overview import Overview, overview
from sapo_protocol import LocalError, load_manifest


@click.command()
@configured
@click.option("--local", type=int, metavar="I", help="Local groups per round.  [default: 4]")
@trained_model
@asked_model
@trained_how
@click.option("--rounds", type=click.IntRange(1), help="Play this many in all.  [default: up to the last evaluation]")
@as_json
def alone(config: Config, *, rounds: int | None, json_output: bool, **options: Any) -> None:
    """Play the rounds of a node once more without peers. This shows what the node would have learnt alone.

    The rounds begin with the same initial weights, and take no external groups. Every 50 rounds (`eval_every`) they are
    evaluated on the same held-out prompts as the node. `status` and the page show both results after the same number of
    rounds. A round alone has other tasks and other samples than the node's, so the intervals of both matter.

    These rounds take as much time and memory as the rounds of the node without external groups. The node may run
    meanwhile, if the machine has room for both. Nothing is published. After Ctrl-C the same command goes on with the
    last checkpoint.

    Give the same options as for `start`, or the same configuration. The node remembers its model and how it is asked.

    \b
    sapo-node alone
    sapo-node alone --rounds 50
    """  # noqa: D301 - click reads the backspace
    manifest, folder = load_manifest(config.swarm), folder_of(config)
    with reading(folder) as database:
        config = of_checkpoints(config, database, options)
        total = rounds or _last_evaluation(overview(database))
    fetch_model(config)
    with Progress(console=stderr, transient=True, disable=json_output) as progress:
        bar = progress.add_task("rounds alone", total=total)
        played = partial(progress.update, bar)
        trio.run(
            partial(play_alone, config, manifest, folder, rounds=total, on_round=lambda step: played(completed=step))
        )
    with reading(folder) as database:
        view = overview(database)
    if json_output:
        say_json({"rounds": total, "alone": view.alone, "beside": view.beside})
    elif view.beside:
        Terminal().print(alone_line(*view.beside))
    else:
        stderr.print(
            f"rounds played alone: {total}, in {alone_folder(folder).path}; there is nothing to compare until both "
            f"were evaluated after the same round: play more rounds alone, or let the node play on",
            highlight=False,
            soft_wrap=True,
        )


def _last_evaluation(view: Overview) -> int:
    """The round of the node's last evaluation. Raises LocalError if there is none after the first round."""
    last = view.evaluations[-1]["step"] if view.evaluations else 0
    if not last:
        raise LocalError(
            "the node has not been evaluated after a round yet, so there is nothing to compare: let it play up to the "
            "first evaluation (`eval_every` rounds, 50 by default), or give --rounds"
        )
    return int(last)
