"""`python -m research.gossip_cost`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress
from rich.table import Table

from research.gossip_cost.cost import MEASURED, MESSAGES, Swarm, measure
from sapo_adversary.cli.played import to_output
from sapo_adversary.files import to_json, writable_folder, write_whole
from sapo_node.cli.commands.options import Number, as_json, run_command_line, stderr
from sapo_node.cli.terminal import Terminal
from sapo_protocol.limits import MAX_SHARDS

_MOST_PEERS = 100_000
"""Larger swarms cost the same sum with other numbers."""


@click.command()
@click.option(
    "--peers",
    "sizes",
    type=click.IntRange(2, _MOST_PEERS),
    multiple=True,
    default=(100, 1_000, 10_000),
    show_default=True,
    help="Peers of the swarm; may be repeated.",
)
@click.option(
    "--round-seconds", type=Number(1, 86_400), default=30.0, show_default=True, help="Seconds of a round of every peer."
)
@click.option(
    "--kilobytes", type=click.Choice(sorted(MEASURED)), default=32, show_default=True, help="Size of a message."
)
@click.option(
    "--megabits",
    type=Number(1, 1_000_000),
    default=100.0,
    show_default=True,
    help="Megabits per second that each peer can send.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Random seed of the meshes.")
@to_output
@as_json
def gossip_cost(
    sizes: tuple[int, ...],
    *,
    round_seconds: float,
    kilobytes: int,
    megabits: float,
    seed: int,
    output: Path,
    json_output: bool,
) -> None:
    """Estimate what gossip costs a node in a large swarm.

    The estimate says what a node receives, sends and spends, and how fast a message is. The command makes meshes by the
    rules of nodes and sends messages through them one at a time. CPU is estimated from measurements of real nodes. A
    swarm that is too large for one topic is also shown with the greatest number of shards that a manifest may have.
    Each swarm is shown with whole messages, with bodies that nodes fetch, and with the rounds that its peers then
    publish. Takes some minutes for ten thousand peers.

    \b
    python -m research.gossip_cost
    python -m research.gossip_cost --peers 300 --round-seconds 10 --kilobytes 128
    """  # noqa: D301 - click reads the backspace
    writable_folder(output)
    swarms = [Swarm(peers, round_seconds, kilobytes, megabits) for peers in sizes]
    spread = [replace(swarm, shards=MAX_SHARDS) for swarm in swarms]
    swarms += [swarm for swarm in spread if swarm.heard < swarm.shards]
    with Progress(console=stderr) as progress:
        bar = progress.add_task("messages", total=3 * len(swarms) * (1 + MESSAGES))
        found = []
        for swarm in swarms:
            found.append(measure(swarm, seed=seed, done=lambda: progress.advance(bar)))
            fetching = replace(swarm, fetches=True)
            found.append(measure(fetching, seed=seed, done=lambda: progress.advance(bar)))
            by_need = fetching.by_need(found[-1]["connected_on_topic"])
            if by_need.interval > 1:
                found.append(measure(by_need, seed=seed, done=lambda: progress.advance(bar)))
    line = f"--round-seconds {round_seconds:g} --kilobytes {kilobytes} --megabits {megabits:g} --seed {seed}"
    command = " ".join(["python -m research.gossip_cost", *(f"--peers {each}" for each in sizes), line])
    summary = {"command": command, "swarms": found}
    write_whole(output / "gossip_cost.json", to_json(summary))
    if json_output:
        click.echo(json.dumps(summary))
    else:
        Terminal().print(_table(found))
    stderr.print(f"written to {output / 'gossip_cost.json'}", highlight=False, soft_wrap=True)


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(
        title="what gossip costs one node, and when 99 % have a message",
        title_justify="left",
    )
    columns = ("peers", "topics", "bodies", "rounds", "heard/s", "copies", "kB/s", "CPU", "99 %", "company")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for each in found:
        table.add_row(
            f"{each['peers']:,}",
            f"{each['heard']} of {each['shards']}",
            "fetched" if each["fetches"] else "sent",
            f"1/{each['interval']}",
            f"{each['messages_per_second']:.1f}",
            f"{each['copies']:.1f}",
            f"{(each['bytes_per_second'] + each['offer_bytes_per_second']) / 1e3:,.0f}",
            f"{each['cpu']:.0%}",
            "never" if each["seconds_to_99"] is None else f"{each['seconds_to_99']:.1f} s",
            "" if each["seconds_to_company"] is None else f"{each['seconds_to_company']:.0f} s",
        )
    return table


if __name__ == "__main__":
    run_command_line(gossip_cost)
