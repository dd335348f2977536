"""The learner as the main process sees it: real process, real pipes, real kills."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from sapo_node.groups.advantage import advantages
from sapo_node.groups.codec import to_json
from sapo_node.groups.messages import LearnerOptions, RequestError, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import service
from sapo_node.learner.client import Learner
from sapo_node.processes.frames import read_frame, write_frame
from sapo_node.processes.worker import WorkerFailed

QUESTIONS = ["What is 2 + 2?", "Why?"]


def options(root, **changes):
    return LearnerOptions(checkpoints=str(root), groups=2, completions=4, threads=1, **changes)


async def groups_of(learner, seed):
    sampled = await learner.generate([Prompt(each) for each in QUESTIONS], completions=4, max_tokens=40, seed=seed)
    rewards = advantages([1, 0, 0, 0])
    return tuple(
        TrainGroup("local", prompt, 1.0, rewards, group) for prompt, group in zip(QUESTIONS, sampled, strict=True)
    )


def learner_pid():
    """The one child of this process that is a learner; other tests may have left helpers of theirs."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    [pid] = [child for child in children if b"sapo_node.learner" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return int(pid)


async def wait_for_step(learner, step):
    with trio.fail_after(60):
        while learner.step != step:  # noqa: ASYNC110 - a restart sets no event
            await trio.sleep(0.05)


async def test_a_learner_generates_trains_checkpoints_and_comes_back_where_it_was(
    tmp_path, nursery, caplog, monkeypatch
):
    """It imports no module of the folder in which the operator stands."""
    (tmp_path / "torch.py").write_text("raise SystemExit('foreign code ran')\n")
    monkeypatch.chdir(tmp_path)
    standing = {}
    learner = Learner(options(tmp_path / "checkpoints", server="http://127.0.0.1:9"), standing)
    await nursery.start(learner.run)
    assert learner.ready.step == 0
    assert learner.ready.device in {"cpu", "cuda", "mps"}
    groups = await groups_of(learner, 1)
    assert "the request /v1/models failed" in standing["server"]
    assert "The node samples by itself" in caplog.text
    with pytest.raises(RequestError, match="step 5 does not follow step 0"):
        await learner.train(TrainRequest(5, groups))
    with pytest.raises(RequestError, match="the weights are of step 0, not 7"):
        await learner.keep_best(7, [])
    for step in (1, 2):
        report = await learner.train(TrainRequest(step, groups))
        assert report.step == learner.step == step
    assert await learner.checkpoint() == 2
    assert learner.restarts == 0
    await learner.train(TrainRequest(3, groups))
    os.kill(learner_pid(), signal.SIGKILL)
    await wait_for_step(learner, 2)
    assert (await learner.train(TrainRequest(3, groups))).step == 3


@pytest.mark.slow
async def test_a_learner_that_only_reads_leaves_what_a_running_node_is_writing(tmp_path, nursery):
    learner = Learner(options(tmp_path))
    await nursery.start(learner.run)
    await learner.train(TrainRequest(1, await groups_of(learner, 1)))
    await learner.checkpoint()
    (tmp_path / ".unfinished-step-00000002").mkdir()
    (tmp_path / "step-00000003").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    reader = Learner(options(tmp_path, read_only=True))
    await nursery.start(reader.run)
    assert reader.ready.step == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.slow
async def test_a_request_cut_by_a_kill_is_not_answered(tmp_path, nursery):
    learner = Learner(options(tmp_path))
    await nursery.start(learner.run)
    groups = await groups_of(learner, 1)

    async def kill_soon():
        await trio.sleep(0.01)
        os.kill(learner_pid(), signal.SIGKILL)

    nursery.start_soon(kill_soon)
    with pytest.raises(WorkerFailed):
        for step in range(1, 100):
            await learner.train(TrainRequest(step, groups))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits memory as Linux counts it")
async def test_a_step_that_runs_out_of_memory_is_not_answered_and_can_be_taken_again(tmp_path, nursery, caplog):
    learner = Learner(options(tmp_path))
    await nursery.start(learner.run)
    # The first step starts threads, which have no room below the limit.
    await learner.train(TrainRequest(1, await groups_of(learner, 1)))
    await learner.checkpoint()
    long = tuple(Sampled("", "length", (number,) * 400) for number in range(8))
    group = TrainGroup("local", QUESTIONS[0], 1.0, advantages([1, 0, 0, 0, 0, 0, 0, 0]), long)
    limit_memory(learner_pid())
    with pytest.raises(WorkerFailed):
        await learner.train(TrainRequest(2, (group,)))
    await wait_for_step(learner, 1)
    assert "out of memory" in caplog.text
    assert (await learner.train(TrainRequest(2, (group,)))).step == 2


