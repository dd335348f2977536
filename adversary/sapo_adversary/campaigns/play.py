"""Plays campaigns: every arm at every share and seed, each run once, and the outcomes of all of them."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sapo_adversary.campaigns.campaign import ARMS, Campaign
from sapo_adversary.campaigns.outcome import Outcome, outcome_of
from sapo_adversary.simulator.engine import Engine, ThisMachine
from sapo_adversary.simulator.runs import load_record, play_all, record_path

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
        scenario.digest(): scenario
        for seed in seeds
        for campaign, share in parts
        for scenario in (campaign.scenario(arm, share=share, seed=seed) for arm in ARMS)
    }
    realtime = [scenario for scenario in wanted.values() if scenario.network == "libp2p"]
    virtual = [scenario for scenario in wanted.values() if scenario.network == "memory"]
    play_all(virtual, records, policies=policies, engine=engine, console=console)
    # Each needs a machine for itself, with nothing beside it.
    play_all(realtime, records, policies=policies, engine=ThisMachine(jobs=1), console=console)
    return [_judged(part, seeds, records) for part in parts]


def recorded(parts: Sequence[Part], seeds: Sequence[int], records: Path) -> list[Outcome]:
    """Judge what has a record in the folder: of each part the seeds that were played in every arm, and no part without
    any.
    """
    found = [(part, [seed for seed in seeds if _complete(part, seed, records)]) for part in parts]
    return [_judged(part, played, records) for part, played in found if played]


def _complete(part: Part, seed: int, records: Path) -> bool:
    campaign, share = part
    return all(record_path(records, campaign.scenario(arm, share=share, seed=seed)).exists() for arm in ARMS)


def _judged(part: Part, seeds: Sequence[int], records: Path) -> Outcome:
    campaign, share = part
    return outcome_of(
        campaign,
        share,
        seeds,
        {arm: [load_record(records, campaign.scenario(arm, share=share, seed=seed)) for seed in seeds] for arm in ARMS},
    )
