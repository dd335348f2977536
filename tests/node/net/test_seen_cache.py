"""One question per content, whatever the order and number of its copies."""

from collections.abc import Callable
from hashlib import sha256

import pytest
import trio
from sapo_node.net.seen_cache import CAPACITY, IGNORED_SECONDS, SETTLED_SECONDS, RecentIds, SeenCache, message_id
from trio.testing import MockClock

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel


async def test_copies_that_arrive_together_are_one_question(autojump_clock: MockClock) -> None:
    asked: list[str] = []
    verdicts: list[Verdict | None] = []

    async def slow(sender: str, _data: bytes) -> Verdict:
        asked.append(sender)
        await trio.sleep(1)
        return Verdict.ACCEPT

    cache = SeenCache(Channel(slow, 100))

    async def arrive(sender: str) -> None:
        verdicts.append(await cache.ask(sender, b"m"))

    async with trio.open_nursery() as nursery:
        for sender in "abc":
            nursery.start_soon(arrive, sender)
    assert len(asked) == 1
    assert sorted(verdicts, key=str) == [None, None, Verdict.ACCEPT]


async def test_a_question_that_was_cancelled_is_asked_again(autojump_clock: MockClock) -> None:
    answers: list[Callable[[], float]] = [lambda: 100.0, lambda: 0.0]

    async def handle(_sender: str, _data: bytes) -> Verdict:
        await trio.sleep(answers.pop(0)())
        return Verdict.ACCEPT

    cache = SeenCache(Channel(handle, 100))
    with trio.move_on_after(1):
        await cache.ask("a", b"m")
    assert await cache.ask("b", b"m") is Verdict.ACCEPT


@pytest.mark.parametrize(
    ("verdict", "wait", "again"),
    [
        (Verdict.IGNORE, IGNORED_SECONDS - 1, None),
        (Verdict.IGNORE, IGNORED_SECONDS + 1, Verdict.IGNORE),
        (Verdict.BUSY, 0, Verdict.BUSY),
        (Verdict.REJECT, SETTLED_SECONDS - 1, None),
        (Verdict.ACCEPT, SETTLED_SECONDS - 1, None),
    ],
)
async def test_a_verdict_is_remembered_for_its_time(
    verdict: Verdict, wait: float, again: Verdict | None, autojump_clock: MockClock
) -> None:
    async def handle(_sender: str, _data: bytes) -> Verdict:
        return verdict

    cache = SeenCache(Channel(handle, 100))
    await cache.ask("a", b"m")
    await trio.sleep(wait)
    assert await cache.ask("a", b"m") is again


async def test_the_memory_is_bounded() -> None:
    ids = RecentIds()
    for number in range(CAPACITY + 1):
        ids.add(number.to_bytes(4, "big"))
    assert not ids.has((0).to_bytes(4, "big"))
    assert ids.has((CAPACITY).to_bytes(4, "big"))


async def test_what_has_passed_is_not_kept(autojump_clock: MockClock) -> None:
    ids = RecentIds()
    for number in range(100):
        ids.add(number.to_bytes(4), 1.0)
        await trio.sleep(2)
    assert len(ids._until) == 1


def test_the_id_of_a_message_is_that_of_the_spec_and_differs_by_topic() -> None:
    assert message_id("/sapo/2/x/evidence", b"m") == sha256(b"/sapo/2/x/evidence\0m").digest()
    assert message_id("/sapo/2/x/evidence", b"m") != message_id("/sapo/2/x/rollouts/0", b"m")