def limit_memory(pid):
    """Leave a process the address space that it has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)


def test_a_start_that_cannot_work_ends_in_one_clear_line(tmp_path, monkeypatch):
    """In a fork, which need not import torch again."""
    monkeypatch.setattr(sys, "argv", ["learner", json.dumps(to_json(options(tmp_path, device="quantum")))])
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.dup2(writes, 1)
            service.main()
        finally:
            os._exit(0)
    os.close(writes)
    fatal = read_frame(reads)["fatal"]
    os.close(reads)
    os.waitpid(child, 0)
    assert "there is no device quantum" in fatal
    assert "\n" not in fatal


class Process:
    """The bare learner process, for requests that the client would not send."""

    def __init__(self, root):
        self.child = subprocess.Popen(
            [sys.executable, "-m", "sapo_node.learner", json.dumps({"checkpoints": str(root), "threads": 1})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.ready = read_frame(self.child.stdout.fileno())["ready"]

    def ask(self, request):
        write_frame(self.child.stdin.fileno(), request)
        return read_frame(self.child.stdout.fileno())

    def end(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


def a_train_request(step):
    completions = [{"text": text, "finish": "stop"} for text in ("so <answer>4</answer>", "no")]
    group = {
        "source": "external",
        "prompt": "What is 2 + 2?",
        "weight": 1.0,
        "advantages": [0.7, -0.7],
        "completions": completions,
    }
    return {"train": {"step": step, "groups": [group], "objective": "on-policy"}}


@pytest.mark.slow
def test_nonsense_is_answered_with_an_error_each_time(tmp_path):
    good = a_train_request(1)
    [group] = good["train"]["groups"]
    broken = [
        [],
        {},
        {"generate": {}, "train": {}},
        {"dance": {}},
        {"generate": []},
        {"generate": {"questions": "x", "completions": 1, "max_tokens": 1, "seed": 1}},
        {"generate": {"questions": [1], "completions": 1, "max_tokens": 1, "seed": 1}},
        {"generate": {"questions": ["x"], "completions": 0, "max_tokens": 1, "seed": 1}},
        {"generate": {"questions": ["x"], "completions": True, "max_tokens": 1, "seed": 1}},
        {"train": {**good["train"], "objective": "none"}},
        {"train": {**good["train"], "step": -1}},
        {"train": {**good["train"], "groups": [{**group, "weight": 2}]}},
        {"train": {**good["train"], "groups": [{**group, "advantages": [1.0]}]}},
        {"train": {**good["train"], "groups": [{**group, "source": "local"}]}},
        {"train": {**good["train"], "groups": [{**group, "source": "moon"}]}},
        {"train": {**good["train"], "groups": [{**group, "completions": [{"text": 1, "finish": "stop"}] * 2}]}},
        {"train": {**good["train"], "groups": [{**group, "completions": [{"text": "x", "finish": "?"}] * 2}]}},
        {"restore": {}},
        {"restore": {"step": -1}},
        {"restore": {"step": "0"}},
        {"train": {**good["train"], "restart": 7}},
        {"train": {**good["train"], "rate_scale": 0}},
        {"keep_best": {"step": 7, "needed": []}},
    ]
    process = Process(tmp_path)
    try:
        for request in broken:
            reply = process.ask(request)
            assert set(reply) == {"error"}, request
            assert "\n" not in reply["error"]
        assert process.ask(good)["step"] == 1
    finally:
        process.end()


@pytest.mark.slow
def test_a_learner_whose_node_was_killed_while_it_worked_ends_without_a_word(tmp_path, capfd):
    process = Process(tmp_path)
    process.child.stdout.close()
    write_frame(process.child.stdin.fileno(), {"checkpoint": {}})
    assert process.child.wait(30) == 0
    assert capfd.readouterr().err == ""
    process.end()


def kill_at_random_points(root, kills, rng):
    """Train and checkpoint in a loop, kill at random, and check each time that the state left behind is good."""
    asked = kept = 0
    for _ in range(kills):
        process = Process(root)
        # What was acknowledged is there; a write that ended just before the kill may be newer.
        assert kept <= process.ready["step"] <= asked
        assert process.ready["fallback"] is None
        step = process.ready["step"]
        timer = None
        try:
            while True:
                asked = step + 1
                step = process.ask(a_train_request(asked))["step"]
                kept = process.ask({"checkpoint": {}})["step"]
                if timer is None:
                    timer = threading.Timer(rng.uniform(0.0, 0.3), process.child.kill)
                    timer.start()
        except (OSError, TypeError):
            # The pipe broke, or ended: no reply.
            pass
        finally:
            timer.join()
            process.end()
    return kept


@pytest.mark.slow
def test_kills_at_random_points_never_leave_an_unreadable_state(tmp_path):
    assert kill_at_random_points(tmp_path, 2, random.Random(1)) >= 2


@pytest.mark.slow
def test_twenty_kills_at_random_points_never_leave_an_unreadable_state(tmp_path):
    assert kill_at_random_points(tmp_path, 20, random.Random(2)) >= 20
