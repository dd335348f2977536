"""The page of a matrix or a run: one HTML file with everything in it, from the JSON alone."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, select_autoescape
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sapo_adversary.scenarios.metrics import HABIT_OF
from sapo_adversary.scenarios.outcome import ATTACKED, NOT_MEASURED
from sapo_adversary.scenarios.scenario import SHARE
from sapo_adversary.svg import style, svg

_COLOURS = {
    "alone": "#9aa0a6",
    "control": "#2e7d32",
    "friends": "#9e9d24",
    "undefended": "#c62828",
    "defended": "#1565c0",
}
_SHOWS = "shows "
"""Before the habit, in the name of a curve."""
_POINTS = 100
"""Points of a curve, about."""
_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
_KEY_METRICS = ("reward_lost", "heldout_lost", "poison_share", "violations", "false_bans", "banned", "rounds_to_ban")


def page(summary: Mapping[str, Any]) -> str:
    """The HTML of a summary that `sapo-adversary run` or `matrix` wrote."""
    outcomes = summary["outcomes"]
    first = _first(outcomes)
    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda values: f"{100 * _mean(values):.1f} %" if values else NOT_MEASURED
    environment.filters["spread"] = _spread
    template = environment.from_string(resources.files(__package__).joinpath("page.html").read_text("utf-8"))
    with style(transparent=True):
        return template.render(
            summary=summary,
            outcomes=outcomes,
            key_metrics=_KEY_METRICS,
            usual_share=SHARE,
            figures={name: _figure(outcome) for name, outcome in first.items()},
            by_share=_by_share(outcomes),
            first=first,
        )


def pictures(summary: Mapping[str, Any]) -> dict[str, str]:
    """The figure of each scenario by its name, as SVG that stands by itself."""
    with style():
        return {name: _HEAD + str(_figure(outcome)) for name, outcome in _first(summary["outcomes"]).items()}


def _first(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The first outcome of each scenario, by its label."""
    return {each["label"]: each for each in reversed(outcomes)}


def _figure(outcome: Mapping[str, Any]) -> Markup:
    """Over rounds: learning, attackers' share of what is trained on, and what else the attack is about."""
    figure = Figure(figsize=(13, 2.6))
    reward, poison, third, fourth = figure.subplots(1, 4)
    for arm, curves in outcome["curves"].items():
        _line(reward, curves["reward"], arm, _COLOURS[arm])
        if arm in ATTACKED:
            _line(poison, curves["poison"], arm, _COLOURS[arm])
    habits = [name for name in outcome["curves"]["defended"] if name.startswith(_SHOWS)]
    draw = _draw_habits if habits else _draw_states
    titles = ("mean reward of own answers", "attackers' share of all taken in", *draw(third, fourth, outcome))
    for axes, title in zip((reward, poison, third, fourth), titles, strict=True):
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("round")
        axes.set_ylim(bottom=0)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _draw_states(trust: Axes, healthy: Axes, outcome: Mapping[str, Any]) -> tuple[str, str]:
    for name, curve in outcome["curves"]["defended"].items():
        for axes, of in ((trust, "trust in "), (healthy, "healthy of ")):
            if name.startswith(of):
                role = name.removeprefix(of)
                _line(axes, curve, role, _COLOURS["control" if role == "honest" else "undefended"])
    return "trust of honest nodes in peers, defended", "peers that are healthy with them, defended"


def _draw_habits(first: Axes, second: Axes, outcome: Mapping[str, Any]) -> tuple[str, str]:
    """The habit and the length of honest nodes' own completions."""
    asked = [HABIT_OF[each["metric"]] for each in outcome["verdicts"] if each["metric"] in HABIT_OF]
    habits = [next((habit for habit in asked if habit != "length"), "false step"), "length"]
    for axes, habit in zip((first, second), habits, strict=True):
        for arm, curves in outcome["curves"].items():
            _line(axes, curves[_SHOWS + habit], arm, _COLOURS[arm])
    return f"own answers that show: {habits[0]}", "bytes of own answers"


def _by_share(outcomes: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Lost reward and trained share over the attackers' share, for attacks that were played at several shares."""
    several: dict[str, list[Mapping[str, Any]]] = {}
    for outcome in outcomes:
        several.setdefault(outcome["label"], []).append(outcome)
    several = {name: each for name, each in several.items() if len(each) > 1}
    if not several:
        return None
    figure = Figure(figsize=(11, 2.8))
    harm, what = _harm_of([one for each in several.values() for one in each])
    panels = (
        ("undefended", harm, f"{what}, undefended"),
        ("defended", harm, "the same, defended"),
        ("defended", "poison_share", "attackers' share of all trained on, defended"),
    )
    undefended, defended, poison = figure.subplots(1, len(panels))
    defended.sharey(undefended)
    for axes, (arm, metric, title) in zip((undefended, defended, poison), panels, strict=True):
        for name, each in several.items():
            told = ((one["share"], one["metrics"][arm].get(metric)) for one in each)
            points = sorted((share, _mean(values)) for share, values in told if values)
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("attackers' share of all peers")
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _harm_of(outcomes: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The metric of what attacks do, and how it is called: the habit that they teach, or what they cost."""
    for each in outcomes:
        for verdict in each["verdicts"]:
            if verdict["metric"] in HABIT_OF:
                return verdict["metric"], f"own answers that show: {HABIT_OF[verdict['metric']]}"
    return "reward_lost", "reward lost against the honest swarm"


def _line(axes: Axes, curve: Sequence[float], label: str, colour: str) -> None:
    """Means over a few rounds each, for a long curve."""
    step = max(1, len(curve) // _POINTS)
    means = [_mean(curve[begin : begin + step]) for begin in range(0, len(curve), step)]
    axes.plot(range(1, len(curve) + 1, step), means, color=colour, linewidth=1.5, label=label)


def _svg(figure: Figure) -> Markup:
    figure.tight_layout()
    text = svg(figure)
    return Markup(text[text.index("<svg") :])  # noqa: S704 - drawn here, from numbers


def _spread(values: Sequence[float]) -> str:
    if len(set(values)) < 2:
        return f"{values[0]:.3g}" if values else ""
    return f"{_mean(values):.3g} ({min(values):.3g}..{max(values):.3g})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
