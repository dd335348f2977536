"""Ctrl-C ends a command that plays runs at once, whatever its workers do. Records of finished runs stay."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from processes import ENVIRONMENT, PATIENCE

FILE = """
title = "t"
question = "q"
seeds = [1, 2]
reference = "short"
ceiling = 0.8
simulation = {{ learner = "{learner}", final_questions = 1, nodes = [{{ count = 2, local = 1 }}] }}
[arms]
short = {{ seconds = 10 }}
long = {{ seconds = 1e7 }}
longer = {{ seconds = 2e7 }}
"""
AT_ONCE = 5.0
"""Seconds in which an interrupted command must have ended, on a busy machine."""


@pytest.mark.parametrize("learner", ["bandit", pytest.param("model", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "interrupt",
    [pytest.param(os.killpg, id="the group", marks=pytest.mark.slow), pytest.param(os.kill, id="the parent alone")],
)
def test_ctrl_c_ends_an_experiment_at_once_with_130_and_keeps_what_is_finished(interrupt, learner, tmp_path):
    (tmp_path / "mine.toml").write_text(FILE.format(learner=learner))
    code = "from sapo_adversary.cli.entry import main; main()"
    command = [sys.executable, "-c", code, "experiment", "mine.toml", "--jobs", "2", "--output", "results"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            give_up = time.monotonic() + PATIENCE
            while not (records := list(tmp_path.glob("results/runs/*.json"))):
                assert process.poll() is None
                assert time.monotonic() < give_up
                time.sleep(0.05)
            interrupt(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=AT_ONCE)  # to the end of stderr, which every worker holds open
            assert process.returncode == 130
            assert "Traceback" not in said
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert [json.loads(record.read_text())["scenario"]["name"] for record in records] == ["short"]
