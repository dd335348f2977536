"""How a running node shows itself: a live screen on a terminal, plain lines in a pipe, JSON lines for scripts."""

import json
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console
from rich.live import Live

from sapo_node.app import Event, Noticed, Played, Shared, Started, Stopped
from sapo_node.metrics import metrics
from sapo_node.overview import Overview
from sapo_node.view import render

_SHOWN_PEERS = 100
"""Peers in one JSON line, the most trained on first; `sapo-node peers` lists all."""


def print_json_line(event: Event) -> None:
    """One JSON object a line: what happened, and what the node knows then."""
    click.echo(json.dumps(_as_json(event)))


def _as_json(event: Event) -> dict[str, Any]:
    match event:
        case Noticed(text):
            return {"event": "notice", "text": text}
        case Played(report, view):
            return {"event": "round", **metrics(report), **_knows(view)}
        case Shared(report, view):
            return {"event": "shared", **asdict(report), **_knows(view)}
        case Started(view):
            return {"event": "started", **view.session, **_knows(view)}
        case Stopped(view):
            return {"event": "stopped", **_knows(view)}


def _knows(view: Overview) -> dict[str, Any]:
    return {
        "counts": view.counts,
        "peers": [asdict(peer) for peer in view.peers[:_SHOWN_PEERS]],
        "own_tokens": view.own_tokens,
    }


class LiveView:
    """The whole screen on a terminal; a line for each event where there is none."""

    def __init__(self) -> None:
        self._console = Console()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live("starting …", console=self._console, refresh_per_second=4)
            self._live.__enter__()
        else:
            click.echo("starting …")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, traceback)

    def __call__(self, event: Event) -> None:
        if self._live and not isinstance(event, Noticed):
            self._live.update(render(event.overview))
            if isinstance(event, Stopped):
                self._console.print(_line(event))
        elif isinstance(event, Noticed):
            self._console.print(event.text, style="dim", highlight=False, soft_wrap=True)
        else:
            click.echo(_line(event))


def _line(event: Started | Played | Shared | Stopped) -> str:
    match event:
        case Shared(report, view):
            tasks = ", ".join(f"{task.dataset} {task.right} of {task.completions} right" for task in report.tasks)
            return f"shared {tasks}; {sum(task.groups for task in view.answers)} groups so far"
        case Played(report, _):
            return (
                f"round {report.step}: reward {report.reward:.3f}, "
                f"{report.informative} of {report.local} own groups teach, "
                f"{report.external} external, "
                + ", ".join(f"{name} {value:.1f} s" for name, value in report.seconds.items())
            )
        case Started(view):
            return f"started as {view.session['peer_id']} on {', '.join(view.session['addresses'])}"
        case Stopped(view):
            last = view.rounds[-1]["step"] if view.rounds else 0
            return f"stopped after round {last}; start again to go on from there"
