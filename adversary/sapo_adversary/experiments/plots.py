"""Draws a summary: learning curves with every seed's swarm, cumulative reward and held-out pass@1 by arm; and, where
held-out questions were asked during the runs, which task reached whom and whose rollouts carried it.
"""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sapo_adversary.experiments.summary import ATTACKERS, LEVEL, OWN, SMOOTH, mean_interval
from sapo_adversary.svg import style, write_svg

_COLOURS = ("#4c566a", "#2e7d32", "#1565c0", "#c62828", "#9e9d24", "#6a1b9a", "#ef6c00", "#00838f", "#ad1457")


def draw(summary: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a summary as SVG: the same bytes for the same numbers."""
    with style():
        panels = _panels(summary)
        figure = Figure(figsize=(15, 4.2 * len(panels)))
        figure.suptitle(summary["title"], fontsize=12, y=1 - 0.04 / len(panels), va="top")
        axes = figure.subplots(len(panels), 4, squeeze=False, width_ratios=(2, 1.4, 1.1, 1.1))
        for row, (role, arms) in zip(axes, panels.items(), strict=True):
            _curves(row[0], arms, role)
            _gains(row[1], {arm: _comparison(summary, arm, role) for arm in arms}, summary["reference"])
            _bars(row[2], arms, "cumulative", "cumulative reward")
            if all("heldout_averaged" in figures for figures in arms.values()):
                _averaged(row[3], arms)
            else:
                _bars(row[3], arms, "heldout_final", "held-out pass@1 at the end")
        figure.subplots_adjust(
            hspace=0.3, left=0.05, right=0.99, top=1 - 0.2 / len(panels), bottom=0.14 / len(panels), wspace=0.7
        )
        write_svg(figure, path)


def tasks_were_followed(summary: Mapping[str, Any]) -> bool:
    """Return whether `draw_tasks` has anything to draw."""
    kinds = [role for figures in summary["arms"].values() for role in figures.get("roles", {}).values()]
    return any("heldout_by_task" in kind["curves"] for kind in kinds)


def draw_tasks(summary: Mapping[str, Any], path: Path) -> None:
    """Write a picture of every task as SVG: held-out pass@1 over rounds for each role (a row), and under it whose
    rollouts its nodes trained on.
    """
    with style():
        panels = _panels(summary)
        carried_by_role = [figures["carried"] for arms in panels.values() for figures in arms.values()]
        tasks = sorted({task for carried in carried_by_role for task in carried})
        figure = Figure(figsize=(2.9 * len(tasks), 3.8 * len(panels)))
        figure.suptitle(summary["title"], fontsize=12)
        axes = figure.subplots(2 * len(panels), len(tasks), squeeze=False, height_ratios=(2, 1) * len(panels))
        attacked = any(ATTACKERS in by_writer for carried in carried_by_role for by_writer in carried.values())
        writers = [OWN, *panels, *([ATTACKERS] if attacked else [])]
        for place, (role, arms) in enumerate(panels.items()):
            for column, task in enumerate(tasks):
                learnt, carried = axes[2 * place][column], axes[2 * place + 1][column]
                _heldout(learnt, arms, task)
                _writers(carried, arms, task, writers)
                learnt.set_title(task, fontsize=9)
                if column:
                    carried.set_yticklabels([])
            axes[2 * place][0].set_ylabel(f"{role}\nheld-out pass@1", fontsize=8)
        _legend(figure, axes[0][0], "arm", loc="upper left")
        _legend(figure, axes[1][0], "tokens trained on, written by", loc="upper right")
        figure.subplots_adjust(
            left=0.08, right=0.99, top=1 - 0.32 / len(panels), bottom=0.1 / len(panels), wspace=0.25, hspace=0.4
        )
        write_svg(figure, path)


def _legend(figure: Figure, axes: Axes, title: str, *, loc: Literal["upper left", "upper right"]) -> None:
    """One for the whole figure, under its title."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc=loc,
        bbox_to_anchor=(0.0, 0.0, 1.0, 0.985),
        ncols=len(labels),
        frameon=False,
        fontsize=8,
        title=title,
        title_fontsize=8,
    )


def _heldout(axes: Axes, arms: Mapping[str, Any], task: str) -> None:
    """The mean over seeds, and every seed."""
    for (name, figures), colour in zip(arms.items(), _colours(len(arms)), strict=True):
        curves = [by_task[task] for by_task in figures["curves"]["heldout_by_task"]]
        for curve in curves:
            axes.plot(*zip(*curve, strict=True), color=colour, linewidth=0.6, alpha=0.4)
        means = [(points[0][0], fmean(rate for _, rate in points)) for points in zip(*curves, strict=True)]
        axes.plot(*zip(*means, strict=True), color=colour, linewidth=2, label=name)
    axes.set_ylim(0, 1)


def _averaged(axes: Axes, arms: Mapping[str, Any]) -> None:
    """Means over seeds of the averaged weights, and dotted of the weights that train."""
    for figures, colour in zip(arms.values(), _colours(len(arms)), strict=True):
        for name, style_of_line in (("heldout", ":"), ("heldout_averaged", "-")):
            curves = figures["curves"][name]
            means = [(points[0][0], fmean(rate for _, rate in points)) for points in zip(*curves, strict=True)]
            axes.plot(*zip(*means, strict=True), style_of_line, color=colour, linewidth=1.5)
    axes.set_xlabel("round")
    axes.set_ylabel("held-out pass@1")
    axes.set_title("averaged weights; dotted: not averaged", fontsize=9)
    axes.set_ylim(0, 1)


def _writers(axes: Axes, arms: Mapping[str, Any], task: str, writers: Sequence[str]) -> None:
    """The share of each kind of writer in the trained tokens of a task: one bar for an arm."""
    tokens = [figures["carried"].get(task, {}) for figures in arms.values()]
    totals = [sum(by_writer.values()) or 1 for by_writer in tokens]
    left = [0.0] * len(arms)
    for writer, colour in zip(writers, _colours(len(writers)), strict=True):
        shares = [by_writer.get(writer, 0) / total for by_writer, total in zip(tokens, totals, strict=True)]
        axes.barh(range(len(arms)), shares, left=left, color=colour, alpha=0.75, label=writer)
        left = [start + share for start, share in zip(left, shares, strict=True)]
    axes.set_yticks(range(len(arms)), list(arms), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xticks([])


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
            gains = [nan if gain is None else 100 * gain for gain in comparison["gain_by_horizon"]]
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
