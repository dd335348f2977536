"""Play attacks and judge them: `list`, `run`, `matrix`, `report`."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sapo_node.cli.commands.numbers import Number
from sapo_node.cli.commands.options import Command, as_json, stderr

from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.campaigns.campaign import SHARE, SHARES, Campaign, campaign_names, load_campaign
from sapo_adversary.campaigns.metrics import ABOUT
from sapo_adversary.campaigns.outcome import COLUMNS, Outcome, rows
from sapo_adversary.campaigns.page import page
from sapo_adversary.campaigns.page import pictures as figures
from sapo_adversary.campaigns.play import play
from sapo_adversary.campaigns.table import markdown
from sapo_adversary.commands.engines import with_engine
from sapo_adversary.commands.policies import prepare_for
from sapo_adversary.commands.results import DEFAULT_OUTPUT, folder, with_records
from sapo_adversary.policies import DEFAULT_FOLDER
from sapo_adversary.records import read_results, results_in, to_json, writable_folder, write_whole
from sapo_adversary.simulator.defences import DEFENCES
from sapo_adversary.simulator.engine import Engine
from sapo_protocol import LocalError

Matrix = Literal["full", "quick", "models", "poison"]

_WORST = 6
"""Attacks that are also played at the other shares."""
_SEEDS: Mapping[Matrix, int] = {"full": 5, "quick": 1, "models": 3, "poison": 3}
"""Independent swarms for each cell of a matrix."""
MOST_SEEDS = 1_000
"""Most seeds that one command plays. Each seed takes one swarm per arm, and a swarm takes a minute or more."""
_AT_SEVERAL_SHARES = "poison-text"
"""The poison that is played at several shares of attackers."""
_POISON_SHARES = (0.0625, 0.125, SHARE, 0.5)
_ONE_OUT_SEEDS = 1
"""Swarms in which each gate is left out by itself, of every poison: there are as many such runs as of all others."""
_ADAPTIVE = "-adaptive"
"""How the scenario of an attacker ends who knows the gates."""
_REALTIME_SEEDS = 2
"""At most, for attacks on libp2p: each takes minutes of real time, and the machine for itself."""
_WRITTEN_BY = "`sapo-adversary matrix` or `run`"
_SHOWN = ("reward_lost", "heldout_lost", "poison_share", "violations", "false_bans", "banned", "rounds_to_ban")
_REALTIME_SHOWN = ("delivery", "victim_heard", "victim_hears", "latency_p99", "mesh_honest", "mesh_dark", "honest_cpu")
_POISON_SHOWN = (
    *("heldout_lost", "task_lost", "reward_lost", "trained_share", "says_phrase", "says_trigger", "false_steps"),
    *("longer", "poison_gain", "violations", "false_bans"),
)
_CROWDED_SHOWN = (*_SHOWN, "external", "honest_healthy", "attackers_healthy")


def _played(command: Command) -> Command:
    """Add the options of what plays runs."""
    for option in (
        as_json,
        with_engine,
        with_records,
    ):
        command = option(command)
    return command


@click.command("list")
@as_json
def list_(*, json_output: bool) -> None:
    """List the scenarios, each of them an attack, by their rows in the catalogue of attacks."""
    campaigns = [(campaign, THREATS[campaign.attack]) for campaign in map(load_campaign, campaign_names())]
    if json_output:
        listed = [
            {"id": each.name, "name": each.title, "layer": kind.layer, "row": kind.row, "threat": kind.threat()}
            for each, kind in campaigns
        ]
        click.echo(json.dumps(listed))
        return
    table = Table("row", "scenario", "layer", "threat")
    for each, kind in campaigns:
        table.add_row(str(kind.row), each.name, kind.layer, kind.threat())
    Console().print(table)


@click.command()
@click.argument("scenario")
@click.option("--share", type=Number(0.01, 0.95), default=SHARE, show_default=True, help="Of attackers.")
@click.option("--seeds", type=click.IntRange(1, MOST_SEEDS), default=1, show_default=True, help="Independent swarms.")
@click.option("--models", is_flag=True, help="Real language models in fewer nodes, in place of the stand-in learner.")
@click.option(
    "--without",
    type=click.Choice(sorted(DEFENCES)),
    metavar="DEFENCE",
    multiple=True,
    help="What undefended nodes lack, in place of what the scenario says; may be repeated.",
)
@_played
def run(
    scenario: str,
    *,
    share: float,
    seeds: int,
    models: bool,
    without: tuple[str, ...],
    output: Path,
    records: Path,
    engine: Engine,
    json_output: bool,
) -> None:
    """Play SCENARIO and judge it: one of `sapo-adversary list`, or the path of a TOML file.

    The same honest nodes alone, in an honest swarm, attacked without the defence in question, and attacked with it. A
    run is kept as soon as it is finished: stop at any time, the same command goes on. Exits with 1 where the defence
    does not hold what it promises.

    \b
    sapo-adversary run false-claim
    sapo-adversary run sybil --share 0.5 --seeds 3
    sapo-adversary run poison-text --without "habits gate"
    """  # noqa: D301 - click reads the backspace
    campaign = replace(load_campaign(scenario), scale="models" if models else "full")
    if without:  # harm is asked of an attack without all of its defences
        campaign = replace(campaign, undefended=without, harm={})
    if share != SHARE and not campaign.grows:
        raise click.UsageError(f"{scenario} has a number of attackers of its own: leave --share away")
    _make_folders(output, records)
    _prepare([campaign])
    [outcome] = play(
        [(campaign, share)],
        range(1, seeds + 1),
        records,
        policies=DEFAULT_FOLDER,
        engine=engine,
        console=stderr,
    )
    flag, ending = (" --models", "-models") if models else ("", "")
    for each in without:
        flag, ending = f'{flag} --without "{each}"', f"{ending}-without-{each.replace(' ', '-')}"
    written = _write([outcome], output, campaign.name + ending, f"sapo-adversary run {scenario}{flag}")
    if json_output:
        click.echo(json.dumps(outcome.as_dict()))
    else:
        Console().print(_arms(outcome))
        for verdict in outcome.verdicts():
            Console().print(_line(verdict.met, f"{verdict.arm}: {verdict.metric} {verdict.value:g}, {verdict.bound}"))
        _tell(written)
    _leave([outcome])


@click.command()
@click.option("--quick", is_flag=True, help="Small runs, one seed: whether anything false is ever trained on.")
@click.option("--models", is_flag=True, help="The six worst attacks of matrix.json against real language models.")
@click.option("--poison", is_flag=True, help="Poison in right answers, against real language models.")
@click.option(
    "--seeds",
    type=click.IntRange(1, MOST_SEEDS),
    help="Independent swarms.  [default: 5; 3 of models and poison; 1 when quick]",
)
@_played
def matrix(
    *,
    quick: bool,
    models: bool,
    poison: bool,
    seeds: int | None,
    output: Path,
    records: Path,
    engine: Engine,
    json_output: bool,
) -> None:
    """Play every attack at a quarter of all peers, and the six worst at five shares.

    Attacks on the network are played last, one at a time, on libp2p and real time: at a quarter only, with two seeds at
    most, not with --quick or --models; unlike all others they do not give the same numbers twice. The swarm of a
    thousand peers is left to `sapo-adversary run scale`.

    With --poison: each poison at a quarter, one of them at four shares, and what it does to nodes without gates, and
    without each of them; the latter also where the attacker knows the gates.

    Writes matrix.json, matrix.csv (attack, seed, share, arm, metric, value, verdict) and matrix.html; quick.* with
    --quick, models.* with --models, poison.* with --poison. Hours on two cores; minutes with --quick. Exits with 1
    where a promise is missed.
    """
    if quick + models + poison > 1:
        raise click.UsageError("give --quick, --models or --poison, one of them")
    kind: Matrix = "quick" if quick else "models" if models else "poison" if poison else "full"
    if models:
        file = output / "matrix.json"
        with results_in(file, _WRITTEN_BY):
            names = _at_several_shares(read_results(file, _WRITTEN_BY))
    else:
        names = campaign_names()
    _make_folders(output, records)
    campaigns = [each for each in map(load_campaign, names) if not each.crowded and each.learns is poison]
    if kind != "poison":
        campaigns = [replace(each, scale=kind) for each in campaigns]
    realtime = [campaign for campaign in campaigns if campaign.realtime] if kind == "full" else []
    campaigns = [campaign for campaign in campaigns if not campaign.realtime]
    _prepare(campaigns)
    play_parts = partial(play, records=records, policies=DEFAULT_FOLDER, engine=engine, console=stderr)
    count = seeds or _SEEDS[kind]
    swarms, few = range(1, 1 + count), range(1, 1 + min(count, _REALTIME_SEEDS))
    outcomes = play_parts([(campaign, SHARE) for campaign in campaigns], swarms)
    more: dict[str, Any] = {}
    if kind == "full":
        others = [(campaign, share) for campaign in _worst(outcomes) for share in SHARES if share != SHARE]
        outcomes += play_parts(others, swarms)
    if kind == "poison":
        campaign = load_campaign(_AT_SEVERAL_SHARES)
        outcomes += play_parts([(campaign, share) for share in _POISON_SHARES if share != SHARE], swarms)
        both = [each for each in campaigns if each.name == each.attack or each.name.endswith(_ADAPTIVE)]
        parts = [part for each in both for part in _one_out(each)]
        left_out = play_parts([(part, SHARE) for part in parts], range(1, 1 + _ONE_OUT_SEEDS))
        more["at_25_percent"] = _by_poison(outcomes, left_out)
    outcomes += play_parts([(campaign, SHARE) for campaign in realtime], few)
    flag, name = ("", "matrix") if kind == "full" else (f" --{kind}", kind)
    written = _write(outcomes, output, name, f"sapo-adversary matrix{flag}", more)
    if json_output:
        click.echo(json.dumps([outcome.as_dict() for outcome in outcomes]))
    else:
        Console().print(_overview(outcomes))
        _tell(written)
    _leave(outcomes)


def _make_folders(output: Path, records: Path) -> None:
    """Make both folders before anything is played: hours of play must not end in a folder that nobody can write."""
    for each in (output, records):
        writable_folder(each)


def _prepare(campaigns: Iterable[Campaign]) -> None:
    """Build what policies the nodes begin with, where they are not there yet."""
    prepare_for((campaign.scenario("control") for campaign in campaigns), DEFAULT_FOLDER, stderr)


def _one_out(campaign: Campaign) -> list[Campaign]:
    """The campaign against nodes that go without one of the gates, and with all others."""
    return [replace(campaign, undefended=(gate,)) for gate in campaign.undefended]


def _by_poison(outcomes: Iterable[Outcome], left_out: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """What each poison does to nodes without gates, with them, and with all but one; and the last two where the
    attacker knows them: by seed.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in outcomes:
        if each.share == SHARE:
            place = found.setdefault(_poison_of(each), {})
            if each.campaign.name.endswith(_ADAPTIVE):
                place["adaptive"] = each.values["defended"]
            else:
                place |= {"undefended": each.values["undefended"], "defended": each.values["defended"]}
    for each in left_out:
        [gate] = each.campaign.undefended
        which = "adaptive_without" if each.campaign.name.endswith(_ADAPTIVE) else "without"
        found.setdefault(_poison_of(each), {}).setdefault(which, {})[gate] = each.values["undefended"]
    return found


