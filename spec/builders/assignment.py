"""Cases of kind `assignment`: task and seed, where implementations may differ (TASK-1)."""

from collections.abc import Callable, Iterable
from itertools import count

from cases import ACCEPT, Case
from tasks import assigned, draw
from wire import ALICE, BOB, EXAMPLE, Swarm, TaskEntry, table, uint

CONFIG = table(("max", uint(9)))
ONE = Swarm(tasks=(TaskEntry("interop_sum", CONFIG, 1),))
HEAVY = Swarm(tasks=[TaskEntry("interop_sum", CONFIG, 2**32)] * 64)
LONG = Swarm(max_rounds=100_000)


def _case(
    name: str,
    *,
    issuer: bytes = ALICE.public,
    epoch: int = 5,
    counter: int = 24,
    k: int = 0,
    swarm: Swarm = EXAMPLE,
    note: str = "",
) -> Case:
    fields = {"manifest": swarm.encoded(), "issuer": issuer, "epoch": epoch, "counter": counter, "k": k}
    task, seed = assigned(issuer, epoch, counter, k, swarm=swarm)
    return Case(name, "TASK-1", "assignment", fields, ACCEPT, {"task": task, "seed": seed}, note)


def _first(fits: Callable[[int, int], bool], swarm: Swarm = EXAMPLE) -> int:
    """The first epoch whose first task of ALICE `fits`: its first eight bytes and the next four, as integers."""
    draws = ((epoch, draw(ALICE.public, epoch, 0, 0, swarm=swarm)) for epoch in count())
    return next(
        epoch for epoch, drawn in draws if fits(int.from_bytes(drawn[:8], "big"), int.from_bytes(drawn[8:12], "big"))
    )


def cases() -> Iterable[Case]:
    yield _case("a task")
    yield _case("the next task of the round", k=1)
    yield _case("the last task of a round", k=15)
    yield _case("the next round", counter=25)
    yield _case("the next epoch", epoch=6)
    yield _case("another issuer", issuer=BOB.public)
    yield _case("an issuer of zeros", issuer=bytes(32))
    yield _case("the same in another swarm", swarm=LONG)
    yield _case("the first of all", epoch=0, counter=0)
    yield _case("the largest counter", counter=99_999, swarm=LONG)
    yield _case("the largest epoch of this contract", epoch=2**53 - 1)

    def first(name: str, fits: Callable[[int, int], bool], swarm: Swarm = EXAMPLE, note: str = "") -> Case:
        return _case(name, epoch=_first(fits, swarm), counter=0, swarm=swarm, note=note)

    note = "The weights are 1, 2 and 1: the first sum that is greater than the draw."
    for remainder, what in enumerate(("the first", "the second", "the second again", "the third")):
        yield first(f"a draw of {remainder} is {what}", lambda d, _, wanted=remainder: d % 4 == wanted, note=note)
    yield first("a draw whose highest bit is set", lambda d, _: d >> 63 == 1 and d % 4 == 3)
    yield first("a draw whose highest bit is not set", lambda d, _: d >> 63 == 0 and d % 4 == 3)
    yield first("a seed that is reduced", lambda _, seed: seed >= 2**31)
    yield first("a seed that is not reduced", lambda _, seed: seed < 2**31)
    yield _case("a catalogue of one task", swarm=ONE)
    note = "The weights sum up to 2^38."
    yield _case("a catalogue of the largest weights", swarm=HEAVY, note=note)
    yield first("the first of the largest weights", lambda d, _: d % 2**38 < 2**32, HEAVY, note)
    yield first("the last of the largest weights", lambda d, _: d % 2**38 >= 63 * 2**32, HEAVY, note)
