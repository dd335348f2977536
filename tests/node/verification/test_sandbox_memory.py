"""A child of the sandbox in an attacker's hands makes neither reader of its reply, zygote or node, use much memory."""

import sys
import tracemalloc
from pathlib import Path

import pytest

import evil_plugin
from sapo_node.verification.sandbox import requests
from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
from sapo_protocol import TaskSpec
from shared_sandbox import running_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MEBIBYTE = 2**20
HONEST = ScoreRequest("chain_sum", {}, 7, ("<answer>no</answer>",))

TASKS = [TaskSpec("chain_sum", {}, 1), TaskSpec(evil_plugin.DATASET, {}, 1)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    evil_plugin.install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with running_sandbox(TASKS) as running:
            yield running


def kilobytes(sandbox, field):
    child = sandbox._worker._child
    assert child is not None
    lines = Path(f"/proc/{child.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def batch(config):
    """The most requests that one child may get. The first one is the evil one."""
    evil = ScoreRequest(evil_plugin.DATASET, config, 0, ())
    return [evil, *[ScoreRequest("chain_sum", {}, seed, ()) for seed in range(requests.MAX_BATCH - 1)]]


async def test_no_reply_of_a_captured_child_doubles_the_memory_of_the_zygote(sandbox):
    (honest,) = await sandbox.score([HONEST])
    idle = kilobytes(sandbox, "VmRSS")
    for name in evil_plugin.FLOODS:
        sandbox.failures.clear()
        assert await sandbox.score(batch({"write": name})) == [None] * requests.MAX_BATCH
        assert sandbox.failures == {"malformed": requests.MAX_BATCH}, name
        assert kilobytes(sandbox, "VmHWM") < 2 * idle, name
        assert await sandbox.score([HONEST]) == [honest]
    assert sandbox.restarts == 0


async def test_the_longest_reply_of_the_right_shape_takes_little_memory_of_the_zygote_and_of_the_node(sandbox):
    await sandbox.score([HONEST])
    idle = kilobytes(sandbox, "VmRSS")
    digest = bytes.fromhex(evil_plugin.DIGEST.decode())
    longest = Scored("\U0001f600" * requests.MAX_PROMPT, digest, (), "\U0001f600" * requests.MAX_EXAMPLE)
    tracemalloc.start()
    try:
        results = await sandbox.score(batch({"longest": requests.MAX_BATCH}))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert results == [longest] * requests.MAX_BATCH
    assert most < 32 * MEBIBYTE
    assert kilobytes(sandbox, "VmHWM") < 2 * idle
