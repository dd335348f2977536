"""The sandbox gives the verdicts of the scorers, or none: every failure is closed, bounded, counted and repaired."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.tasks import build_task, task_digest
from sapo_node.verification.sandbox import requests, zygote
from sapo_node.verification.sandbox import sandbox as sandbox_module
from sapo_node.verification.sandbox.lockdown import ADDRESS_SPACE
from sapo_node.verification.sandbox.requests import (
    Failed,
    MalformedReplyError,
    Scored,
    ScoreRequest,
    decode_results,
    read_results,
)
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import TaskSpec
from sapo_protocol.errors import LocalError

EASY: Mapping[str, Any] = {"max_terms": 2, "min_digits": 2, "max_digits": 2}
TASK = build_task("chain_sum", EASY, 7)
RIGHT, WRONG = f"so <answer>{TASK.answer}</answer>", "so <answer>0.5</answer>"
CHAIN_SUM = (TaskSpec("chain_sum", EASY, 1),)
GOOD = ScoreRequest("chain_sum", EASY, 7, (RIGHT, WRONG, "", "\ud800\0", RIGHT))
TWO = ScoreRequest("chain_sum", EASY, 7, (RIGHT, WRONG))
GOOD_RESULT = Scored(TASK.prompt, task_digest(TASK.prompt, TASK.answer), (1, 0, 0, 0, 1))
ENDLESS = ScoreRequest("chain_sum", {"min_digits": 50_000_000, "max_digits": 50_000_000}, 7, (RIGHT,))
"""Builds numbers of fifty million digits within one call into C, which no Python signal handler could interrupt."""


def zygote_of(sandbox: Sandbox) -> int:
    child = sandbox._worker._child
    assert child is not None
    return child.process.pid


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descriptors_of(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


async def child_of(pid: int) -> int:
    with trio.fail_after(20):
        while not children_of(pid):  # noqa: ASYNC110 - another process's fork sets no event here
            await trio.sleep(0.01)
    await trio.sleep(0.1)  # long enough for it to have locked itself down
    return children_of(pid)[0]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def limits_of(pid: int) -> list[str]:
    return [" ".join(line.split()) for line in Path(f"/proc/{pid}/limits").read_text().splitlines()]


async def test_a_batch_gets_the_verdicts_of_the_scorers(sandbox: Sandbox) -> None:
    assert await sandbox.score([GOOD]) == [GOOD_RESULT]
    assert await sandbox.score([]) == []
    assert not sandbox.failures


async def test_a_request_without_completions_builds_the_question(sandbox: Sandbox) -> None:
    requests = [ScoreRequest(dataset, {}, 5, ()) for dataset in ("arc_1d", "spell_backward", "bf", "binary_matrix")]
    for request, result in zip(requests, await sandbox.score(requests), strict=True):
        task = build_task(request.dataset, {}, 5)
        assert result == Scored(task.prompt, task_digest(task.prompt, task.answer), ())


async def test_a_bad_item_fails_alone(sandbox: Sandbox) -> None:
    bad = [
        ScoreRequest("no such dataset", {}, 1, (RIGHT,)),
        ScoreRequest("chain_sum", {"min_terms": 0}, 1, (RIGHT,)),
        ScoreRequest("chain_sum", {}, -1, (RIGHT,)),
        ScoreRequest("arc_1d", {"min_size": 10**12, "max_size": 10**11}, 1, (RIGHT,)),
        ScoreRequest("spell_backward", {"data_file": "/etc/passwd"}, 1, (RIGHT,)),
    ]
    assert await sandbox.score([GOOD, *bad, GOOD]) == [GOOD_RESULT, *[None] * len(bad), GOOD_RESULT]
    assert sandbox.failures == {"task": len(bad)}
    assert sandbox.restarts == 0


async def test_a_configuration_that_is_no_plain_data_fails_closed(sandbox: Sandbox) -> None:
    assert await sandbox.score([ScoreRequest("chain_sum", {"max_terms": b"2"}, 1, ())]) == [None]
    assert sandbox.failures == {"request": 1}
    assert await sandbox.score([GOOD]) == [GOOD_RESULT]


async def test_a_large_batch_is_split_and_kept_in_order(sandbox: Sandbox) -> None:
    results = await sandbox.score([ScoreRequest("leg_counting", {}, seed, ()) for seed in range(300)])
    prompts = [result.prompt for result in results if result]
    assert prompts == [build_task("leg_counting", {}, seed).prompt for seed in range(300)]


def test_all_layers_that_this_platform_has_are_reported(sandbox: Sandbox) -> None:
    not_started = Sandbox()
    assert not_started.layers == {}
    assert not not_started.confined
    assert not_started.describe() == "the sandbox has not started"
    assert set(sandbox.layers) == {"rlimits", "seccomp", "landlock", "namespaces", "unprivileged"}
    assert sandbox.reasoning_gym == "0.1.25"
    if sys.platform == "linux":
        assert sandbox.confined
        assert "rlimits, seccomp" in sandbox.describe()


def test_a_platform_that_lacks_layers_is_described_as_such() -> None:
    sandbox = Sandbox()
    sandbox._worker.ready = {"layers": {"rlimits": True, "unprivileged": True}}
    assert not sandbox.confined
    assert sandbox.describe() == (
        "the sandbox holds with rlimits, unprivileged; this platform lacks seccomp, landlock, namespaces:"
        " too little for peers' text"
    )
    sandbox._worker.ready = {"layers": {"rlimits": True, "seccomp": True, "unprivileged": True}}
    assert sandbox.confined
    assert sandbox.describe().endswith("lacks landlock, namespaces: enough for peers' text")


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def require_lockdown(zygote: int, child: int) -> None:
    for process in (zygote, child):
        status = status_of(process)
        assert status["Uid"].split()[0] != "0"
        assert status["NoNewPrivs"] == "1"
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert os.getsid(process) != os.getsid(0)
        assert f"Max address space {ADDRESS_SPACE} {ADDRESS_SPACE} bytes" in limits_of(process)
    with trio.fail_after(20):  # the child locks itself down after it was forked
        while status_of(child)["Seccomp"] != "2":  # noqa: ASYNC110 - as in `child_of`
            await trio.sleep(0.01)
    if os.getuid() == 0:
        # The null device three times and the pipe for its one result.
        assert len(descriptors_of(child)) == 4


@linux
async def test_an_item_that_never_ends_is_killed_at_its_processor_limit(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "ITEM_SECONDS", 0.2)
    assert await sandbox.score([GOOD, ENDLESS, GOOD]) == [GOOD_RESULT, None, GOOD_RESULT]
    assert sandbox.failures == {"timeout": 1}
    assert await sandbox.score([GOOD]) == [GOOD_RESULT]
    assert sandbox.restarts == 0


@linux
async def test_a_batch_that_sleeps_is_killed_at_its_deadline(
    nursery: trio.Nursery, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "WALL_SECONDS", 1.0)
    pid = zygote_of(sandbox)

    async def stop_the_child() -> None:
        os.kill(await child_of(pid), signal.SIGSTOP)

    nursery.start_soon(stop_the_child)
    assert await sandbox.score([ENDLESS]) == [None]
    assert sandbox.failures == {"timeout": 1}
    assert children_of(pid) == []
    assert await sandbox.score([GOOD]) == [GOOD_RESULT]
    assert sandbox.restarts == 0


@linux
async def test_a_child_that_is_killed_fails_the_item_at_which_it_stopped(
    nursery: trio.Nursery, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    pid = zygote_of(sandbox)

    async def kill_the_child() -> None:
        os.kill(await child_of(pid), signal.SIGKILL)

    nursery.start_soon(kill_the_child)
    assert await sandbox.score([ENDLESS, GOOD]) == [None, GOOD_RESULT]
    assert sandbox.failures == {"died": 1}
    said = "1 of 2 tasks failed in the sandbox; the first, of chain_sum: the process that scored it died"
    assert said in caplog.messages
    assert zygote_of(sandbox) == pid


@linux
async def test_a_zygote_and_child_are_locked_down_and_one_that_is_killed_fails_the_batch_and_comes_back(
    nursery: trio.Nursery,
) -> None:
    sandbox = Sandbox(CHAIN_SUM)
    await nursery.start(sandbox.run)
    pid = zygote_of(sandbox)
    children = []

    async def kill_the_zygote() -> None:
        children.append(await child_of(pid))
        await require_lockdown(pid, children[0])
        os.kill(pid, signal.SIGKILL)

    nursery.start_soon(kill_the_zygote)
    assert await sandbox.score([ENDLESS]) == [None]
    assert sandbox.failures == {"restart": 1}
    assert await sandbox.score([GOOD]) == [GOOD_RESULT]
    assert sandbox.restarts == 1
    assert is_gone(pid)
    assert is_gone(children[0])


@linux
async def test_a_zygote_that_hangs_is_replaced(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module, "WALL_SECONDS", 0.2)
    monkeypatch.setattr(sandbox_module, "_MARGIN", 0.3)
    sandbox = Sandbox(CHAIN_SUM)
    await nursery.start(sandbox.run)
    os.kill(zygote_of(sandbox), signal.SIGSTOP)
    assert await sandbox.score([GOOD]) == [None]
    assert sandbox.failures == {"restart": 1}
    monkeypatch.setattr(sandbox_module, "_MARGIN", 30.0)
    assert await sandbox.score([GOOD]) == [GOOD_RESULT]


@linux
def test_the_sandbox_dies_with_its_node() -> None:
    code = """
