"""Cases of kind `shard`: the shard of an issuer in an epoch (TOP-3)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from wire import ALICE, BOB, EXAMPLE, Swarm, array, bstr, sha256, text, uint

FOUR = Swarm({"shards": uint(4)})
MOST = Swarm({"shards": uint(32)})
OTHER = Swarm({"shards": uint(4)}, genesis=0)


def drawn(issuer: bytes, epoch: int, swarm: Swarm) -> int:
    """The number whose remainder is the shard."""
    asked = array([text("sapo/shard/2"), bstr(swarm.network_id), bstr(issuer), uint(epoch)])
    return int.from_bytes(sha256(asked)[:8], "big")


def _fields(shard: int, issuer: bytes, epoch: int, swarm: Swarm) -> dict[str, object]:
    topic = f"/sapo/2/{swarm.network_id.hex()}/rollouts/{shard}"
    return {"manifest": swarm.encoded(), "topic": topic, "issuer": issuer, "epoch": epoch}


def _passes(
    name: str, shards: int, swarm: Swarm, *, issuer: bytes = ALICE.public, epoch: int = 5, note: str = ""
) -> Case:
    shard = drawn(issuer, epoch, swarm) % shards
    return Case(name, "TOP-3", "shard", _fields(shard, issuer, epoch, swarm), ACCEPT, {"shard": shard}, note)


def _fails(name: str, shard: int, swarm: Swarm, *, issuer: bytes = ALICE.public, epoch: int = 5) -> Case:
    return Case(name, "TOP-3", "shard", _fields(shard, issuer, epoch, swarm), "topic")


def cases() -> Iterable[Case]:
    yield _passes("one shard is everybodys", 1, EXAMPLE)
    yield _passes("one of four", 4, FOUR)
    yield _passes("another issuer", 4, FOUR, issuer=BOB.public)
    yield _passes("an issuer of zeros", 4, FOUR, issuer=bytes(32), note="Whether a key is one is not asked here.")
    yield _passes("the next epoch", 4, FOUR, epoch=6)
    yield _passes("epoch 0", 4, FOUR, epoch=0)
    yield _passes("the largest epoch of this contract", 4, FOUR, epoch=2**53 - 1)
    yield _passes("another swarm", 4, OTHER)
    yield _passes("one of thirty-two", 32, MOST)
    yield from _bits()
    yield from _others()


def _bits() -> Iterator[Case]:
    for bit, name in ((1, "set"), (0, "not set")):
        epoch = next(epoch for epoch in range(1_000) if drawn(ALICE.public, epoch, FOUR) >> 63 == bit)
        yield _passes(f"a draw whose highest bit is {name}", 4, FOUR, epoch=epoch)


def _others() -> Iterator[Case]:
    own = drawn(ALICE.public, 5, FOUR) % 4
    for distance in (1, 2, 3):
        yield _fails(f"{distance} behind the own of four", (own + distance) % 4, FOUR)
    least = next(epoch for epoch in range(5, 1_000) if drawn(ALICE.public, epoch, FOUR) % 4 != own)
    yield _fails("the shard of an earlier epoch", own, FOUR, epoch=least)
    epoch = next(
        epoch for epoch in range(1_000) if drawn(ALICE.public, epoch, FOUR) % 4 != drawn(BOB.public, epoch, FOUR) % 4
    )
    yield _fails("the shard of another issuer", drawn(BOB.public, epoch, FOUR) % 4, FOUR, epoch=epoch)