def _poison_of(outcome: Outcome) -> str:
    return outcome.campaign.name.removeprefix("poison-").removesuffix(_ADAPTIVE).replace("-", "_")


def _worst(outcomes: Sequence[Outcome]) -> list[Campaign]:
    """The attacks that cost an undefended swarm most of its reward, or take most of what it is trained on."""
    harm = {
        each.campaign.name: max(each.mean("undefended", metric) for metric in ("reward_lost", "poison_share"))
        for each in outcomes
    }
    grown = [each.campaign for each in outcomes if each.campaign.grows]
    return sorted(grown, key=lambda campaign: harm[campaign.name], reverse=True)[:_WORST]


def _at_several_shares(summary: Mapping[str, Any]) -> list[str]:
    """The campaigns that a matrix played at several shares of attackers: the worst ones."""
    return sorted({each["campaign"] for each in summary["outcomes"] if each["share"] != SHARE})


@click.command()
@click.argument("file", type=folder, required=False)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table of threats that SECURITY.md shows.")
@click.option("--pictures", type=folder, help="Write the figure of each scenario there as SVG, in place of the page.")
@click.option("--only", multiple=True, metavar="SCENARIO", help="Only the figure of this one; may be repeated.")
def report(file: Path | None, *, as_markdown: bool, pictures: Path | None, only: tuple[str, ...]) -> None:
    """Draw the page of a matrix or a run again from its JSON FILE (by default the matrix), and say where it is."""
    file = file or DEFAULT_OUTPUT / "matrix.json"
    summary = read_results(file, _WRITTEN_BY)
    with results_in(file, _WRITTEN_BY):
        drawn = figures(summary) if pictures else {}
        text = markdown(summary) if as_markdown else page(summary) if not pictures else ""
    if as_markdown:
        click.echo(text, nl=False)
        return
    if pictures:
        if unknown := set(only) - set(drawn):
            raise LocalError(f"{file} has no {', '.join(sorted(unknown))}; it has {', '.join(drawn)}")
        writable_folder(pictures)
        for name in only or drawn:
            write_whole(pictures / f"{name}.svg", drawn[name])
            click.echo(str(pictures / f"{name}.svg"))
        return
    target = file.with_suffix(".html")
    write_whole(target, text)
    click.echo(str(target))


