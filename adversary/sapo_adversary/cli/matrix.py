"""Play the scenarios of a matrix and judge them: `matrix`."""

import json
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from rich.table import Table

from sapo_adversary.cli.played import (
    MOST_SEEDS,
    WRITTEN_BY,
    exit_by_verdicts,
    make_folders,
    played,
    show_written,
    verdict_line,
    warn_of_versions,
    write_results,
)
from sapo_adversary.files import read_results, results_in
from sapo_adversary.scenarios.matrices import (
    MATRICES,
    SEEDS,
    WITH_KEYS,
    Matrix,
    PlayParts,
    at_several_shares,
    judged_by,
    names_of,
    play_matrix,
    scenarios_of,
)
from sapo_adversary.scenarios.outcome import ATTACKED, NOT_MEASURED, Outcome
from sapo_adversary.scenarios.play import play, recorded
from sapo_adversary.scenarios.scenario import Arm
from sapo_adversary.simulator.engine import Engine
from sapo_adversary.simulator.runs import default_policies
from sapo_adversary.simulator.simulation import MOST_PEERS
from sapo_node.cli.commands.options import stderr
from sapo_node.cli.terminal import Terminal
from sapo_protocol import LocalError


@click.command()
@click.argument("kind", type=click.Choice(MATRICES), default="full", metavar="[full|quick|models|poison|keys|ablation]")
@click.option(
    "--seeds",
    type=click.IntRange(1, MOST_SEEDS),
    help="Independent swarms.  [default: 5 of full, 1 of quick, 3 of all others]",
)
@click.option("--only", multiple=True, metavar="SCENARIO", help="Play only this scenario; may be repeated.")
@click.option(
    "--keys",
    type=click.IntRange(1, MOST_PEERS // 2),
    multiple=True,
    help="Number of keys, of the matrices keys and ablation; may be repeated.  [default: those of each scenario]",
)
@click.option("--recorded", "only_recorded", is_flag=True, help="Play nothing; judge the runs that have a record.")
@played
def matrix(
    kind: Matrix,
    *,
    seeds: int | None,
    only: tuple[str, ...],
    keys: tuple[int, ...],
    only_recorded: bool,
    output: Path,
    records: Path,
    engine: Engine,
    json_output: bool,
) -> None:
    """Play many scenarios, and judge what each attack does.

    \b
    full    every scenario with attackers as a quarter of all peers, and the six worst at five shares; hours on two
            cores. Scenarios on libp2p come last, one at a time and on real time, at a quarter only and with at most two
            seeds. Their numbers differ from run to run. The swarm of a thousand peers is left to `run scale`.
    quick   the same in small runs, without libp2p: whether anything false is ever trained on; minutes
    models  the six worst scenarios of matrix.json with real language models
    poison  each poison at a quarter, one of them at four shares, against nodes with all filters and without filters
    keys    each poison of an attacker who knows the filters, trusted and as a stranger, and swarms of strangers, with
            several numbers of attackers' keys
    ablation
            poisons with several numbers of keys, against nodes that go without some of the filters that could stop them

    Writes matrix.json, matrix.csv (attack, seed, share, arm, metric, value, verdict; attackers, strangers and without
    tell apart runs of one attack) and matrix.html; the files of the other matrices have their names. Exits with 1 where
    a promise is missed.
    """  # noqa: D301 - click reads the backspace
    if keys and kind not in WITH_KEYS:
        raise click.UsageError(f"--keys is of the matrices {' and '.join(WITH_KEYS)}; leave it away")
    names = _worst_of(output / "matrix.json") if kind == "models" else names_of(kind)
    if unknown := sorted(set(only) - set(names)):
        raise LocalError(f"the matrix {kind} has no {', '.join(unknown)}; it has {', '.join(names)}")
    make_folders(output, records)
    scenarios = scenarios_of(kind, [each for each in names if each in only or not only], keys)
    if only_recorded:
        play_parts: PlayParts = partial(recorded, records=records)
    else:
        play_parts = partial(play, records=records, policies=default_policies(), engine=engine, console=stderr)
    outcomes, more = play_matrix(kind, scenarios, seeds or SEEDS[kind], play_parts)
    if not outcomes:
        raise LocalError(f"{records} has no seed with all its runs; name their folder with --records, or play them")
    warn_of_versions((each.versions for each in outcomes), records)
    name, command = "matrix" if kind == "full" else kind, _command(kind, seeds, only, keys, only_recorded=only_recorded)
    written = write_results(outcomes, output, name, command, more)
    if json_output:
        click.echo(json.dumps([outcome.as_dict() for outcome in outcomes]))
    else:
        Terminal().print(_overview(outcomes))
        show_written(written)
    exit_by_verdicts(outcomes)


def _command(kind: Matrix, seeds: int | None, only: Sequence[str], keys: Sequence[int], *, only_recorded: bool) -> str:
    """The command that writes the same results."""
    words = [
        *([] if kind == "full" else [kind]),
        *([] if seeds in (None, SEEDS[kind]) else ["--seeds", str(seeds)]),
        *(word for each in only for word in ("--only", each)),
        *(word for each in keys for word in ("--keys", str(each))),
        *(["--recorded"] if only_recorded else []),
    ]
    return shlex.join(["sapo-adversary", "matrix", *words])


def _worst_of(file: Path) -> list[str]:
    """The scenarios that the full matrix found worst."""
    with results_in(file, WRITTEN_BY):
        return at_several_shares(read_results(file, WRITTEN_BY))


def _overview(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="reward lost against the honest swarm, and whether the defence holds", title_justify="left")
    for column in ("scenario", "attackers", *ATTACKED, "poison", "measured, defended", "holds"):
        table.add_column(column, justify="right" if column in ("attackers", *ATTACKED, "poison") else "left")
    for each in outcomes:
        missed = [verdict.metric for verdict in each.verdicts() if not verdict.met]
        table.add_row(
            each.scenario.label,
            f"{each.attackers} of {each.peers}",
            *(_cell(each, arm, "reward_lost", ".1%") if arm in each.values else "" for arm in ATTACKED),
            _cell(each, "defended", "poison_share", ".1%"),
            ", ".join(f"{name} {_cell(each, 'defended', name, '.3g')}" for name in judged_by(each.scenario.name)),
            verdict_line(not missed, ", ".join(missed)),
        )
    return table


def _cell(outcome: Outcome, arm: Arm, metric: str, form: str) -> str:
    return format(outcome.mean(arm, metric), form) if outcome.by_seed(arm, metric) else NOT_MEASURED
