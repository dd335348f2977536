"""Signed rounds of the example swarm."""

from collections.abc import Sequence
from dataclasses import dataclass

import curve
from example import BODY, COUNTER, EPOCH, GROUP
from wire import (
    ALICE,
    EXAMPLE,
    Key,
    Swarm,
    body,
    bstr,
    completion,
    envelope,
    envelope_id,
    group,
    header,
    message,
    protected_header,
    sha256,
    sig_structure,
    table,
)

OTHER_BODY = body([completion("c"), completion("d")])
OTHER_GROUP = group(OTHER_BODY)


def begins(epoch: int) -> int:
    """Unix time, in milliseconds, at which an epoch of the example swarm begins."""
    return 1000 * (EXAMPLE.genesis + epoch * EXAMPLE.epoch_seconds)


NOW_MS = begins(EPOCH) + 60_000
"""One minute after the epoch of the example begins."""


@dataclass(frozen=True)
class Round:
    """What one issuer signs under one (epoch, counter)."""

    groups: Sequence[bytes] = (GROUP,)
    epoch: int = EPOCH
    counter: int = COUNTER
    x: bytes | None = None
    key: Key = ALICE
    swarm: Swarm = EXAMPLE

    @property
    def payload(self) -> bytes:
        return header(self.groups, epoch=self.epoch, counter=self.counter, x=self.x)

    @property
    def envelope(self) -> bytes:
        return envelope(self.payload, self.key, network_id=self.swarm.network_id)

    @property
    def envelope_id(self) -> bytes:
        return envelope_id(self.payload, self.key, network_id=self.swarm.network_id)

    @property
    def slot(self) -> dict[str, object]:
        return {"issuer": self.key.public, "epoch": self.epoch, "counter": self.counter}

    def message(self, *bodies: bytes) -> bytes:
        return message(self.envelope, bodies)


def sealed_in(size: int, filler: bytes = b"\0") -> Round:
    """A round of 16 groups of 16 completions, with an `x` that fills its envelope up to exactly `size` bytes."""
    swarm, groups = Swarm(completions=16), [group(BODY, [1] * 16)] * 16
    missing = size - len(Round(groups, x=table(("a", b"")), swarm=swarm).envelope)
    return Round(groups, x=table(("a", bstr(filler * (missing - 2)))), swarm=swarm)


def signed_again(payload: bytes) -> bytes:
    """An envelope of Alice with another valid signature: the same content and id, other bytes."""
    signed = sig_structure(protected_header(ALICE.public), payload, network_id=EXAMPLE.network_id)
    return envelope(payload)[:-64] + curve.sign(sha256(b"sapo test key alice"), signed, nonce=1)


ROUND = Round()
TWO_GROUPS = Round((GROUP, OTHER_GROUP))
