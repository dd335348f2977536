"""What a node defends itself with, as one value that is handed in at construction.

A node is built with `DEFENDED`, and nothing else is reachable from its configuration. Whoever measures what a defence
is worth builds a node with another value, so that no function and no number is ever replaced in a running process:

    Node(..., defences=replace(DEFENDED, mass_limit=8.0))

The numbers are those of `constants`, which says what each means. `verify`, `blamed` and the flags name the module
that asks them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sapo_node.groups.types import VerifiedGroup
from sapo_node.storage.counters import Counters
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact
from sapo_protocol import (
    Body,
    Equivocation,
    Evidence,
    Header,
    Manifest,
    Opened,
    Rollout,
    Sealed,
    decode_body,
    decode_header,
    decode_message,
    match_bodies,
    open_envelope,
    parse_envelope,
    prove_equivocation,
)

Verify = Callable[[Manifest, Any, Rollout], Awaitable[list[VerifiedGroup]]]
"""`verify(manifest, scorer, rollout)`: the groups of a rollout that are kept."""


def _author(issuer: str) -> str:
    return issuer


@dataclass(frozen=True, slots=True)
class Defences:
    """The defences of a node; the default of each is what a node does."""

    # The wire (protocol/): how bytes become a rollout, and two envelopes a proof.
    decode_message: Callable[[bytes, Manifest], tuple[bytes, tuple[bytes | None, ...]]] = decode_message
    parse_envelope: Callable[..., Sealed] = parse_envelope
    """`parse_envelope(envelope, network_id=...)`."""
    open_envelope: Callable[[Sealed], Opened] = open_envelope
    decode_header: Callable[[bytes, Manifest], Header] = decode_header
    decode_body: Callable[[bytes, Manifest], Body] = decode_body
    prove_equivocation: Callable[[Evidence, Manifest], Equivocation | None] = prove_equivocation
    """None where the node has nothing to do about an accusation. Raises RemoteError for one that is made up."""

    # ingest/
    recognise: Callable[[Counters, bytes, int], None] = Counters.recognise
    """What is asked of an envelope of this node's own key: `recognise(counters, envelope id, epoch)`."""
    epoch_window: bool = True
    """Whether rollouts of other epochs than the open ones are refused."""
    replay_window: bool = True
    """Whether an envelope that was accepted is known again."""
    one_content_per_counter: bool = True
    """Whether a second envelope under one (issuer, epoch, counter) is refused, and bans its issuer."""
    messages_per_second: float = constants.MESSAGES_PER_SECOND
    message_burst: float = constants.MESSAGE_BURST
    untrusted_counters: float = constants.UNTRUSTED_COUNTERS
    strangers_per_second: float = constants.LINK_STRANGERS_PER_SECOND
    strangers_burst: float = constants.LINK_STRANGERS_BURST
    pending_by_link: bool = True
    """Whether waiting rollouts are dropped and drawn by the link that they came by, before their issuer."""
    pending_by_tier: bool = True
    """Whether each tier has places in the pending queue and turns of its own."""
    pending_places: int = constants.PENDING_PLACES
    pending_per_peer: int = constants.PENDING_PER_PEER
    turn_groups: int = constants.TURN_GROUPS

    # trust/
    durable_bans: bool = True
    """Whether the account of a banned peer outlives its connection."""
    offence: Mapping[Fact, float] = field(default_factory=lambda: MappingProxyType(constants.OFFENCE))
    earned_per_epoch: int = constants.EARNED_PER_EPOCH
    unknown_banned: int = constants.UNKNOWN_BANS

    # verification/
    verify: Verify | None = None
    """What stands in place of re-verification; None verifies."""
    drops_flat: bool = True
    """Whether groups without advantage are left out."""
    blamed: Callable[[str], str] = _author
    """The peer that is charged with a false claim or a malformed body, given the peer id of the issuer."""

    # sampling/
    one_answer: bool = True
    """Whether correct completions are rejected that hold another answer before the scored one."""
    healthy_reference: bool = True
    """Whether groups are measured by local ones and those of healthy peers, and not by all on offer."""
    max_age: int = constants.MAX_AGE
    strangers_share: float = constants.STRANGERS_SHARE
    """The strangers' share in the first round."""
    mass_limit: float = constants.LOSS_WEIGHT_LIMIT

    def open_message(self, data: bytes, manifest: Manifest) -> Rollout:
        """All steps from the bytes of a message to its rollout, as `sapo_protocol.open_message`. Raises RemoteError."""
        envelope, bodies = self.decode_message(data, manifest)
        opened = self.open_envelope(self.parse_envelope(envelope, network_id=manifest.network_id))
        return match_bodies(opened, self.decode_header(opened.payload, manifest), bodies)


DEFENDED = Defences()
"""A node as it is."""