import trio
from sapo_node.verification.sandbox.sandbox import Sandbox
async def main():
    sandbox = Sandbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        print(sandbox._worker._child.process.pid, flush=True)
        await trio.sleep(60)
trio.run(main)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    node = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert node.stdout is not None
    pid = int(node.stdout.readline())
    # Stopped, it cannot notice the end of its input: only the kernel ends it.
    os.kill(pid, signal.SIGSTOP)
    node.kill()
    node.wait()
    node.stdout.close()
    deadline = time.monotonic() + 10
    while not is_gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_a_missing_library_ends_the_sandbox_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}; sys.modules['reasoning_gym'] = None"
    start = """main('[["chain_sum", {}]]')"""
    monkeypatch.setattr(
        sandbox_module,
        "_argv",
        lambda _: [sys.executable, "-c", f"{code}; from sapo_node.verification.sandbox.zygote import main; {start}"],
    )
    with pytest.raises(LocalError, match="install sapo-node again"):
        await Sandbox().run()


@linux
async def test_a_dataset_that_no_task_of_the_swarm_names_is_neither_imported_nor_built(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    assert await sandbox.score([GOOD, ScoreRequest("rearc", {}, 1, ())]) == [GOOD_RESULT, None]
    assert caplog.messages[-1].endswith("of rearc: this sandbox was started without the dataset 'rearc'")


@linux
@pytest.mark.slow
async def test_twenty_kills_at_any_moment_lose_one_batch_each(nursery: trio.Nursery) -> None:
    sandbox = Sandbox(CHAIN_SUM)
    await nursery.start(sandbox.run)
    batch, moments = [GOOD] * requests.MAX_BATCH, random.Random(1)
    for _ in range(20):
        pid = zygote_of(sandbox)

        async def kill(pid: int = pid) -> None:
            await trio.sleep(moments.random() * 0.1)
            os.kill(pid, signal.SIGKILL)

        async with trio.open_nursery() as killers:
            killers.start_soon(kill)
            for _ in range(5):
                assert await sandbox.score(batch) in ([GOOD_RESULT] * len(batch), [None] * len(batch))
        assert await sandbox.score([GOOD]) in ([GOOD_RESULT], [None])
        assert await sandbox.score([GOOD]) == [GOOD_RESULT]
    assert sandbox.restarts == 20


DIGEST = "ab" * 32


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        [None, None],
        [["q", DIGEST, "0001", ""], None],
        [["q", DIGEST, "0", ""]],
        [["q", DIGEST, "012", ""]],
        [["q", DIGEST, "02", ""]],
        [["q", DIGEST, [0, 1], ""]],
        [["q", DIGEST, 1, ""]],
        [["q", DIGEST, "\u0660\u0661", ""]],
        [["q", DIGEST[1:], "0001", ""]],
        [["q", DIGEST.upper(), "0001", ""]],
        [["q", " " * 64, "0001", ""]],
        [[None, DIGEST, "0001", ""]],
        [["q" * (requests.MAX_PROMPT + 1), DIGEST, "0001", ""]],
        [["q", DIGEST, "0001", "", "more"]],
        [["q", DIGEST, "0001", None]],
        [["q", DIGEST, "0001", "x" * (requests.MAX_EXAMPLE + 1)]],
        [["q", DIGEST, "0001", "\ud800"]],
        [["q", DIGEST]],
        [["because I say so"]],
        [None],
        ["q" * (requests.MAX_REASON + 1)],
        [True],
    ],
)
def test_a_result_of_another_shape_is_malformed(value: object) -> None:
    with pytest.raises(MalformedReplyError):
        decode_results(value, [TWO])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([DIGEST, "0001", "q"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
)


@given(st.lists(json_values, min_size=1, max_size=2))
def test_any_json_is_either_results_or_malformed(value: list[object]) -> None:
    with contextlib.suppress(MalformedReplyError):
        results = decode_results(value, [TWO] * len(value))
        assert all(isinstance(result, Failed) or len(result.levels) == 2 for result in results)


def test_a_result_of_the_right_shape_is_taken() -> None:
    results = decode_results([["q", DIGEST, "0001", ""], "no such task", ["died"]], [TWO, TWO, TWO])
    assert results == [
        Scored("q", b"\xab" * 32, (0, 1)),
        Failed("task", "no such task"),
        Failed("died", "the process that scored it died"),
    ]


@pytest.mark.parametrize(
    "reply", [{}, {"failed": "died"}, {"results": 1}, {"results": [["because I say so"]]}, [], "x", 1]
)
def test_a_reply_of_another_shape_is_malformed(reply: object) -> None:
    with pytest.raises(MalformedReplyError):
        sandbox_module._results(reply, [GOOD])


LINE = f'["q","{DIGEST}","0001",""]\n'.encode()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        b'[["q","x","1"]]\n',
        b'["q", NaN, "0001"]\n',
        b"9" * 5_000 + b"\n",
    ],
)
def test_a_line_that_is_no_result_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        list(read_results([LINE, line], [TWO, TWO]))


