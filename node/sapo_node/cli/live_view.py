"""Shows a running node: a live screen on a terminal, plain lines in a pipe, JSON lines for scripts.

If standard output cannot be written, the node says so once on stderr, and plays on.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Self

from rich.console import RenderableType
from rich.live import Live

from sapo_node.app.events import Event, Noticed, PageServed, Phased, Played, Refreshed, Shared, Started, Stopped
from sapo_node.cli.tables import Screen, activity, figure
from sapo_node.cli.terminal import OutputLost, Terminal, say, say_json
from sapo_node.observability.condition import condition_of, counted
from sapo_node.observability.overview import Overview
from sapo_node.observability.stored import metrics
from sapo_node.training.round import Phase

_SHOWN_PEERS = 100
"""Peers in one JSON line at most, by trained tokens, most first. `sapo-node peers` lists all peers."""
_FRAMES = 2
"""Frames per second of the live screen."""


@contextmanager
def _outliving_output() -> Iterator[None]:
    try:
        yield
    except OutputLost as lost:
        with suppress(OSError):  # stderr may go to the same place
            Terminal(stderr=True).print(f"{lost}; the node goes on without it", soft_wrap=True)


@_outliving_output()
def print_json_line(event: Event) -> None:
    """Print the event as one line of JSON: its name, its Unix time `at`, and the counts and peers of the node."""
    if not isinstance(event, Phased | Refreshed):
        say_json({"at": round(time.time(), 3), **_as_json(event)})


def _as_json(event: PageServed | Started | Played | Shared | Noticed | Stopped) -> dict[str, Any]:
    match event:
        case Noticed(notice):
            return {"event": "notice", "level": notice["level"], "text": notice["text"]}
        case PageServed(address):
            return {"event": "page", "page": address}
        case Played(report, view):
            return {"event": "round", **metrics(report), **_knows(view)}
        case Shared(report, view):
            return {"event": "shared", **asdict(report), **_knows(view)}
        case Started(view):
            return {"event": "started", **view.session, **_knows(view)}
        case Stopped(view):
            return {"event": "stopped", **_knows(view, runs=False)}


def _knows(view: Overview, *, runs: bool = True) -> dict[str, Any]:
    return {
        "condition": condition_of(view, runs=runs, now=time.time()).as_dict(),
        "counts": view.counts,
        "peers": [asdict(peer) for peer in view.peers[:_SHOWN_PEERS]],
        "own_tokens": view.own_tokens,
        "exchange": asdict(view.exchange),
    }


class _Screen:
    """The content of the live screen. rich draws it _FRAMES times a second, so the seconds of a phase count up."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._view: Overview | None = None
        self._phase: tuple[Phase | None, float] | None = None
        self._page = ""
        self._runs = True

    def __rich__(self) -> RenderableType:
        if self._view is None:
            return f"starting …  {self._page}"
        doing = activity(self._phase[0], time.monotonic() - self._phase[1]) if self._phase else None
        return Screen(self._view, runs=self._runs, doing=doing, height=self._console.height)

    def take(self, event: Event) -> None:
        """Update the screen with an event."""
        match event:
            case PageServed(address):
                self._page = f"page {address}"
            case Phased(phase):
                self._phase = phase, time.monotonic()
            case Noticed(notice) if self._view:
                # The newest first, and before all those that need a person.
                before = self._view.session.get("notices", ())
                notices = (notice, *(each for each in before if each["text"] != notice["text"]))
                ordered = tuple(sorted(notices, key=lambda each: each["level"] != "attention"))
                self._view = replace(self._view, session={**self._view.session, "notices": ordered})
            case Refreshed(look):
                self._view = look()
            case Started(view) | Played(_, view) | Shared(_, view):
                self._view = view
            case Stopped(view):
                self._view, self._phase, self._runs = view, None, False


class LiveView:
    """Shows a live screen if standard output is a terminal that can move its cursor, and else a line for each event."""

    def __init__(self) -> None:
        self._console = Terminal()
        self._screen = _Screen(self._console)
        self._live = self._made()
        self._size = self._console.size

    def _made(self) -> Live:
        return Live(self._screen, console=self._console, refresh_per_second=_FRAMES)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live.start()
        else:
            with _outliving_output():
                say("starting …")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    @_outliving_output()
    def __call__(self, event: Event) -> None:
        if self._live.is_started:
            self._screen.take(event)
            self._begin_anew_if_resized()
            if isinstance(event, Started):
                for address in event.overview.session["addresses"]:
                    self._console.print(address, style="dim", highlight=False, soft_wrap=True)  # to be copied
            if isinstance(event, Stopped):
                self._live.stop()
                self._console.print(_line(event))
        elif isinstance(event, Noticed):
            style = "yellow" if event.notice["level"] == "attention" else "dim"
            self._console.print(event.notice["text"], style=style, highlight=False, soft_wrap=True)
        elif not isinstance(event, Phased | Refreshed):
            say(_line(event))

    def _begin_anew_if_resized(self) -> None:
        """Clear the screen if its size has changed: the terminal has wrapped the old lines in an unknown way."""
        if self._console.size != self._size:
            self._size = self._console.size
            self._live.stop()
            self._console.clear()
            self._live = self._made()
            self._live.start()


def _line(event: PageServed | Started | Played | Shared | Stopped) -> str:
    match event:
        case Shared(report, view):
            tasks = ", ".join(f"{task.dataset} {task.right} of {task.completions} correct" for task in report.tasks)
            shared = counted(sum(task.groups for task in view.answers), "group")
            return f"shared {tasks}; {shared} so far"
        case Played(report, _):
            return (
                f"round {report.step}: reward {report.reward:.3f}, "
                f"{report.informative} of {report.local} local groups informative, "
                f"{report.external} external, "
                f"entropy {figure(report.training.entropy, '.2f')}, "
                f"length {figure(report.training.mean_length, '.0f')}, "
                f"gradient {figure(report.training.grad_norm, '.2f')}, "
                + ", ".join(f"{name} {value:.1f} s" for name, value in report.seconds.items())
            )
        case PageServed(address):
            return f"the page is {address}"
        case Started(view):
            started = f"started as {view.session['peer_id']} on {', '.join(view.session['addresses'])}"
            return f"{started}; the page is {view.session['page']}" if view.session["page"] else started
        case Stopped(view) if view.answers and not view.rounds:
            shared = counted(sum(task.groups for task in view.answers), "group")
            return f"stopped; {shared} shared in all. The same command goes on from here"
        case Stopped(view):
            last = view.rounds[-1]["step"] if view.rounds else 0
            return f"stopped after round {last}. The same command goes on from here"
