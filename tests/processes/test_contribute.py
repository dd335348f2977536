"""Policies need not be trained, or be models: real nodes train on what a server, a program and a person answer."""

import json
import os
import pty
import re
import signal
import socket
import sys
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from chat_server import SOLVER, ChatServer, solve
from processes import PATIENCE, RunningProcess, sapo_node, write_swarm
from sapo_node.cli.commands.contributing import contribute
from sapo_node.cli.main import main


@pytest.fixture
def swarm(tmp_path):
    return write_swarm(tmp_path / "here.toml")


def contributing(folder, swarm, *arguments, **options):
    return RunningProcess(folder, "--swarm", swarm, *arguments, command="contribute", **options)


@pytest.mark.slow
def test_a_node_trains_on_what_a_server_and_a_program_answer(tmp_path):
    swarm = write_swarm(tmp_path / "here.toml", epoch_seconds=120)  # a round is shared every two seconds
    (tmp_path / "solver.py").write_text(SOLVER)
    solver = f"{sys.executable} {tmp_path / 'solver.py'}"
    with (
        ChatServer() as server,
        contributing(tmp_path / "e", swarm, "--endpoint", server.url, "--model", "tiny") as asking,
        contributing(tmp_path / "p", swarm, "--program", solver) as solving,
    ):
        started = [node.until_event("started") for node in (asking, solving)]
        peers = [event["peer_id"] for event in started]
        config = tmp_path / "node.toml"
        config.write_text(
            f"trusted = {json.dumps(peers)}\nbootstrap = {json.dumps([e['addresses'][0] for e in started])}\n"
            "eval_every = 0\nfilters = []\n"  # which of them pass filters hangs on the keys
        )
        with RunningProcess(tmp_path / "t", "--swarm", swarm, "--config", config) as learner:
            for peer in peers:
                learner.until(
                    lambda event, peer=peer: any(
                        each["peer"] == peer and each["trained_groups"] > 0 for each in event.get("peers", ())
                    )
                )
        (_, request), *_ = server.requests
        roles = [message["role"] for message in request["messages"]]
        assert roles == ["system", *["user", "assistant"] * 3, "user"]  # three worked examples
        shared = solving.until_event("shared")
        assert set(shared["tasks"][0]) == {"dataset", "groups", "informative", "completions", "right"}
        assert not {"learner"} & set(solving.children())


class Typist:
    """A person at a pseudo-terminal, who reads the prompts and types."""

    def __init__(self, terminal, node):
        self._terminal = terminal
        self._node = node
        self._asked = 0

    def prompt(self):
        """The next prompt, once it is asked."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            dialogue = (self._node.folder / "stderr").read_text()
            panels = re.findall(r"─ prompt ─.*?╮\n(.*?)╰.*?answer 1 of", dialogue, re.DOTALL)
            if len(panels) > self._asked:
                self._asked += 1
                return panels[-1]
            time.sleep(0.05)
        raise AssertionError(f"no prompt: {self._node.errors()}")

    def types(self, text):
        os.write(self._terminal, text.encode())


@contextmanager
def person(folder, swarm):
    terminal, input_ = pty.openpty()
    with contributing(folder, swarm, "--terminal", "--examples", "1", stdin=input_) as node:
        os.close(input_)
        try:
            yield Typist(terminal, node), node
        finally:
            os.close(terminal)


def test_a_person_answers_skips_and_stops(tmp_path, swarm, run_here):
    with person(tmp_path / "a", swarm) as (typist, node):
        while (result := solve(typist.prompt())) is None:
            typist.types("\x04")
        assert "─ example ─" in (node.folder / "stderr").read_text()
        typist.types(f"\nno idea\nI think <answer>{result}</answer>\n\n")
        (task,) = node.until_event("shared")["tasks"]
        assert (task["groups"], task["informative"], task["completions"], task["right"]) == (1, 1, 8, 1)
        typist.prompt()
        node.process.send_signal(signal.SIGINT)
        node.until_event("stopped")
        assert node.process.wait(30) == 0
    where = ("--swarm", swarm, "--key", tmp_path / "a" / "node.key", "--state", tmp_path / "a" / "state")
    assert re.search(rf"{task['dataset']} .* 1 \(12%\)", run_here(main, "status", *where)[1].out)


def test_an_endpoint_that_is_down_is_noticed_and_the_node_serves_on(tmp_path, swarm):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    with contributing(tmp_path / "a", swarm, "--endpoint", url, "--model", "tiny") as node:
        node.until_event("started")
        for _ in range(2):
            notice = node.until(
                lambda event: event["event"] == "notice" and "the request to the endpoint" in event["text"]
            )
            assert "asking again" in notice["text"]
        node.process.send_signal(signal.SIGTERM)
        node.until_event("stopped")
        assert node.process.wait(30) == 0


@pytest.mark.parametrize(
    "arguments", [(), ("--terminal", "--program", "true"), ("--endpoint", "http://127.0.0.1:1"), ("--model", "tiny")]
)
def test_contribute_wants_exactly_one_who_answers(arguments):
    done = CliRunner().invoke(contribute, arguments)
    assert done.exit_code == 2
    assert "--endpoint with --model" in done.output


def test_a_person_without_a_terminal_is_refused(tmp_path, swarm):
    done = sapo_node(
        "contribute", "--terminal", "--swarm", swarm, "--key", tmp_path / "k", "--state", tmp_path, input=""
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: --terminal needs")