def test_a_line_of_the_longest_result_is_taken_and_one_byte_more_is_malformed() -> None:
    longest = b" " * (requests.MAX_RESULT - len(LINE) + 1) + LINE
    assert list(read_results([longest], [TWO])) == [["q", DIGEST, "0001", ""]]
    with pytest.raises(MalformedReplyError, match="more than"):
        list(read_results([b" " + longest], [TWO]))


def test_more_lines_than_items_are_malformed() -> None:
    with pytest.raises(MalformedReplyError, match="more results"):
        list(read_results([LINE * 3], [TWO, TWO]))


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_results_are_collected_however_their_bytes_arrive(size: int) -> None:
    data = LINE + b'"why"\n' + LINE
    chunks = (data[start : start + size] for start in range(0, len(data), size))
    assert list(read_results(chunks, [TWO, TWO, TWO])) == [["q", DIGEST, "0001", ""], "why", ["q", DIGEST, "0001", ""]]


def test_a_line_without_its_end_is_no_result() -> None:
    assert list(read_results([LINE, LINE[:-1]], [TWO, TWO])) == [["q", DIGEST, "0001", ""]]


def test_a_child_that_writes_without_end_is_read_no_further_than_one_result() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1_000
            yield b"[" * 1_000

    with pytest.raises(MalformedReplyError, match="more than"):
        list(read_results(endless(), [TWO] * requests.MAX_BATCH))
    assert read <= requests.MAX_RESULT + 1_000


def test_a_child_that_trickles_is_cut_off_at_its_deadline() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"[")
    batch = zygote.Batch([GOOD], item_seconds=9.0, cpu_seconds=9.0, deadline=time.monotonic() + 0.05)
    with pytest.raises(TimeoutError):
        list(zygote._chunks(os.getpid(), reader, batch))
    os.close(reader)
    os.close(writer)
