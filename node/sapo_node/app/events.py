"""Events that a running node sends to its observer: the live view, the JSON lines or a person at the terminal."""

from collections.abc import Callable
from dataclasses import dataclass

from sapo_node.groups.record import ContributionReport
from sapo_node.observability.overview import Overview
from sapo_node.observability.stored import Notice
from sapo_node.training.round import Phase, RoundReport


@dataclass(frozen=True, slots=True)
class PageServed:
    """The page can be opened, while the node still starts."""

    address: str
    """With the token, if the page asks for one."""


@dataclass(frozen=True, slots=True)
class Started:
    """The node listens, and its processes have started."""

    overview: Overview


@dataclass(frozen=True, slots=True)
class Played:
    """A round has ended."""

    report: RoundReport
    overview: Overview


@dataclass(frozen=True, slots=True)
class Shared:
    """A node that does not train has shared a round."""

    report: ContributionReport
    overview: Overview


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The facts of the session were updated, which happens every few seconds."""

    look: Callable[[], Overview]
    """Builds the current overview. It reads much of the database, so call it only to show the overview."""


@dataclass(frozen=True, slots=True)
class Phased:
    """The phase of the round has changed."""

    phase: Phase | None
    """None between rounds."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """The node has a new notice."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Stopped:
    """The node has stopped without an error."""

    overview: Overview


Event = PageServed | Started | Refreshed | Phased | Played | Shared | Noticed | Stopped
Observer = Callable[[Event], None]
