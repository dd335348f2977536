"""The strangers' share: which part of the external groups of a round strangers may fill.

Keys cost nothing, so the share is that of all strangers together, and time alone does not raise it. It starts at
STRANGERS_SHARE with the first round, so that strangers are heard at once. Each round that trained on strangers and
raised no alarm adds SHARE_RISE, up to the whole of J. Each alarm halves the share, but never below SHARE_LEAST: a node
that hears nothing of strangers could not learn that they do no harm.

A reward that falls without any stranger in the last HARM_ROUNDS rounds is no fault of strangers, and no alarm.
"""

from dataclasses import dataclass
from typing import Any

from sapo_node.groups.codec import from_json, to_object
from sapo_node.trust import constants
from sapo_node.trust.defences import DEFENDED, Defences


@dataclass(frozen=True, slots=True)
class _State:
    share: float
    since: int = 0


class Exposure:
    """The strangers' share of one node."""

    def __init__(self, *, defences: Defences = DEFENDED) -> None:
        self.share = defences.strangers_share
        """Of the external groups of a round, between 0 and 1."""
        self._since = constants.HARM_ROUNDS
        """Rounds since the last one that trained on strangers."""

    @property
    def is_recent(self) -> bool:
        """Whether the last HARM_ROUNDS rounds trained on strangers."""
        return self._since < constants.HARM_ROUNDS

    def observe(self, *, strangers: int, alarm: bool) -> None:
        """Take in a round that trained on so many groups of strangers."""
        self._since = 0 if strangers else self._since + 1
        if alarm:
            self.share = max(constants.SHARE_LEAST, self.share / 2)
        elif strangers:
            self.share = min(1.0, self.share + constants.SHARE_RISE)

    def state_dict(self) -> dict[str, Any]:
        """The share, and the rounds since it was used."""
        return to_object(_State(self.share, self._since))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the share in `state`. Raises MalformedError where it holds none."""
        read = from_json(_State, state)
        self.share, self._since = read.share, read.since
