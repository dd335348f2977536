"""Simulates nodes that choose how difficult their prompts are, beside manifests that fix it.

    python -m research.curriculum [--seeds 20] [--output FOLDER]

A task has LEVELS levels of difficulty. A prompt of level l is answered correctly with probability
sigmoid(skill[l] - difficulty[l] + a normal deviate of the prompt), as in item response theory (Rasch 1960). `fit` takes
the spread of the prompts and the step between two levels from a probe of SmolLM2-135M. A group of 8 completions is
informative if some are correct and some are not. An informative group of level l raises skill[m] by
growth * transfer ** |l - m|; `calibrated` takes the growth from a run of 40 rounds. A correct completion of a peer
counts by this node's own pass rate, as in `sapo_node.sampling.weights`. No model is trained: this compares ways to
choose a level, and says nothing of how far a model can get.

Writes curriculum.json and curriculum.svg.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, permutations
from math import log
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from sapo_adversary.cli.played import to_output
from sapo_adversary.experiments.summary import LEVEL, mean_interval
from sapo_adversary.files import to_json, writable_folder, write_whole
from sapo_adversary.svg import style, write_svg
from sapo_node.cli.commands.options import run_command_line
from sapo_node.sampling.weights import FORGETTING, LEAST_PREFERENCE, SPREAD

Array = NDArray[np.float64]

PROMPTS = 24
COMPLETIONS = 8
LADDER: Mapping[str, Sequence[tuple[float, float]]] = {
    "chain_sum": ((0.1458, 0.5), (0.0417, 0.2083), (0.0365, 0.2083), (0.0, 0.0), (0.0, 0.0)),
    "products": ((0.2708, 0.5833), (0.0, 0.0)),
    "basic_arithmetic": ((0.2135, 0.4583), (0.0417, 0.25), (0.0104, 0.0833)),
    "leg_counting": ((0.0677, 0.3333), (0.0469, 0.2083), (0.0469, 0.2917), (0.0104, 0.0833)),
    "fraction_simplification": ((0.1094, 0.5417), (0.026, 0.1667), (0.0, 0.0)),
    "base_conversion": ((0.0625, 0.4583), (0.0052, 0.0417), (0.0208, 0.1667)),
}
"""Base rate and share of informative groups of SmolLM2-135M-Instruct by level: 24 prompts with 8 completions each
(`sapo-node init --dry-run --json --model smollm2`, three worked examples)."""
RUN = {"start": 0.0854, "alone": 0.2458, "with a peer": 0.3146}
"""Held-out pass@1 of two nodes with SmolLM2-135M in `math-easy`, before and after 40 rounds of four local groups: alone
(4/0) and with each other's groups (4/4); three seeds (`sapo-adversary experiment math-easy`)."""
LEVELS = 5
GROUPS, ROUNDS = 4, 40
"""Local groups in a round, and rounds, of that run."""
STARTS = {"weak": 0.02, "middle": 0.2, "strong": 0.6}
"""Pass rates before training, as means over the levels."""
TRANSFERS = (1.0, 0.5)
"""What skill at one level gains from a group of the next one: all of it, or half."""
EXPLORATION = 0.1
"""Share of the groups whose level an adaptive node draws at random."""
COUNTERS = 8
"""Counters that a node looks at for each round: `math-easy` lets an untrusted peer advance 300 in an epoch of 600 s, in
which SmolLM2 plays about 18 rounds on two cores."""
CALIBRATION_SEEDS = 400
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, slots=True)
class Model:
    """How nodes answer and learn."""

    spread: float
    """Standard deviation of a prompt's logit."""
    step: float
    """Difference of the mean logits of two levels."""
    transfer: float
    growth: float = 0.0
    """Gain of skill by an informative group of this node."""
    growth_by_peer: float = 0.0
    """Gain of skill by an informative group of a peer whose level this node never solves."""

    def logits(self, skill: Array) -> Array:
        """Return the mean logit of each level."""
        return skill - self.step * np.arange(LEVELS)

    def rate(self, logits: Array) -> Array:
        """Return the pass rates at mean logits."""
        return _sigmoid(logits[..., None] + self.spread * _POINTS) @ _WEIGHTS

    def informative(self, logits: Array) -> Array:
        """Return the shares of informative groups at mean logits."""
        p = _sigmoid(logits[..., None] + self.spread * _POINTS)
        return (1 - p**COMPLETIONS - (1 - p) ** COMPLETIONS) @ _WEIGHTS

    def logit(self, rate: float) -> float:
        """Return the mean logit of a level with this pass rate."""
        return float(brentq(lambda logit: float(self.rate(np.array(logit))) - rate, -40, 40))

    def skill(self, rate: float) -> float:
        """Return the skill at which the mean pass rate of all levels is this."""
        return float(brentq(lambda skill: self.rate(self.logits(np.full(LEVELS, skill))).mean() - rate, -40, 40))


