"""The strangers' share: which part of the external groups of a round strangers may fill.

Keys cost nothing, so the share is that of all strangers together, and time alone does not raise it. It starts at
STRANGERS_SHARE with the first round, so that strangers are heard at once. Each round that trained on strangers and
raised no alarm adds SHARE_RISE, up to the whole of J. Each alarm halves the share, but never below SHARE_LEAST: a node
that hears nothing of strangers could not learn that they do no harm.
"""

from dataclasses import dataclass
from typing import Any

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.ranges import Share
from sapo_node.trust import constants
from sapo_node.trust.limits import LIMITS, Limits


@dataclass(frozen=True, slots=True)
class _State:
    share: Share


class Exposure:
    """The strangers' share of one node."""

    def __init__(self, *, limits: Limits = LIMITS) -> None:
        self.share = limits.strangers_share
        """Of the external groups of a round, between 0 and 1."""

    def observe(self, *, strangers: int, alarm: bool) -> None:
        """Take in a round that trained on so many groups of strangers."""
        if alarm:
            self.share = max(constants.SHARE_LEAST, self.share / 2)
        elif strangers:
            self.share = min(1.0, self.share + constants.SHARE_RISE)

    def state_dict(self) -> dict[str, Any]:
        """The share."""
        return to_object(_State(self.share))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the share in `state`. Raises MalformedError where it holds none."""
        self.share = from_json(_State, state).share
