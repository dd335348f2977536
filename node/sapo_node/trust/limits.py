"""The numbers that bound what peers can do to a node, as one value that the parts take at construction.

A node runs with `LIMITS`; no setting changes them. The numbers are those of `constants`, which explains them. An
experiment or a test builds a part with other numbers:

    Ledger(database, limits=Limits(earned_per_epoch=100))
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sapo_node.trust import constants
from sapo_node.trust.constants import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a node."""

    # ingest/
    messages_per_second: float = constants.MESSAGES_PER_SECOND
    message_burst: float = constants.MESSAGE_BURST
    untrusted_counters: float = constants.UNTRUSTED_COUNTERS
    strangers_per_second: float = constants.LINK_STRANGERS_PER_SECOND
    strangers_burst: float = constants.LINK_STRANGERS_BURST
    pending_places: int = constants.PENDING_PLACES
    pending_per_peer: int = constants.PENDING_PER_PEER
    turn_groups: int = constants.TURN_GROUPS

    # trust/
    offence: Mapping[Fact, float] = field(default_factory=lambda: MappingProxyType(constants.OFFENCE))
    earned_per_epoch: int = constants.EARNED_PER_EPOCH
    unknown_bans: int = constants.UNKNOWN_BANS

    # sampling/
    max_age: int = constants.MAX_AGE
    strangers_share: float = constants.STRANGERS_SHARE
    """The strangers' share of the external groups of the first round."""
    loss_weight: float = constants.LOSS_WEIGHT_LIMIT


LIMITS = Limits()
"""The limits that every node has."""
