"""List the scenarios, play one of them and judge it: `list`, `run`."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import click
from rich.table import Table

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.cli.played import (
    MOST_SEEDS,
    exit_by_verdicts,
    make_folders,
    on_device,
    played,
    show_written,
    verdict_line,
    warn_of_versions,
    write_results,
)
from sapo_adversary.scenarios.metrics import ABOUT
from sapo_adversary.scenarios.outcome import Outcome
from sapo_adversary.scenarios.play import play
from sapo_adversary.scenarios.scenario import SHARE, Arm, Scenario, load_scenario, scenario_names, with_keys
from sapo_adversary.simulator.engine import Engine
from sapo_adversary.simulator.runs import default_policies
from sapo_adversary.simulator.simulation import MOST_PEERS, Device
from sapo_node.cli.commands.options import Number, as_json, stderr
from sapo_node.cli.terminal import Terminal

_SHOWN = ("reward_lost", "heldout_lost", "poison_share", "violations", "false_bans", "banned", "rounds_to_ban")
_REALTIME_SHOWN = ("delivery", "victim_heard", "victim_hears", "latency_p99", "mesh_honest", "mesh_dark", "honest_cpu")
_POISON_SHOWN = (
    *("heldout_lost", "task_lost", "reward_lost", "trained_share", "says_phrase", "says_trigger", "false_steps"),
    *("longer", "poison_gain", "violations", "false_bans"),
)
_CROWDED_SHOWN = (*_SHOWN, "external", "honest_healthy", "attackers_healthy")
_STRANGERS_SHOWN = ("reward", "of_friends", "honest_external")


@click.command("list")
@as_json
def list_(*, json_output: bool) -> None:
    """List the scenarios, each with its layer and its threat."""
    scenarios = [load_scenario(name) for name in scenario_names()]
    if json_output:
        listed = [
            {
                "id": each.name,
                "name": each.title,
                "attack": each.attack,
                "layer": each.layer,
                "threat": each.threat,
            }
            for each in scenarios
        ]
        click.echo(json.dumps(listed))
        return
    table = Table("scenario", "layer", "threat")
    for each in scenarios:
        table.add_row(each.name, each.layer, each.threat)
    Terminal().print(table)


@click.command()
@click.argument("name", metavar="SCENARIO")
@click.option(
    "--share", type=Number(0.01, 0.95), default=SHARE, show_default=True, help="Share of all peers that attack."
)
@click.option("--seeds", type=click.IntRange(1, MOST_SEEDS), default=1, show_default=True, help="Independent swarms.")
@click.option("--models", is_flag=True, help="Real language models in fewer nodes, in place of the stand-in learner.")
@click.option(
    "--keys",
    type=click.IntRange(1, MOST_PEERS // 2),
    help="Keys over which the attackers split the same messages. new-keys, cherry-pick and equivocation-minting bound "
    "the messages of each key, and send another number of them. Default: one for each attacker.",
)
@click.option("--strangers", is_flag=True, help="No peer is trusted at the start, attacker or not.")
@on_device
@click.option(
    "--without",
    type=click.Choice(sorted(DEFENCES)),
    metavar="DEFENCE",
    multiple=True,
    help="Defence that undefended nodes lack, in place of those that the scenario names; may be repeated.",
)
@played
def run(
    name: str,
    *,
    share: float,
    seeds: int,
    models: bool,
    keys: int | None,
    strangers: bool,
    device: Device,
    without: tuple[str, ...],
    output: Path,
    records: Path,
    engine: Engine,
    json_output: bool,
) -> None:
    """Play SCENARIO and judge it. It is one of `sapo-adversary list`, or the path of a TOML file.

    The same honest nodes play four arms: alone, in an honest swarm, attacked without the defences that the scenario
    names, and attacked with all defences. Strangers also play the honest swarm with everybody trusted. The command
    writes the record of a run as soon as the run is finished. Stop it at any time: the same command continues. Exits
    with 1 where the defence does not hold what it promises.

    \b
    sapo-adversary run false-claim
    sapo-adversary run sybil --share 0.5 --seeds 3
    sapo-adversary run poison-text --without "n-gram filter"
    sapo-adversary run poison-text-adaptive --keys 64 --strangers
    """  # noqa: D301 - click reads the backspace
    scenario = replace(load_scenario(name), scale="models" if models else "full")
    if without:  # harm is asked of an attack without all of its defences
        scenario = replace(scenario, undefended=without, harm={})
    if keys:
        scenario = with_keys(scenario, keys)
    scenario = replace(scenario, strangers=strangers, device=device)
    _require_effect(scenario, share, keys)
    make_folders(output, records)
    [outcome] = play(
        [(scenario, share)],
        range(1, seeds + 1),
        records,
        policies=default_policies(),
        engine=engine,
        console=stderr,
    )
    flags, ending = _named(outcome, keys, without)
    command = shlex.join(["sapo-adversary", "run", name, *flags])
    warn_of_versions([outcome.versions], records)
    written = write_results([outcome], output, scenario.name + ending, command)
    if json_output:
        click.echo(json.dumps(outcome.as_dict()))
    else:
        _show(outcome)
        show_written(written)
    if (share != SHARE or models) and (scenario.harm or scenario.holds):
        asked = f"harm, and what holds adds to the promises, are asked at a share of {SHARE} only, and without --models"
        stderr.print(f"{name}: {asked}", soft_wrap=True)
    exit_by_verdicts([outcome])


def _require_effect(scenario: Scenario, share: float, keys: int | None) -> None:
    """Raises click.UsageError for an option without an effect on a scenario."""
    name = scenario.name
    if share != SHARE and not scenario.grows:
        raise click.UsageError(f"{name} has a number of attackers of its own: leave --share away")
    if not scenario.attack and (keys or share != SHARE):
        raise click.UsageError(f"nobody attacks in {name}: leave --keys and --share away")
    if scenario.device != "cpu" and not (scenario.scale == "models" or scenario.learns):
        raise click.UsageError(f"no language model learns in {name}: leave --device away, or add --models")
    for defence in scenario.undefended:
        if not _have(scenario, defence):
            hint = "" if scenario.scale == "models" or scenario.learns else "; only language models have most filters"
            raise click.UsageError(f"the nodes of {name} have no {defence} to go without{hint}")


def _have(scenario: Scenario, defence: str) -> bool:
    """Return whether nodes without a defence differ from those of the defended arm."""
    if DEFENCES[defence].network and not scenario.realtime:
        return False
    without = replace(scenario, undefended=(defence,)).simulation("undefended")
    return without.digest() != scenario.simulation("defended").digest()


def _named(outcome: Outcome, keys: int | None, without: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the options that change the results and were given, and the ending of the results' names. More seeds are
    of the same results, and keep their name.
    """
    scenario, share, seeds = outcome.scenario, outcome.share, len(outcome.seeds)
    said = [
        (share != SHARE, ["--share", str(share)], f"-share-{share}"),
        (seeds > 1, ["--seeds", str(seeds)], ""),
        (scenario.scale == "models", ["--models"], "-models"),
        (keys, ["--keys", str(keys)], f"-{keys}-keys"),
        (scenario.strangers, ["--strangers"], "-strangers"),
        (scenario.device != "cpu", ["--device", scenario.device], f"-{scenario.device}"),
        *((True, ["--without", each], f"-without-{each.replace(' ', '-')}") for each in without),
    ]
    flags = [word for given, words, _ in said if given for word in words]
    return flags, "".join(ending for given, _, ending in said if given)


