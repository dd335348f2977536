"""All tries of all attacks, one process for each attack, and their summary."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from research.poison_search.search import SPACES, search
from sapo_node.groups.messages import FILTERS


def play(attacks: Sequence[str], model: Path, *, tries: int, seed: int, done: Callable[[str], None]) -> dict[str, Any]:
    """The tries of each attack against all filters, in order, and what the best try and the plain attack do against all
    filters, no filters, each filter alone, and all filters but one.

    `done` is called with each finished attack.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context, max_tasks_per_child=1) as executor:
        waiting = {attack: executor.submit(_play, attack, str(model), tries, seed) for attack in attacks}
        found = {}
        for attack, future in waiting.items():
            found[attack] = future.result()
            done(attack)
        return found


def _play(attack: str, model: str, tries: int, seed: int) -> dict[str, Any]:
    # torch is imported by the workers alone.
    from research.poison_search.victim import Victim  # noqa: PLC0415
    from sapo_adversary.simulator.learning import one_core  # noqa: PLC0415

    with one_core():
        victim = Victim(model, seed=seed)
        made: list[dict[str, Any]] = []

        def harm(options: dict[str, Any]) -> float:
            trial = victim.attempt(attack, options)
            made.append(asdict(trial))
            return -trial.left

        def against(options: dict[str, Any]) -> dict[str, Any]:
            return {
                "filters": asdict(victim.attempt(attack, options)),
                "no filters": asdict(victim.attempt(attack, options, ())),
                "alone": {
                    filter_name: asdict(victim.attempt(attack, options, [filter_name])) for filter_name in FILTERS
                },
                "left out": {
                    filter_name: asdict(
                        victim.attempt(attack, options, [each for each in FILTERS if each != filter_name])
                    )
                    for filter_name in FILTERS
                },
            }

        search(SPACES[attack], harm, tries=tries, seed=seed)
        plain = against({})
        best = min([plain["filters"], *made], key=lambda each: float(each["left"]))
        return {"tries": made, "plain": plain, "best": against(best["options"])}
