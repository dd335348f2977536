"""A worker answers, or fails in bounded time and comes back; it never outlives its node."""

import os
import signal
import subprocess
import sys
import time

import pytest
import trio

from sapo_node.processes import worker as worker_module
from sapo_node.processes.frames import FrameError
from sapo_node.processes.worker import Worker, WorkerFailed
from sapo_protocol.errors import LocalError

CHILD = """
import os, signal, sys, time
from sapo_node.processes.frames import read_frame, write_frame
start = sys.argv[1]
if start == "fatal":
    write_frame(1, {"fatal": "no such model; name another one"})
    sys.exit(1)
if start == "die":
    sys.exit(1)
if start == "despair":
    sys.exit("Traceback: " + "x" * 100_000 + "\\nno memory left")
if start == "garbage":
    os.write(1, b"Traceback (most recent call last):")
if start == "hang":
    time.sleep(60)
if start == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
write_frame(1, {"ready": {"pid": os.getpid()}})
while (request := read_frame(0)) is not None:
    match request["do"]:
        case "echo":
            write_frame(1, request)
        case "garbage":
            os.write(1, b"\\x03\\x00\\x00\\x00{{{")
        case "oversize":
            write_frame(1, "x" * 20_000)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "twice":
            write_frame(1, 1)
            write_frame(1, 2)
        case "hang":
            time.sleep(60)
        case "say":
            sys.stderr.write(request["words"])
            sys.stderr.flush()
            write_frame(1, 1)
while start == "stubborn":
    time.sleep(1)
"""


def make_worker(start: str = "well", *, start_deadline: float = 20.0, name: str = "test") -> Worker:
    return Worker(name, [sys.executable, "-c", CHILD, start], start_deadline=start_deadline, reply_limit=10_000)


async def restarted(worker: Worker, since: int = 0) -> None:
    with trio.fail_after(1000):
        while worker.restarts == since:  # noqa: ASYNC110 - the number is all that a caller sees
            await trio.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_answers_requests_in_turn(nursery: trio.Nursery) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    answers = []

    async def ask(number: int) -> None:
        answers.append((await worker.request({"do": "echo", "n": number}, deadline=10))["n"] == number)

    async with trio.open_nursery() as askers:
        for number in range(20):
            askers.start_soon(ask, number)
    assert answers == [True] * 20
    assert worker.restarts == 0


@pytest.mark.parametrize("what", ["garbage", "oversize", "die", "hang"])
async def test_a_failed_request_costs_its_child_and_the_next_one_is_answered(nursery: trio.Nursery, what: str) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    first = worker.ready["pid"]
    with pytest.raises(WorkerFailed):
        await worker.request({"do": what}, deadline=10 if what != "hang" else 0.3)
    assert await worker.request({"do": "echo"}, deadline=20) == {"do": "echo"}
    assert worker.restarts == 1
    assert worker.ready["pid"] != first
    assert not runs(first)


async def test_what_a_child_says_is_logged_and_cannot_steer_the_terminal(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    await worker.request({"do": "say", "words": "a tensor \x1b]0;owned\x07\u202ecalled this\n\nbye\n"}, deadline=10)
    with trio.fail_after(10):
        while "bye" not in caplog.messages:  # noqa: ASYNC110 - a log line sets no trio.Event
            await trio.sleep(0.01)
    assert caplog.messages == [r"a tensor \x1b]0;owned\x07\u202ecalled this", "bye"]
    assert "\x1b" not in capfd.readouterr().err


async def test_the_last_words_of_a_child_that_dies_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LocalError):
        await make_worker("despair").run()
    deaths = sum("ended before it was ready" in each for each in caplog.messages)
    assert caplog.messages.count("no memory left") == deaths > 0


async def test_a_second_reply_never_answers_the_next_request(nursery: trio.Nursery) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    assert await worker.request({"do": "twice"}, deadline=10) == 1
    await restarted(worker)
    assert await worker.request({"do": "echo"}, deadline=20) == {"do": "echo"}


async def test_a_cancelled_request_never_answers_the_next_one(nursery: trio.Nursery) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    with trio.move_on_after(0.2):
        await worker.request({"do": "hang"}, deadline=10)
    assert await worker.request({"do": "echo"}, deadline=20) == {"do": "echo"}
    assert worker.restarts == 1


async def test_a_child_killed_while_idle_is_replaced(nursery: trio.Nursery) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    os.kill(worker.ready["pid"], signal.SIGKILL)
    await restarted(worker)
    assert await worker.request({"do": "echo"}, deadline=20) == {"do": "echo"}


async def test_a_request_too_large_is_refused_and_the_child_lives_on(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    await nursery.start(worker.run)
    monkeypatch.setattr(worker_module, "MAX_FRAME", 100)
    with pytest.raises(FrameError):
        await worker.request({"do": "echo", "nan": float("nan")}, deadline=10)
    assert await worker.request({"do": "echo"}, deadline=20) == {"do": "echo"}
    assert worker.restarts == 0


async def test_a_request_while_no_child_is_up_ends_at_its_deadline() -> None:
    worker = make_worker()
    with pytest.raises(WorkerFailed, match=r"within 0\.1 s"):
        await worker.request({"do": "echo"}, deadline=0.1)


async def test_a_request_after_the_end_fails_at_once() -> None:
    worker = make_worker()
    async with trio.open_nursery() as own:
        await own.start(worker.run)
        own.cancel_scope.cancel()
    with pytest.raises(WorkerFailed, match="stopped"):
        await worker.request({"do": "echo"}, deadline=60)


async def test_cancelling_reaps_a_child_that_ignores_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "STOP_GRACE", 0.3)
    worker = make_worker("stubborn")
    async with trio.open_nursery() as own:
        await own.start(worker.run)
        own.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(worker.ready["pid"], 0)


async def test_a_fatal_first_frame_ends_the_worker_with_its_line() -> None:
    worker = make_worker("fatal")
    with pytest.raises(LocalError, match="no such model; name another one"):
        await worker.run()
    assert worker.restarts == 0


@pytest.mark.parametrize("start", ["die", "garbage", "hang"])
async def test_a_child_that_never_comes_up_ends_the_worker(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "FIRST_BACKOFF", 0.01)
    worker = make_worker(start, start_deadline=0.4 if start == "hang" else 20.0)
    with pytest.raises(WorkerFailed, match="died 3 times while starting"):
        await worker.run()


async def test_deaths_in_a_row_are_spaced_out_until_a_request_is_answered(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "FIRST_BACKOFF", 0.05)
    worker = make_worker()
    await nursery.start(worker.run)
    for deaths in range(3):
        assert worker._backoff == pytest.approx(0.05 * 2**deaths)
        with pytest.raises(WorkerFailed):
            await worker.request({"do": "die"}, deadline=20)
        await restarted(worker, since=deaths)
    await worker.request({"do": "echo"}, deadline=20)
    assert worker._backoff == pytest.approx(0.05)


def test_a_child_dies_with_its_parent() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import sys, trio
from sapo_node.processes.worker import Worker
worker = Worker("test", [sys.executable, "-c", {CHILD!r}, "stubborn"], start_deadline=20)
async def main() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        print(worker.ready["pid"], flush=True)
        await trio.sleep(60)
trio.run(main)
""",
        ],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert runs(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.stdout.close()