def _show(outcome: Outcome) -> None:
    console = Terminal()
    console.print(_arms(outcome))
    for verdict in outcome.verdicts():
        value = f"{verdict.value:g}, " if outcome.by_seed(verdict.arm, verdict.metric) else ""
        console.print(verdict_line(verdict.met, f"{verdict.arm}: {verdict.metric} {value}{verdict.bound}"))


def _arms(outcome: Outcome) -> Table:
    title = f"{outcome.scenario.title}: {outcome.attackers} of {outcome.peers} peers"
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for arm in outcome.values:
        table.add_column(arm, justify="right")
    table.add_column("what it is", style="dim")
    for metric in _shown(outcome.scenario):
        table.add_row(metric, *(_cell(outcome, arm, metric) for arm in outcome.values), ABOUT[metric])
    return table


def _cell(outcome: Outcome, arm: Arm, metric: str) -> str:
    """The mean of a metric; empty where no run tells it."""
    return f"{outcome.mean(arm, metric):.3g}" if outcome.by_seed(arm, metric) else ""


def _shown(scenario: Scenario) -> tuple[str, ...]:
    """The metrics that a table shows: what the scenario is about."""
    shown = (
        *(_REALTIME_SHOWN if scenario.realtime else ()),
        *(_POISON_SHOWN if scenario.learns else ()),
        *(_CROWDED_SHOWN if scenario.crowded else ()),
    )
    return (*(shown or _SHOWN), *(_STRANGERS_SHOWN if "friends" in scenario.arms else ()))
