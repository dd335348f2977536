"""A slow item loses itself: the other items of its batch keep their levels, and a batch has a bounded total."""

import os
import sys
from pathlib import Path

import pytest
import trio

import evil_plugin
from sapo_node.verification.sandbox import requests
from sapo_node.verification.sandbox import sandbox as sandbox_module
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import TaskSpec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures the processor time of a child")

DATASET = "slow.items"
MODULE = """
import os

SCORER_VERSION = 1

def burn():
    while True:
        try:
            sum(range(100_000))
        except:
            pass

def item(config, seed):
    if seed in config.get("slow", []):
        burn()
    if seed in config.get("fatal", []):
        os.abort()
    return f"question {seed}", "7"

def earns(question, answer, given):
    if given == "slow":
        burn()
    return given == answer
"""
LAST = requests.MAX_BATCH - 1


def batch(config, answers=None):
    """A full batch. Each item has the answer 7, but for those that `answers` gives another."""
    answers = answers or {}
    return [
        ScoreRequest(DATASET, config, seed, (f"<answer>{answers.get(seed, 7)}</answer>",)) for seed in range(LAST + 1)
    ]


BATCHES = {
    "none": batch({}),
    "built slowly": batch({"slow": [5]}),
    "answered slowly": batch({}, {5: "slow"}),
    "first": batch({"slow": [0]}),
    "last": batch({"slow": [LAST]}),
    "two": batch({"slow": [3, 9]}),
    "all": batch({"slow": list(range(LAST + 1))}),
    "fatal": batch({"fatal": [5]}),
}
LOST = {"none": [], "built slowly": [5], "answered slowly": [5], "first": [0], "last": [LAST], "two": [3, 9]}


def seconds_of_children(pid):
    """Of all children that a process has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


async def results_of(batches):
    """Of each batch the items that were lost, their causes, and the seconds of processor time that it took."""
    found = {}
    sandbox = Sandbox([TaskSpec(DATASET, {}, 1)])
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        for name, items in batches.items():
            sandbox.failures.clear()
            zygote = sandbox._worker._child.process.pid
            start = seconds_of_children(zygote)
            results = await sandbox.score(items)
            lost = [seed for seed, result in enumerate(results) if result is None]
            assert all(result.levels == (1,) for result in results if result)
            found[name] = lost, dict(sandbox.failures), seconds_of_children(zygote) - start
        assert sandbox.restarts == 0
        nursery.cancel_scope.cancel()
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    evil_plugin.install(folder, dataset=DATASET, module="slow_items")
    (folder / "slow_items.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setattr(sandbox_module, "ITEM_SECONDS", 0.1)
        patch.setattr(sandbox_module, "CPU_SECONDS", 1)
        return trio.run(results_of, BATCHES)


@pytest.mark.parametrize("name", LOST)
def test_a_slow_item_loses_itself_and_no_other(name, results):
    lost, failures, _ = results[name]
    assert lost == LOST[name]
    assert failures == ({"timeout": len(lost)} if lost else {})


def test_a_batch_of_slow_items_takes_no_longer_than_its_limit(results):
    _, failures, seconds = results["all"]
    assert failures == {"timeout": requests.MAX_BATCH}
    assert seconds < 2


def test_an_item_that_ends_its_process_loses_itself_and_no_other(results):
    assert results["fatal"][:2] == ([5], {"died": 1})
