"""A picture of the search: for each attack, how close each try came, over the share that the filters masked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sapo_adversary.svg import style, write_svg

_COLOURS = {"tries": "#90a4ae", "best": "#1565c0", "no filters": "#c62828"}


def draw(attacks: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the SVG; the same results give the same bytes."""
    with style():
        figure = Figure(figsize=(2.6 * len(attacks), 2.9))
        panels = figure.subplots(1, len(attacks), squeeze=False)[0]
        for axes, (attack, found) in zip(panels, attacks.items(), strict=True):
            tries = found["tries"]
            axes.scatter(
                *zip(*((each["kept_out"], each["left"]) for each in tries), strict=True),
                s=8,
                color=_COLOURS["tries"],
                label=f"{len(tries)} tries",
            )
            for name, label in (("filters", "best"), ("no filters", "no filters")):
                each = found["best"][name]
                axes.scatter(each["kept_out"], each["left"], s=30, color=_COLOURS[label], label=f"best, {name}")
            axes.axhline(
                found["plain"]["no filters"]["left"],
                color=_COLOURS["no filters"],
                linestyle=":",
                label="plain, no filters",
            )
            axes.set_title(attack, fontsize=9)
            axes.set_xlabel("share kept out")
            axes.set_xlim(-0.03, 1.03)
        panels[0].set_ylabel("nats from taking hold")
        panels[-1].legend(frameon=False, fontsize=7)
        figure.tight_layout()
        write_svg(figure, path)