Choice = Callable[[np.random.Generator, Array, Array], NDArray[np.int64]]
"""Chooses the levels of a round (seeds by nodes by GROUPS) from each node's estimates of its pass rates, and from the
true shares of informative groups, by level."""


def weighted(weights: Array, rng: np.random.Generator, rates: Array, _: Array) -> Any:
    """Draw levels by the weights of a manifest: what a swarm does today with a task for each level."""
    return rng.choice(LEVELS, size=(*rates.shape[:-1], GROUPS), p=weights / weights.sum())


def adaptive(rng: np.random.Generator, rates: Array, _: Array) -> Any:
    """Choose the level whose own pass rate is nearest to one half, and at times a random one."""
    apart = np.abs(rates - 0.5)[..., None, :]
    nearest = np.argmin(apart + 1e-6 * rng.random((*rates.shape[:-1], GROUPS, LEVELS)), axis=-1)
    explores = rng.random(nearest.shape) < EXPLORATION
    return np.where(explores, rng.integers(LEVELS, size=nearest.shape), nearest)


def skipping(counters: int, rng: np.random.Generator, rates: Array, _: Array) -> Any:
    """Of so many counters, whose tasks are assigned with equal weights, take the one whose levels have own pass rates
    nearest to one half, and at times the first one. Rule DUTY-3 allows gaps between counters.
    """
    drawn = rng.integers(LEVELS, size=(*rates.shape[:-1], counters, GROUPS))
    apart = np.take_along_axis(np.abs(rates - 0.5)[..., None, :], drawn, axis=-1).sum(-1)
    explores = rng.random(apart.shape[:-1]) < EXPLORATION
    best = np.where(explores, 0, apart.argmin(-1))
    return np.take_along_axis(drawn, best[..., None, None], axis=-2)[..., 0, :]


def oracle(_rng: np.random.Generator, _rates: Array, informative: Array) -> Any:
    """Choose the level at which a group is most often informative, which no node can know."""
    return np.repeat(informative.argmax(-1)[..., None], GROUPS, axis=-1)


def fixed(level: int) -> Choice:
    """Take one level always."""
    return partial(weighted, np.eye(LEVELS)[level])


def geometric(ratio: float) -> Choice:
    """Weigh each level `ratio` times as much as the one below it."""
    return partial(weighted, ratio ** np.arange(LEVELS, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Played:
    """What became of nodes: arrays of seeds by nodes."""

    informative: Array
    """Share of their own groups."""
    final: Array
    """Mean pass rate of all levels after the last round."""


def play(model: Model, starts: Sequence[float], choose: Choice, *, seeds: int, rounds: int = ROUNDS) -> Played:
    """Play swarms of nodes with these mean pass rates, that train on all informative groups of each other."""
    rng = np.random.default_rng(0)
    shape = (seeds, len(starts))
    skill = np.broadcast_to(np.array([model.skill(each) for each in starts])[:, None], (*shape, LEVELS)).copy()
    total, weight, informative = np.zeros_like(skill), np.zeros_like(skill), np.zeros(shape)
    apart = np.abs(np.subtract.outer(np.arange(LEVELS), np.arange(LEVELS)))
    near = model.transfer**apart
    for _ in range(rounds):
        gains = np.zeros_like(skill)
        logits = model.logits(skill)
        own = model.rate(logits)
        worth = np.maximum(LEAST_PREFERENCE, SPREAD * (1 - own) / np.maximum(np.sqrt(own * (1 - own)), SPREAD))
        estimates = np.where(weight > 0, total / np.maximum(weight, 1e-9), 0.5)
        levels = choose(rng, estimates, model.informative(logits))
        for k in range(GROUPS):
            chosen = np.eye(LEVELS)[levels[..., k]]
            p = _sigmoid((chosen * logits).sum(-1) + model.spread * rng.standard_normal(shape))
            correct = rng.binomial(COMPLETIONS, p)
            teaches = (correct > 0) & (correct < COMPLETIONS)
            total = np.where(chosen > 0, FORGETTING * total + correct[..., None] / COMPLETIONS, total)
            weight = np.where(chosen > 0, FORGETTING * weight + 1, weight)
            informative += teaches / (rounds * GROUPS)
            gain = teaches[..., None] * (chosen @ near)
            gains += model.growth * gain
            for peer, node in permutations(range(len(starts)), 2):
                value = (chosen[:, peer] * worth[:, node]).sum(-1, keepdims=True)
                gains[:, node] += model.growth_by_peer * value * gain[:, peer]
        skill += gains
    return Played(informative, model.rate(model.logits(skill)).mean(-1))


def _sigmoid(logits: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-logits)), dtype=np.float64)


