"""The part of the terminal view that shows learning: the reward curve, the last rounds, and the current phase."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, get_args

from rich.table import Table
from rich.text import Text

from sapo_node.groups.curve import Curve
from sapo_node.observability.overview import Overview
from sapo_node.observability.stored import Evaluation, Round
from sapo_node.training.round import Phase

_BLOCKS = " ▁▂▃▄▅▆▇█"
T = TypeVar("T")

_COLUMNS: Mapping[str, Callable[[Round], str]] = {
    "round": lambda each: str(each["step"]),
    "reward": lambda each: f"{each['reward']:.3f}",
    "informative": lambda each: f"{each['informative']}/{each['local']}",
    "external": lambda each: str(each["external"]),
    "seconds": lambda each: f"{sum(each['seconds'].values()):.1f}",
    "weight": lambda each: figure(each.get("external_weight"), ".2f"),
    "entropy": lambda each: figure(each.get("entropy"), ".2f"),
    "length": lambda each: figure(each.get("mean_length"), ".0f"),
    "cut": lambda each: figure(each.get("truncated"), ".0%"),
    "gradient": lambda each: figure(each.get("grad_norm"), ".2f"),
}
"""Columns of the table of rounds. A narrow terminal shows only the first."""


def chart(curve: Curve, *, rows: int = 4) -> Text:
    """Return one line of figures, and below it the reward curve as columns from 0 to its maximum, with axes."""
    text = Text.assemble(
        ("reward ", "bold"),
        f"at first {curve.first:.3f}, best {curve.best:.3f}, ",
        (f"now {curve.now:.3f}", "bold"),
        (f"   a column is {curve.rounds} round{'s' * (curve.rounds > 1)}", "dim"),
    )
    top = max(*curve.means, 0.01)
    for row in reversed(range(rows)):
        label = f"{top:.2f} ┤" if row == rows - 1 else "0.00 ┤" if row == 0 else "     │"
        columns = "".join(_column(mean / top * rows - row) for mean in curve.means)
        text.append(f"\n{label}", "dim")
        text.append(columns, "green")
    return text


def _column(filled: float) -> str:
    """Return the character that fills one row of a column. `filled` is a share; it is clamped to 0 to 1."""
    steps = len(_BLOCKS) - 1
    return _BLOCKS[round(min(max(filled, 0.0), 1.0) * steps)]


def evaluation_lines(view: Overview) -> list[Text]:
    """Return a line with the last and the first evaluation on held-out prompts, and one with what the node would have
    learnt alone. What has not been measured has no line.
    """
    if not view.evaluations:
        return []
    first, last = view.evaluations[0], view.evaluations[-1]
    text = Text.assemble(
        ("held-out ", "bold"),
        (f"{last['pass_at_1']:.3f}", "bold"),
        f" ({last['low']:.3f} to {last['high']:.3f}) after round {last['step']}",
    )
    if last is not first:
        text.append(f", {first['pass_at_1']:.3f} after round {first['step']}", "dim")
    return [text, *([alone_line(*view.beside)] if view.beside else [])]


def alone_line(node: Evaluation, alone: Evaluation) -> Text:
    """Return a line that compares the evaluations of a node and of its rounds alone, after the same round."""
    own, without = (f"{each['pass_at_1']:.3f} ({each['low']:.3f} to {each['high']:.3f})" for each in (node, alone))
    return Text.assemble(
        ("alone    ", "bold"), (without, "bold"), f" at round {node['step']}", (f", with peers {own}", "dim")
    )


def activity(phase: Phase | None, seconds: float) -> Text:
    """Return the phases of the round with the current one marked, and its duration in seconds."""
    if phase is None:
        return Text("between rounds", "dim")
    if phase == "evaluate":  # between two rounds, or before the first
        return Text.assemble(("● evaluate", "bold cyan"), f"   answers held-out prompts   {seconds:.0f} s")
    phases = [each for each in get_args(Phase) if each != "evaluate"]
    at = phases.index(phase)
    return Text.assemble(
        ("this round", "bold"),
        *((f"  ✓ {each}", "green") for each in phases[:at]),
        (f"  ● {phase}", "bold cyan"),
        *((f"  · {each}", "dim") for each in phases[at + 1 :]),
        f"   {seconds:.0f} s",
    )


def round_table(rounds: Sequence[Round], *, width: int) -> Table:
    """Return a table with one row of metrics for each round, the newest first."""
    return fitted_table(_COLUMNS, rounds[::-1], width=width)


def fitted_table(
    columns: Mapping[str, Callable[[T], str | Text]],
    rows: Sequence[T],
    *,
    width: int,
    left: Collection[str] = (),
    widths: Mapping[str, int] = MappingProxyType({}),
) -> Table:
    """Return a table with the first columns that fit into `width`. A column is as wide as its heading unless `widths`
    says more. Columns are aligned right, but for those in `left`.
    """
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    shown: list[Callable[[T], str | Text]] = []
    for name, cell in columns.items():
        width -= max(len(name), widths.get(name, 0)) + 1
        if width < -1 and shown:  # the last column needs no space after it
            break
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
        shown.append(cell)
    for row in rows:
        table.add_row(*(cell(row) for cell in shown))
    return table


def figure(value: float | None, form: str) -> str:
    """Format a number; a dash for None."""
    return "-" if value is None else format(value, form)
