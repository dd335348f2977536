"""Pairs of an envelope id and bodies, as requests and listings hold them."""

from wire import array, bstr, sha256, uint

IDS = sorted(sha256(b"sapo test id %d" % number) for number in range(1_025))
"""More ids than any list may hold, ascending; of envelopes that nobody signed."""


def held(envelope_id: bytes, bodies: int) -> bytes:
    """One pair."""
    return array([bstr(envelope_id), uint(bodies)])
