"""Plays campaigns: every arm at every share and seed, each run once, and the outcomes of all of them."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sapo_adversary.campaigns.campaign import ARMS, Arm, Campaign
from sapo_adversary.campaigns.outcome import Outcome, outcome_of
from sapo_adversary.records import results_in
from sapo_adversary.simulator.engine import Engine, ThisMachine
from sapo_adversary.simulator.runs import load_record, play_all
from sapo_adversary.simulator.scenario import Scenario

Part = tuple[Campaign, float]
"""A campaign at one share of attackers."""


def play(
    parts: Sequence[Part],
    seeds: Sequence[int],
    records: Path,
    *,
    policies: Path,
    engine: Engine,
    console: Console,
) -> list[Outcome]:
    """Run what has no record in the folder yet, then judge."""
    wanted = {
        scenario.digest(): scenario for seed in seeds for part in parts for scenario in _runs(part, seed).values()
    }
    realtime = [scenario for scenario in wanted.values() if scenario.network == "libp2p"]
    virtual = [scenario for scenario in wanted.values() if scenario.network == "memory"]
    play_all(virtual, records, policies=policies, engine=engine, console=console)
    # Each needs a machine for itself, with nothing beside it.
    play_all(realtime, records, policies=policies, engine=ThisMachine(jobs=1), console=console)
    return [_judged(part, seeds, records) for part in parts]


def _runs(part: Part, seed: int) -> dict[Arm, Scenario]:
    campaign, share = part
    return {arm: campaign.scenario(arm, share=share, seed=seed) for arm in ARMS}


def _judged(part: Part, seeds: Sequence[int], records: Path) -> Outcome:
    played = [_runs(part, seed) for seed in seeds]
    found = {arm: [load_record(records, runs[arm]) for runs in played] for arm in ARMS}
    with results_in(records, "remove them, and new runs"):
        return outcome_of(*part, seeds, found)
