"""Show and check tasks: `task list`, `task show`, `task check`, `task file`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import click
import trio
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sapo_node.cli.commands.group import Group
from sapo_node.cli.commands.options import SectionedCommand, as_json, option, stderr
from sapo_node.cli.commands.task_file import file_
from sapo_node.cli.tasks.check import Finding, Outcome
from sapo_node.cli.tasks.check import check as findings_of
from sapo_node.cli.tasks.chosen import Chosen, chosen
from sapo_node.cli.tasks.show import View, view
from sapo_node.cli.terminal import Terminal, say_json
from sapo_node.groups.prompt import MAX_EXAMPLES
from sapo_node.tasks import catalogue
from sapo_node.tasks.build import MAX_SEED
from sapo_protocol import LocalError, load_manifest, shipped_manifests
from sapo_protocol.limits import MAX_LEVELS

_OUTCOMES = {Outcome.PASSED: ("✓", "green"), Outcome.FAILED: ("✗", "bold red"), Outcome.SKIPPED: ("·", "yellow")}
_NAME = 16
"""Columns of the first column of `show` and `check`."""


@click.group(cls=Group, short_help="the tasks of a swarm, and your own")
def task() -> None:
    """Look at tasks, and check one of your own before a swarm uses it.

    \b
    sapo-node task list
    sapo-node task show chain_sum --config 'max_terms = 2' --answer 12
    sapo-node task show chain_sum --swarm starter
    sapo-node task check ./my_task.py --config 'max = 9' --levels 7
    sapo-node task file problems.jsonl --scorer number

    docs/extend/adding-a-task.md explains how to write one.
    """  # noqa: D301 - click reads the backspace


_CONFIG = option("--config", metavar="TOML|JSON", help="Its configuration, as in 'max = 9'. Without it: the defaults.")
_SWARM = option("--swarm", metavar="NAME|FILE", help="Take configuration and levels from the manifest of this swarm.")
_LEVELS = option(
    "--levels", type=click.IntRange(1, MAX_LEVELS), help="Level of a correct answer. Without it: 1, or of the swarm."
)


@task.command("list", cls=SectionedCommand)
@as_json
def list_tasks(*, json_output: bool) -> None:
    """List every data set that this machine can build: of reasoning-gym, of the wire spec, and of installed packages.

    \b
    answer   what the scorer accepts
    graded   the scorer gives shares: a manifest may give the task several levels
    swarms   the shipped swarms that have the task
    """  # noqa: D301 - click reads the backspace
    swarms = {name: {spec.dataset for spec in load_manifest(name).tasks} for name in shipped_manifests()}
    rows = [(entry, [name for name, tasks in swarms.items() if entry.dataset in tasks]) for entry in catalogue()]
    if json_output:
        say_json([asdict(entry) | {"swarms": names} for entry, names in rows])
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("dataset", no_wrap=True)
    for column in ("answer", "graded", "swarms"):
        table.add_column(column)
    source = ""
    for entry, names in rows:
        if entry.source != source:
            source = entry.source
            table.add_section()
            table.add_row(Text(f"of {source}", "bold"))
        graded = "?" if entry.graded is None else "yes" if entry.graded else ""
        table.add_row(entry.dataset, entry.answer or "its module decides", graded, ", ".join(names))
    Terminal().print(table)


@task.command(cls=SectionedCommand)
@click.argument("named", metavar="DATASET|FILE.py")
@_CONFIG
@_SWARM
@_LEVELS
@option("--seed", type=click.IntRange(0, MAX_SEED), default=1, help="The item.")
@option("--examples", type=click.IntRange(0, MAX_EXAMPLES), default=1, help="Worked examples before the prompt.")
@option("--answer", metavar="TEXT", help="Say what this answer earns, and why: the text between the tags, or all.")
@as_json
def show(
    named: str,
    *,
    config: str | None,
    swarm: str | None,
    levels: int | None,
    seed: int,
    examples: int,
    answer: str | None,
    json_output: bool,
) -> None:
    """Show an item as a model sees it: system prompt, worked examples, prompt. Then the reference answer, other forms
    of it that are accepted, and what an answer of yours earns.

    \b
    sapo-node task show products
    sapo-node task show products --swarm starter --seed 5 --answer '**1,024**'
    sapo-node task show ./my_task.py --config 'max = 9' --levels 7
    """  # noqa: D301 - click reads the backspace
    with chosen(named, config, swarm, levels) as found:
        shown = view(found, seed, examples, answer)
    if json_output:
        say_json(asdict(shown))
        return
    terminal = Terminal()
    for line in _lines(shown):
        terminal.print(line)


def _lines(shown: View) -> Iterator[RenderableType]:
    """Yield each part of the view under its title."""
    levels = "1 level" if shown.levels == 1 else f"{shown.levels} levels"
    facts = f", seed {shown.seed}, {levels}, configuration {json.dumps(shown.config)}\n"
    yield Text.assemble((shown.dataset, "bold"), facts)
    for message in shown.messages:
        yield _part(message["role"], message["content"])
    yield _part("reference", shown.answer)
    if shown.earned < shown.levels:
        yield _part("", f"it earns level {shown.earned} of {shown.levels}: the dataset's own answer is incorrect here")
    for number, form in enumerate(shown.forms):
        yield _part("" if number else "also accepted", form)
    if shown.given:
        yield _part("your answer", shown.given.text)
        yield _part("", f"earns level {shown.given.level} of {shown.levels}: {shown.given.reason}")


def _part(title: str, text: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=_NAME)
    table.add_column()
    table.add_row(Text(title, "bold"), Text(text))
    return table


@task.command(cls=SectionedCommand)
@click.argument("named", metavar="DATASET|FILE.py")
@_CONFIG
@_SWARM
@_LEVELS
@option("--items", type=click.IntRange(20, 10_000), default=200, help="Items to build.")
@as_json
def check(
    named: str, *, config: str | None, swarm: str | None, levels: int | None, items: int, json_output: bool
) -> None:
    """Check a task as a swarm will use it. The exit code is 1 if a check fails.

    \b
    items, speed       every seed gives an item, every answer a verdict, quickly
    lengths            prompts, references and examples are within the limits
    reference          the reference answer earns the highest level
    hostile answers    code, foreign digits and floods of one sign earn nothing
    constant answers   no answer earns more than .15 without reading the prompt
    catalogue          a data set of reasoning-gym has the items that are known
    again, in reverse order, python3.12 ...
                       items and rewards are the same with another hash seed,
                       in another order, and with each other Python on this
                       machine that has sapo-node
    sandbox            the task runs confined, where it can import no module
                       and open no file

    \b
    sapo-node task check chain_sum
    sapo-node task check ./my_task.py --config 'max = 9' --levels 7
    """  # noqa: D301 - click reads the backspace
    with chosen(named, config, swarm, levels) as found:
        if found.rows:
            raise LocalError(f"the items of {named} are rows of a file, which `sapo-node task file` checks")
        trio.run(partial(_check, found, items, json_output=json_output))


async def _check(found: Chosen, items: int, *, json_output: bool) -> None:
    findings: list[Finding] = []
    with stderr.status("starting") as status:
        async for finding in findings_of(found, items, status.update):
            findings.append(finding)
            if not json_output:
                status.stop()  # or the row would begin behind the line of progress
                Terminal().print(_row(finding))
                status.start()
    if json_output:
        say_json([asdict(finding) for finding in findings])
    if any(finding.outcome is Outcome.FAILED for finding in findings):
        raise click.exceptions.Exit(1)


def _row(finding: Finding) -> Table:
    mark, style = _OUTCOMES[finding.outcome]
    text = Text(finding.text)
    if finding.advice:
        text.append(f"\n{finding.advice}", "yellow")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=_NAME)
    table.add_column()
    table.add_row(Text(mark, style), Text(finding.check, "bold"), text)
    return table


task.add_command(file_)
