"""Chooses the inbound connection that gives way when a new one arrives and all slots are taken.

A connection that is only held keeps no other out: a new connection always finds a slot. There is no fixed cap
for an address, because many honest nodes may share one (a home, a university, an operator of fifty nodes).

The rule is Bitcoin Core's. It protects connections by several measures at once, and an attacker has to be best in each:

- BY_MESSAGES connections whose peers brought most accepted messages,
- BY_BLOCK connections from different address blocks, the oldest of each block, in an order that is secret,
- then the older half of the rest.

Of what is left, the address block with most connections loses its youngest one.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

BY_MESSAGES, BY_BLOCK = 8, 8
"""Connections that are protected by each measure."""

_SECRET = secrets.token_bytes(32)
"""Of this process. Else an attacker could choose addresses in the blocks that are protected."""


@dataclass(frozen=True, slots=True, eq=False)
class Guest:
    """An inbound connection."""

    peer_id: str
    block: str
    """Its address block, /24 or /48."""
    since: float
    """When it was accepted, in seconds."""
    link: Any = field(default=None, repr=False)
    """The library's connection."""


def least_useful(guests: Sequence[Guest], brought: Callable[[str], int]) -> Guest | None:
    """The connection to close; None if all are protected. `brought(peer id)` counts a peer's accepted messages."""
    rest = sorted(guests, key=lambda guest: guest.since)
    useful = sorted((guest for guest in rest if brought(guest.peer_id)), key=lambda guest: -brought(guest.peer_id))
    rest = _without(rest, useful[:BY_MESSAGES])
    oldest = {guest.block: guest for guest in reversed(rest)}
    rest = _without(rest, [oldest[block] for block in sorted(oldest, key=_secret_order)[:BY_BLOCK]])
    rest = rest[len(rest) // 2 :]
    if not rest:
        return None
    sizes = Counter(guest.block for guest in rest)
    largest = max(sizes.values())
    crowded = secrets.choice([block for block in sizes if sizes[block] == largest])
    return [guest for guest in rest if guest.block == crowded][-1]


def _without(guests: Sequence[Guest], protected: Sequence[Guest]) -> list[Guest]:
    return [guest for guest in guests if guest not in protected]


def _secret_order(block: str) -> bytes:
    return hashlib.blake2b(block.encode(), key=_SECRET, digest_size=16).digest()
