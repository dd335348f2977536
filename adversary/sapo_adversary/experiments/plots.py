"""Draws a summary: learning curves with every seed's swarm, cumulative reward and held-out pass@1 by arm."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sapo_adversary.experiments.summary import LEVEL, SMOOTH
from sapo_node.student import mean_interval

_COLOURS = ("#4c566a", "#2e7d32", "#1565c0", "#c62828", "#9e9d24", "#6a1b9a", "#ef6c00", "#00838f", "#ad1457")


def draw(summary: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a summary as SVG: the same bytes for the same numbers."""
    # Without these the ids of clip paths and the date differ from run to run.
    with mpl.rc_context({"svg.hashsalt": "sapo", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        panels = _panels(summary)
        figure = Figure(figsize=(15, 4.2 * len(panels)))
        figure.suptitle(summary["title"], fontsize=12)
        axes = figure.subplots(len(panels), 4, squeeze=False, width_ratios=(2, 1.4, 1.1, 1.1))
        for row, (role, arms) in zip(axes, panels.items(), strict=True):
            _curves(row[0], arms, role)
            _gains(row[1], {arm: _comparison(summary, arm, role) for arm in arms}, summary["reference"])
            _bars(row[2], arms, "cumulative", "cumulative reward")
            _bars(row[3], arms, "heldout_final", "held-out pass@1 at the end")
        figure.subplots_adjust(left=0.05, right=0.99, top=1 - 0.16 / len(panels), bottom=0.14 / len(panels), wspace=0.7)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _panels(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arms by role, or under one empty name where all nodes are of one kind."""
    arms: Mapping[str, Any] = summary["arms"]
    roles = dict.fromkeys(role for figures in arms.values() for role in figures.get("roles", {}))
    if not roles:
        return {"": dict(arms)}
    return {
        role: {name: figures["roles"][role] for name, figures in arms.items() if role in figures.get("roles", {})}
        for role in roles
    }


def _comparison(summary: Mapping[str, Any], arm: str, role: str) -> Mapping[str, Any] | None:
    compared: Mapping[str, Any] | None = summary["comparisons"].get(arm)
    return compared["roles"].get(role) if compared and role else compared


def _curves(axes: Axes, arms: Mapping[str, Any], role: str) -> None:
    for (name, figures), colour in zip(arms.items(), _colours(len(arms)), strict=True):
        curves = [_smoothed(curve) for curve in figures["curves"]["reward"]]
        for curve in curves:
            axes.plot(_places(curve), curve, color=colour, linewidth=0.6, alpha=0.4)
        mean = [sum(values) / len(values) for values in zip(*curves, strict=False)]
        axes.plot(_places(mean), mean, color=colour, linewidth=2, label=name)
    axes.set_xlabel("round")
    axes.set_ylabel("mean reward of all own completions")
    axes.set_title(f"{role} (thin: each swarm seed)" if role else "thin: each swarm seed", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)


def _gains(axes: Axes, compared: Mapping[str, Mapping[str, Any] | None], reference: str) -> None:
    for comparison, colour in zip(compared.values(), _colours(len(compared)), strict=True):
        if comparison:
            gains = [100 * gain for gain in comparison["gain_by_horizon"]]
            axes.plot(range(SMOOTH, len(gains) + 1), gains[SMOOTH - 1 :], color=colour, linewidth=1.5)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xlabel("round at which one stops")
    axes.set_ylabel(f"gain over {reference}, %")
    axes.set_title("gain by horizon, mean over seeds", fontsize=9)


def _bars(axes: Axes, arms: Mapping[str, Any], figure: str, label: str) -> None:
    """The mean over seeds with its 90 % interval, and a dot for every seed."""
    for place, ((_, figures), colour) in enumerate(zip(arms.items(), _colours(len(arms)), strict=True)):
        values = figures[figure]
        interval = mean_interval(values, LEVEL) if len(values) > 1 else None
        mean = sum(values) / len(values)
        error = [[mean - interval.low], [interval.high - mean]] if interval else None
        axes.barh(place, mean, color=colour, alpha=0.55, xerr=error, error_kw={"linewidth": 1})
        axes.plot(values, [place] * len(values), ".", color="black", markersize=4)
    axes.set_yticks(range(len(arms)), list(arms))
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_xlim(left=0)


def _smoothed(curve: Sequence[float]) -> list[float]:
    return [sum(curve[end - SMOOTH : end]) / SMOOTH for end in range(SMOOTH, len(curve) + 1)]


def _places(curve: Sequence[float]) -> list[int]:
    return [place + SMOOTH for place in range(len(curve))]


def _colours(count: int) -> list[str]:
    return [_COLOURS[place % len(_COLOURS)] for place in range(count)]
