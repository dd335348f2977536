"""The interface of all filters outside the learner: what each may learn, and at which places it may act."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from sapo_node.groups.messages import Bounds, FilterName
from sapo_node.groups.record import LocalGroup, Span, VerifiedGroup
from sapo_node.sampling.alarm import Alarm


class Filter:
    """One filter. Each method does nothing here: a filter overrides those that it needs.

    A filter only keeps text out of the training of one node. What it rejects is no offence of a peer: the peer's groups
    are drawn less often, and earn less (`trust.constants.Acceptance`).
    """

    name: ClassVar[FilterName]

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Take in local groups."""

    def read(self, group: VerifiedGroup, texts: Sequence[str]) -> None:
        """Take in one group on offer, if it is new. `texts` are its correct completions that no filter rejects. A
        filter that needs long for a text spends that time here.
        """

    def trained(self, group: VerifiedGroup, texts: Sequence[str]) -> None:
        """Take in the correct completions of a group that this node trained on, once, at least one."""

    def looking(self, offered: Sequence[VerifiedGroup]) -> Iterator[None]:
        """Take in all groups on offer, once a round, after `read` of each, and before this filter masks any of them. A
        filter that needs long for it does it in steps, between which other tasks may run.
        """
        del offered
        yield from ()

    def worth(self, group: VerifiedGroup) -> float | None:
        """The advantage of a correct completion of a group; None if the filter leaves it as it is."""

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Return whether a correct completion of a group must not be trained on."""
        del group, text
        return False

    def mask(self, group: VerifiedGroup, text: str) -> tuple[Span, ...]:
        """The characters of a completion of a group that must not be trained on, in order."""
        del group, text
        return ()

    def bounds(self, group: VerifiedGroup, usual: Bounds) -> Bounds:
        """Return the bounds of the correct completions of a group: `usual`, with those that this filter sets. The
        learner applies them, because it knows the tokens and their probabilities.
        """
        del group
        return usual

    def alarm(self) -> Alarm | None:
        """Return an alarm if something that this filter stops has taken hold in local completions."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the filter, as bounded plain JSON; empty if it learns nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Know what the filter knew that wrote `state`. Raises MalformedError if no such filter did."""
