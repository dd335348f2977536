"""Pairs of an envelope id and bodies, for requests and listings."""

from wire import array, bstr, sha256, uint

IDS = sorted(sha256(b"sapo test id %d" % number) for number in range(1_025))
"""Ascending ids of envelopes that do not exist: one more than a listing may hold."""

NUMBERED = [number.to_bytes(32, "big") for number in range(1, 1_025)]
"""Ascending ids that differ in their last two bytes: as many as a listing may hold."""


def inventory_item(envelope_id: bytes, bodies: int) -> bytes:
    """One encoded pair."""
    return array([bstr(envelope_id), uint(bodies)])
