"""The table of a summary: rows of text, for the terminal and for Markdown alike."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = tuple[str, ...]


def header(summary: Mapping[str, Any]) -> Row:
    """The names of the columns."""
    return (
        "arm",
        "cumulative reward",
        f"gain over {summary['reference']}",
        "held-out pass@1",
        "rounds to half",
        "tokens generated",
        "tokens trained",
        "oscillation",
        *(("held-out, averaged weights",) if _averaged(summary) else ()),
    )


def _averaged(summary: Mapping[str, Any]) -> bool:
    """True if the averaged weights were measured, too."""
    return any("heldout_averaged" in figures for figures in summary["arms"].values())


def rows(summary: Mapping[str, Any]) -> Iterator[Row]:
    """One row for an arm, and one for each role of its nodes; means over seeds, gains with their 90 % interval."""
    for arm, figures in summary["arms"].items():
        compared = summary["comparisons"].get(arm)
        yield _row(arm, figures, compared)
        for role, each in figures.get("roles", {}).items():
            yield _row(f"- {role}", each, (compared or {}).get("roles", {}).get(role))


def markdown(summary: Mapping[str, Any]) -> str:
    """The table in Markdown; numbers are aligned to the right."""
    names = header(summary)
    lines = [names, ("---", *["---:"] * (len(names) - 1)), *rows(summary)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gain(compared: Mapping[str, Any] | None) -> str:
    """The gain of an arm over its reference with its 90 % interval; nothing for the reference itself, or where a
    reference earned nothing.
    """
    if not compared or compared["gain"] is None:
        return ""
    interval = compared.get("gain_interval")
    return f"{compared['gain']:+.0%}" + (f" ({interval[0]:+.0%} to {interval[1]:+.0%})" if interval else "")


def _row(name: str, figures: Mapping[str, Any], compared: Mapping[str, Any] | None) -> Row:
    return (
        name,
        _mean(figures["cumulative"], ".1f"),
        gain(compared),
        _mean(figures["heldout_final"], ".3f"),
        _reached(figures["rounds_to_half"]),
        _mean(figures["generated_tokens"], ",.0f"),
        _mean(figures["trained_tokens"], ",.0f"),
        _mean(figures["oscillation"], ".3f"),
        *((_mean(figures["heldout_averaged"], ".3f"),) if "heldout_averaged" in figures else ()),
    )


def _reached(values: Sequence[int | None]) -> str:
    reached = [value for value in values if value]
    if not reached:
        return "never"
    return _mean(reached, ".0f") + ("" if len(reached) == len(values) else f" ({len(reached)} of {len(values)})")


def _mean(values: Sequence[float], form: str) -> str:
    return format(sum(values) / len(values), form)
