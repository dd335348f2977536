"""What a running node tells its observer: the live view, the JSON lines or a person at the terminal."""

from collections.abc import Callable
from dataclasses import dataclass

from sapo_node.groups.types import ContributionReport
from sapo_node.observability.overview import Overview
from sapo_node.training.round import Phase, RoundReport


@dataclass(frozen=True, slots=True)
class Started:
    """The node listens, and its processes are up."""

    overview: Overview


@dataclass(frozen=True, slots=True)
class Played:
    """A round is over."""

    report: RoundReport
    overview: Overview


@dataclass(frozen=True, slots=True)
class Shared:
    """A round of a node that does not train is shared."""

    report: ContributionReport
    overview: Overview


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Some seconds have passed."""

    look: Callable[[], Overview]
    """Gathers the overview of now. It reads much of the database: call it only to show it."""


@dataclass(frozen=True, slots=True)
class Phased:
    """A round has come to its next phase, or does nothing for the moment."""

    phase: Phase | None


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something that a person may want to know."""

    text: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The node has stopped in order."""

    overview: Overview


Event = Started | Refreshed | Phased | Played | Shared | Noticed | Stopped
Observer = Callable[[Event], None]