def fit() -> Model:
    """Return the spread under which the probe's informative shares are most likely, and the mean step of its rungs."""
    rungs = [rung for each in LADDER.values() for rung in each if rung[0] > 0]
    least = 0.5 / (PROMPTS * COMPLETIONS)  # in place of 0, whose logit is not finite

    def unlikely(spread: float) -> float:
        model = Model(spread, 0.0, 1.0)
        shares = [float(model.informative(np.array(model.logit(rate)))) for rate, _ in rungs]
        seen = [share for _, share in rungs]
        return -sum(s * log(p) + (1 - s) * log(1 - p) for s, p in zip(seen, shares, strict=True))

    spread = float(minimize_scalar(unlikely, bounds=(0.1, 6), method="bounded").x)
    model = Model(spread, 0.0, 1.0)
    logits = [[model.logit(max(rate, least)) for rate, _ in each] for each in LADDER.values()]
    return replace(model, step=float(np.mean([a - b for each in logits for a, b in pairwise(each)])))


def calibrated(model: Model) -> Model:
    """Return the model with the growth at which nodes that draw all levels alike learn as much as those of RUN."""

    def missed(growth: float, by_peer: float, nodes: int, aim: float) -> float:
        grown = replace(model, growth=growth, growth_by_peer=by_peer)
        start = [RUN["start"]] * nodes
        return float(play(grown, start, geometric(1), seeds=CALIBRATION_SEEDS).final.mean()) - aim

    own = float(brentq(lambda growth: missed(growth, 0.0, 1, RUN["alone"]), 0, 1, xtol=1e-4))
    by_peer = float(brentq(lambda growth: missed(own, growth, 2, RUN["with a peer"]), 0, 1, xtol=1e-4))
    return replace(model, growth=own, growth_by_peer=by_peer)


def measure(model: Model, *, seeds: int, rounds: int) -> dict[str, Any]:
    """Compare the choices for nodes alone, and for a weak and a strong one together."""
    played = partial(play, model, seeds=seeds, rounds=rounds)
    alone = {name: partial(played, [start]) for name, start in STARTS.items()}
    best = {
        name: max(range(LEVELS), key=lambda level, run=run: float(run(fixed(level)).informative.mean()))  # type: ignore[misc]
        for name, run in alone.items()
    }
    most = {name: float(alone[name](fixed(level)).informative.mean()) for name, level in best.items()}
    ratio = max(
        (2.0**power for power in range(-4, 5)),
        key=lambda each: min(run(geometric(each)).informative.mean() / most[name] for name, run in alone.items()),
    )
    found: dict[str, Any] = {"best_level": best, "best_ratio": ratio, "nodes": {}}
    choices: dict[str, Choice] = {"uniform": geometric(1), "best weights": geometric(ratio), "adaptive": adaptive}
    choices |= {f"one of {COUNTERS} counters": partial(skipping, COUNTERS), "oracle": oracle}
    for name, run in alone.items():
        runs = {way: run(choice) for way, choice in {**choices, "best level": fixed(best[name])}.items()}
        found["nodes"][name] = {way: _figures(each, runs, 0) for way, each in runs.items()}
    pair = {way: played([STARTS["weak"], STARTS["strong"]], choice) for way, choice in choices.items()}
    for node, name in enumerate(("weak beside strong", "strong beside weak")):
        found["nodes"][name] = {way: _figures(each, pair, node) for way, each in pair.items()}
    return found


