"""Draws what attackers of several numbers of keys got from nodes with all filters, and from nodes without `n-gram`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sapo_adversary.svg import style, write_svg

_COLOURS = ("#c62828", "#1565c0", "#6a1b9a", "#ef6c00", "#00838f")
_SAYS = "says_phrase"
_FILTER = "n-gram filter"
_PANELS = {"trusted": "all nodes trust the attacker", "strangers": "nobody trusts anybody"}
"""Title by what the attackers are."""

Cells = Sequence[Mapping[str, Any]]


def draw_keys(filtered: Cells, without: Cells, path: Path) -> None:
    """Write the picture as SVG: the share of local completions with the phrase, over the number of keys.

    Cells of `without` are of nodes that lack the filters that the cell names.
    """
    unfiltered = [cell for cell in without if cell["without"] == [_FILTER] and _SAYS in cell["judged"]]
    scenarios = sorted({cell["scenario"] for cell in filtered if _SAYS in cell["judged"]})
    with style():
        figure = Figure(figsize=(10, 3.4))
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (attackers, title) in zip(panels, _PANELS.items(), strict=True):
            for scenario, colour in zip(scenarios, _COLOURS, strict=False):
                for cells, nodes, dashes in ((unfiltered, f"without {_FILTER}", "--"), (filtered, "all filters", "-")):
                    chosen = [each for each in cells if (each["scenario"], each["attackers"]) == (scenario, attackers)]
                    _line(axes, chosen, f"{scenario}, {nodes}", colour, dashes)
            axes.set_xscale("log")
            axes.set_xticks([1, 64, 1024], ["1", "64", "1,024"])
            axes.minorticks_off()
            axes.set_xlabel("keys that sign the attacker's messages")
            axes.set_title(title, fontsize=9)
        panels[0].set_ylim(-2, 100)
        panels[0].set_ylabel("local completions with the phrase, %")
        _legend(figure, panels)
        figure.subplots_adjust(left=0.07, right=0.72, top=0.9, bottom=0.16, wspace=0.1)
        write_svg(figure, path)


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One for both panels, beside them."""
    lines = {str(line.get_label()): line for axes in panels for line in axes.get_legend_handles_labels()[0]}
    figure.legend(list(lines.values()), list(lines), loc="center right", frameon=False, fontsize=8)


def _line(axes: Axes, cells: Cells, label: str, colour: str, dashes: str) -> None:
    """The means over seeds, and a dot for every seed."""
    points = sorted((cell["keys"], cell["judged"][_SAYS]) for cell in cells)
    if not points:
        return
    means = [(keys, 100 * fmean(shares)) for keys, shares in points]
    axes.plot(*zip(*means, strict=True), dashes, color=colour, linewidth=1.5, label=label)
    dots = [(keys, 100 * share) for keys, shares in points for share in shares]
    axes.plot(*zip(*dots, strict=True), ".", color=colour, markersize=4)