def _write(
    outcomes: Sequence[Outcome], output: Path, name: str, command: str, more: Mapping[str, Any] | None = None
) -> list[Path]:
    summary = {
        "command": command,
        "about": dict(ABOUT),
        "version": version("sapo-node"),
        "outcomes": [outcome.as_dict() for outcome in outcomes],
        **(more or {}),
    }
    written = {
        output / f"{name}.json": to_json(summary),
        output / f"{name}.csv": _csv(outcomes),
        output / f"{name}.html": page(summary),
    }
    for path, text in written.items():
        write_whole(path, text)
    return list(written)


def _csv(outcomes: Iterable[Outcome]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(row for outcome in outcomes for row in rows(outcome))
    return text.getvalue()


def _arms(outcome: Outcome) -> Table:
    table = Table(title=f"{outcome.campaign.title}: {outcome.attackers} of {outcome.peers} peers", title_justify="left")
    table.add_column("metric")
    for arm in outcome.values:
        table.add_column(arm, justify="right")
    table.add_column("what it is", style="dim")
    campaign = outcome.campaign
    shown = (
        *(_REALTIME_SHOWN if campaign.realtime else ()),
        *(_POISON_SHOWN if campaign.learns else ()),
        *(_CROWDED_SHOWN if campaign.crowded else ()),
    )
    for metric in shown or _SHOWN:
        table.add_row(metric, *(f"{outcome.mean(arm, metric):.3g}" for arm in outcome.values), ABOUT[metric])
    return table


def _overview(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="reward lost against the honest swarm, and whether the defence holds", title_justify="left")
    for column in ("row", "attack", "attackers", "undefended", "defended", "poison", "holds"):
        table.add_column(column, justify="left" if column in ("attack", "holds") else "right")
    for each in outcomes:
        missed = [verdict.metric for verdict in each.verdicts() if not verdict.met]
        table.add_row(
            str(each.campaign.row),
            each.campaign.name,
            f"{each.attackers} of {each.peers}",
            *(f"{each.mean(arm, 'reward_lost'):.1%}" for arm in each.values),
            f"{each.mean('defended', 'poison_share'):.1%}",
            _line(not missed, ", ".join(missed)),
        )
    return table


def _line(met: bool, text: str) -> Text:  # noqa: FBT001
    return Text.assemble(("✓ ", "green") if met else ("✗ ", "bold red"), text)


def _tell(written: Iterable[Path]) -> None:
    stderr.print(f"written to {', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def _leave(outcomes: Iterable[Outcome]) -> None:
    if not all(outcome.held and outcome.harmful for outcome in outcomes):
        raise click.exceptions.Exit(1)