def _figures(played: Played, runs: Mapping[str, Played], node: int) -> dict[str, Any]:
    """Return means with their intervals, and adaptive choice's relative gain in informative groups over this one."""
    share, final = played.informative[:, node], played.final[:, node]
    more = runs["adaptive"].informative[:, node] - share
    return {
        "informative": _interval(share),
        "final": _interval(final),
        "adaptive_gain": _interval(more / share.mean()),
    }


def _interval(values: Array) -> list[float]:
    """Return the mean, the low and the high end."""
    if np.ptp(values) == 0:
        return [round(float(values[0]), 4)] * 3
    found = mean_interval(values.tolist(), LEVEL)
    return [round(each, 4) for each in (found.point, found.low, found.high)]


WAYS = {
    "uniform": "#90a4ae",
    "best weights": "#546e7a",
    "best level": "#8d6e63",
    f"one of {COUNTERS} counters": "#64b5f6",
    "adaptive": "#1565c0",
    "oracle": "#c8e6c9",
}


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Write the SVG: informative share and final pass rate of each way, for each node and each transfer."""
    with style():
        figure = Figure(figsize=(9.2, 5.2))
        panels = figure.subplots(2, len(TRANSFERS), sharex=True, sharey="row")
        for column, (title, results) in enumerate(found.items()):
            for axes, key, label in zip(panels[:, column], ("informative", "final"), LABELS, strict=True):
                for place, (way, colour) in enumerate(WAYS.items()):
                    rows = [(at, each[way][key]) for at, each in enumerate(results["nodes"].values()) if way in each]
                    middle = [at + 0.14 * (place - 2.5) for at, _ in rows]
                    means = [each[0] for _, each in rows]
                    errors = [[each[0] - each[1] for _, each in rows], [each[2] - each[0] for _, each in rows]]
                    axes.bar(middle, means, 0.13, yerr=errors, color=colour, label=way, error_kw={"linewidth": 0.7})
                axes.set_ylabel(label if column == 0 else "")
            panels[0, column].set_title(title, fontsize=9)
            names = [name.replace(" beside ", "\nbeside ") for name in results["nodes"]]
            panels[1, column].set_xticks(range(len(names)), names, fontsize=8)
        panels[0, 0].legend(frameon=False, fontsize=7, ncols=3, loc="upper left")
        panels[0, 0].set_ylim(0, 1)
        figure.tight_layout()
        write_svg(figure, path)


LABELS = ("informative groups", "pass rate at the end")


@click.command()
@click.option("--seeds", type=click.IntRange(2, 10_000), default=20, show_default=True)
@to_output
def curriculum(*, seeds: int, output: Path) -> None:
    """Compare ways to choose the difficulty of a node's prompts."""
    writable_folder(output)
    fitted = fit()
    summary: dict[str, Any] = {"command": f"python -m research.curriculum --seeds {seeds}"}
    summary |= {"spread": round(fitted.spread, 3), "step": round(fitted.step, 3), "results": {}}
    shown = {}
    for transfer in TRANSFERS:
        model = calibrated(replace(fitted, transfer=transfer))
        growth = {"growth": round(model.growth, 4), "growth_by_peer": round(model.growth_by_peer, 4)}
        for rounds in (ROUNDS, 5 * ROUNDS):
            found = measure(model, seeds=seeds, rounds=rounds)
            summary["results"][f"transfer {transfer}, {rounds} rounds"] = {**growth, **found}
            if rounds == ROUNDS:
                shown[f"transfer {transfer}, {rounds} rounds"] = found
    write_whole(output / "curriculum.json", to_json(summary))
    draw(shown, output / "curriculum.svg")


if __name__ == "__main__":
    run_command_line(curriculum)
