"""`python -m research.soak`."""

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from research.router_lab import Lab, reason_without
from research.soak.play import STAY, Soak, play
from research.soak.report import report
from sapo_adversary.cli.played import to_output
from sapo_adversary.files import to_json, writable_folder, write_whole
from sapo_node.cli.commands.options import PATH, Number, as_json, run_command_line, stderr
from sapo_node.cli.terminal import Terminal
from sapo_protocol import LocalError


@click.command()
@click.option("--minutes", type=Number(5.0, 44_640.0), default=120.0, show_default=True, help="Duration in minutes.")
@click.option(
    "--nodes", type=click.IntRange(STAY + 1, 32), default=6, show_default=True, help="Number of nodes that train."
)
@click.option("--seed", default=1, show_default=True, help="Random seed for the fault schedule.")
@click.option("--routers", is_flag=True, help="Put most nodes behind routers, in network namespaces; needs root.")
@click.option("--folder", type=PATH, help="Keep states, logs and samples in this folder.")
@to_output
@as_json
def soak(
    *, minutes: float, nodes: int, seed: int, routers: bool, folder: Path | None, output: Path, json_output: bool
) -> None:
    """Run a swarm for hours, and measure what grows.

    It also measures which nodes do not recover from a fault.

    Nodes are real processes over real libp2p on loopback. With --routers, every third node has an address of the
    Internet, and the others meet through these. About once a minute the command kills, stops for half a
    minute or freezes one node, or kills its learner or sandbox. Two nodes are left alone: the command measures their
    memory and open files. Two attackers at a time send false claims, forged messages, copies and garbage, each for a
    few minutes under a key of its own.

    Writes soak.json. Exits with 1 where a node ended by itself or did not recover, where a node banned another
    or took back its groups, or where a line of a log has no explanation.
    """
    writable_folder(output)
    if routers and (reason := reason_without()):
        raise LocalError(f"{reason}; leave out --routers")
    with ExitStack() as stack:
        place = writable_folder(folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sapo-soak-"))))
        if any(place.iterdir()):
            raise LocalError(f"the folder {place} is not empty; give one that is, or a new one")
        lab = stack.enter_context(Lab()) if routers else None
        soaked = Soak(place, nodes=nodes, seconds=60 * minutes, seed=seed, lab=lab)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
        with Progress(*columns, console=stderr) as progress:
            bar = progress.add_task(f"{nodes} nodes", total=60 * minutes)

            def advance(over: float) -> None:
                told = f"{sum(each.step for each in soaked.members)} rounds, {len(soaked.record.faults)} faults"
                progress.update(bar, completed=over, description=told)

            play(soaked, advance)
        found = report(soaked, place)
    command = f"python -m research.soak --minutes {minutes:g} --nodes {nodes} --seed {seed}{' --routers' * routers}"
    write_whole(output / "soak.json", to_json({"command": command, **found}))
    if json_output:
        click.echo(json.dumps(found))
    else:
        _show(found)
    accused = found["banned_nodes"] or any(found["taken_back_of_nodes"].values())
    if found["deaths"] or found["not_recovered"] or accused or found["unexplained"]:
        click.get_current_context().exit(1)


def _show(found: dict[str, Any]) -> None:
    console = Terminal()
    table = Table("node", "process", "memory, MiB", "an hour, MiB", "open files", "an hour")
    for each in found["growth"]:
        table.add_row(
            each["node"],
            each["process"],
            f"{each['mebibytes']:.0f}",
            _interval(each["mebibytes_per_hour"]),
            str(each["files"]),
            _interval(each["files_per_hour"]),
        )
    console.print(table)
    faults = ", ".join(f"{count} {fault}" for fault, count in found["faults"].items()) or "none"
    console.print(f"faults: {faults}; the slowest was back after {found['slowest_recovery_seconds']} s")
    console.print(f"attackers: {found['attackers']}, of whom {found['banned']} were banned by at least one node")
    console.print(f"taken back: {found['taken_back_of_attackers']} groups of attackers")
    for name, count in found["taken_back_of_nodes"].items():
        if count:
            console.print(f"taken back: {count} groups of {name}, which is honest", style="red")
    for what in ("deaths", "not_recovered"):
        for each in found[what]:
            console.print(f"{what}: {each}", style="red")
    for line, count in found["unexplained"].items():
        console.print(f"unexplained, {count} times: {line}", style="yellow")


def _interval(value: dict[str, float]) -> str:
    return f"{value['slope']:+.2f} ({value['low']:+.2f} to {value['high']:+.2f})"


if __name__ == "__main__":
    run_command_line(soak)
