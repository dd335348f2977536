"""Cases of kind `window`: the epochs that are open at a given time (TIME-1, TIME-2)."""

from collections.abc import Iterable

from cases import ACCEPT, Case
from wire import EXAMPLE, Swarm

BEGIN = EXAMPLE.genesis * 1000
EPOCH = EXAMPLE.epoch_seconds * 1000
EARLY = 30_000
SHORT = Swarm(epoch_seconds=5)
FAR = Swarm(genesis=2**40, epoch_seconds=86_400)


def _case(
    name: str, rule: str, now_ms: int, epoch: int, expect: str = "window", *, swarm: Swarm = EXAMPLE, note: str = ""
) -> Case:
    fields = {"manifest": swarm.encoded(), "now_ms": now_ms, "epoch": epoch}
    return Case(name, rule, "window", fields, expect, note=note)


def cases() -> Iterable[Case]:
    yield from _epochs()
    yield from _before_genesis()
    yield from _open()
    yield from _other_swarms()


def _epochs() -> Iterable[Case]:
    """TIME-1: the current epoch, shown by the earliest epoch that is open."""
    yield _case("epoch 0 at genesis", "TIME-1", BEGIN, 0, ACCEPT)
    yield _case("epoch 0 in the last millisecond of epoch 1", "TIME-1", BEGIN + 2 * EPOCH - 1, 0, ACCEPT)
    yield _case("epoch 0 in the first millisecond of epoch 2", "TIME-1", BEGIN + 2 * EPOCH, 0)
    yield _case("epoch 10 in the middle of epoch 10", "TIME-1", BEGIN + 10 * EPOCH + EPOCH // 2, 10, ACCEPT)
    yield _case("an epoch counted from 1970", "TIME-1", BEGIN, EXAMPLE.genesis // EXAMPLE.epoch_seconds)


def _before_genesis() -> Iterable[Case]:
    note = "It is epoch -1: rounding goes down, not towards zero."
    yield _case("epoch 0 half a minute before genesis", "TIME-2", BEGIN - EARLY, 0, ACCEPT)
    yield _case("epoch 0 more than half a minute before genesis", "TIME-1", BEGIN - EARLY - 1, 0, note=note)
    yield _case("epoch 1 in the second before genesis", "TIME-1", BEGIN - 1000, 1, note=note)
    yield _case("epoch 0 in the second epoch before it", "TIME-2", BEGIN - EPOCH - EARLY, 0)
    yield _case("epoch 0 in 1970", "TIME-2", 0, 0)


def _open() -> Iterable[Case]:
    fifth = BEGIN + 5 * EPOCH
    sixth = fifth + EPOCH
    yield _case("the running epoch as it begins", "TIME-2", fifth, 5, ACCEPT)
    yield _case("the running epoch as it ends", "TIME-2", sixth - 1, 5, ACCEPT)
    yield _case("the epoch before as the running one begins", "TIME-2", fifth, 4, ACCEPT)
    yield _case("the epoch before as the running one ends", "TIME-2", sixth - 1, 4, ACCEPT)
    yield _case("the next epoch 30 seconds before it begins", "TIME-2", sixth - EARLY, 6, ACCEPT)
    yield _case("the next epoch a millisecond before it begins", "TIME-2", sixth - 1, 6, ACCEPT)
    yield _case("the next epoch 30001 milliseconds before it begins", "TIME-2", sixth - EARLY - 1, 6)
    yield _case("the next epoch as the running one begins", "TIME-2", fifth, 6)
    yield _case("the epoch before the last as the running one begins", "TIME-2", fifth, 3)
    yield _case("the epoch before the last as the running one ends", "TIME-2", sixth - 1, 3)
    yield _case("the epoch after the next", "TIME-2", sixth - 1, 7)
    yield _case("epoch 0 in epoch 5", "TIME-2", fifth, 0)
    yield _case("epoch 2 to the 53 less one", "TIME-2", fifth, 2**53 - 1)


def _other_swarms() -> Iterable[Case]:
    begin = SHORT.genesis * 1000
    note = "It begins within half a minute, but only the next epoch may be early."
    yield _case("the next of short epochs", "TIME-2", begin, 1, ACCEPT, swarm=SHORT)
    yield _case("the second next of short epochs", "TIME-2", begin, 2, swarm=SHORT, note=note)
    yield _case("the sixth next of short epochs", "TIME-2", begin, 6, swarm=SHORT, note=note)
    note = "It is epoch -3, and epoch -2 is the next one."
    yield _case("epoch 0 of short epochs 12 s before genesis", "TIME-2", begin - 12_000, 0, swarm=SHORT, note=note)
    yield _case("epoch 0 of short epochs 5 s before genesis", "TIME-2", begin - 5_000, 0, ACCEPT, swarm=SHORT)
    yield _case("the second last of short epochs", "TIME-2", begin + 2 * 5000, 0, swarm=SHORT)
    late = FAR.genesis * 1000
    yield _case("epoch 0 half a minute before a far genesis", "TIME-2", late - EARLY, 0, ACCEPT, swarm=FAR)
    yield _case("epoch 0 a millisecond earlier", "TIME-2", late - EARLY - 1, 0, swarm=FAR)
    yield _case("epoch 1 as a far epoch 1 begins", "TIME-1", late + 86_400_000, 1, ACCEPT, swarm=FAR)
