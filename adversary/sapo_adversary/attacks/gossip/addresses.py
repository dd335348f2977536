"""Addresses of honest nodes, and addresses at which no host listens."""

import random


def nowhere(rng: random.Random) -> str:
    """An address of this machine at which no host listens."""
    return f"/ip4/127.90.{rng.randrange(256)}.{rng.randrange(1, 255)}/tcp/{rng.randrange(20_000, 30_000)}"


def peer_of(address: str) -> str:
    """The peer id at the end of an address."""
    return address.rpartition("/")[2]
