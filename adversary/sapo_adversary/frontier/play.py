"""All tries of all attacks, one process for each, and what they say together."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sapo_adversary.frontier.search import SPACES, search


def play(attacks: Sequence[str], model: Path, *, tries: int, seed: int, done: Callable[[str], None]) -> dict[str, Any]:
    """The tries of each attack against gates, in the order made, and the best beside the plain one with and without.

    `done` hears of each attack that is over.
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
    from sapo_adversary.frontier.victim import Victim  # noqa: PLC0415
    from sapo_node.one_core import one_core  # noqa: PLC0415

    with one_core():
        victim = Victim(model, seed=seed)
        made: list[dict[str, Any]] = []

        def harm(options: dict[str, Any]) -> float:
            trial = victim.attempt(attack, options)
            made.append(asdict(trial))
            return -trial.left

        search(SPACES[attack], harm, tries=tries, seed=seed)
        plain = victim.attempt(attack, {})
        without = Victim(model, gates=(), seed=seed)
        best = min([asdict(plain), *made], key=lambda each: float(each["left"]))
        return {
            "tries": made,
            "plain": {"gates": asdict(plain), "no gates": asdict(without.attempt(attack, {}))},
            "best": {"gates": best, "no gates": asdict(without.attempt(attack, best["options"]))},
        }
