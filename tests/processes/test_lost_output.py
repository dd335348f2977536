"""Where standard output cannot be written, a node plays on and says so once; another command ends with one line."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from processes import ENVIRONMENT, PATIENCE, ForkedProcess
from sapo_node.cli.main import main

FULL = "cannot write to standard output: No space left on device"


@contextmanager
def full_disk():
    with Path("/dev/full").open("w") as full:
        yield full


@contextmanager
def reader_that_has_gone():
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as reader:
        reader.wait()
        yield reader.stdin


def run(output, *arguments):
    """Exit code and stderr of a command with such a standard output."""
    with output() as stdout, Path("/dev/null").open() as stdin, tempfile.TemporaryFile() as stderr:
        process = ForkedProcess("sapo-node", arguments, [each.fileno() for each in (stdin, stdout, stderr)])
        code = process.wait(PATIENCE)
        return code, os.pread(stderr.fileno(), 1_000_000, 0).decode()


@pytest.mark.parametrize(("output", "form"), [(full_disk, ["--json"]), (reader_that_has_gone, [])])
@pytest.mark.slow
def test_a_node_outlives_its_output_and_says_so_once(output, form, tmp_path, run_here):
    node = ("--key", tmp_path / "node.key", "--state", tmp_path / "state")
    (tmp_path / "node.toml").write_text('network = "manual"\ndashboard = "off"\nlocal = 1\neval_every = 0\n')
    code, said = run(output, "start", "--config", tmp_path / "node.toml", "--rounds", 1, *node, *form)
    assert code == 0, said
    assert said.count("cannot write to standard output") == 1
    assert "Traceback" not in said
    status = json.loads(run_here(main, "status", "--json", *node)[1].out)
    assert status["rounds"][-1]["step"] == 1
    assert "stopped" in status["session"]


COMMANDS = {"lines": ("config",), "json": ("config", "--json"), "a table": ("verify",)}


OUTPUTS = [(full_disk, f"error: {FULL}\n"), (reader_that_has_gone, "")]


@pytest.mark.parametrize("form", COMMANDS)
@pytest.mark.parametrize(("output", "error"), OUTPUTS)
def test_a_command_ends_with_one_line_or_with_none_if_its_reader_has_gone(form, output, error, tmp_path):
    (tmp_path / "message").write_bytes(b"no message")
    arguments = (*COMMANDS[form], *([tmp_path / "message"] if form == "a table" else []))
    assert run(output, *arguments) == (1, error)


@pytest.mark.parametrize(("output", "error"), OUTPUTS)
def test_an_interpreter_that_ends_adds_nothing_to_that(output, error):
    """The others run in forks, which end without taking down what they imported."""
    command = [sys.executable, "-m", "sapo_node", "config"]
    with output() as stdout:
        done = subprocess.run(command, env=ENVIRONMENT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, error)
