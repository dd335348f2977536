"""The commands on the page, typed in an empty folder, make a TRL script a member of a swarm of three."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from processes import ENVIRONMENT, PATIENCE, write_swarm
from sapo_node.app.state import StateFolder, read_database
from sapo_node.groups.record import LOCAL
from sapo_node.training.batch_log import trained_per_peer

pytestmark = pytest.mark.skipif(
    find_spec("trl") is None, reason="TRL is pinned, and asks for newer libraries than a node does"
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/start/your-trainer.md"


def printed():
    """The commands under the heading, without the installation."""
    _, _, section = PAGE.read_text().partition("## From a TRL script to a swarm of three\n")
    install, *commands = re.findall(r"^ {4}(\S.*)$", section.partition("\n## ")[0], re.MULTILINE)
    assert install.startswith("python -m pip install ")
    return commands


@contextmanager
def typed(command, log, **settings):
    """The command in a shell, as long as it is needed, with these settings in its environment."""
    names = {"python": sys.executable, "sapo-node": f"{sys.executable} -m sapo_node"}
    program, rest = command.removesuffix(" &").split(maxsplit=1)
    line = f"exec {shlex.join(shlex.split(names[program]))} {rest}"
    with log.open("w") as told:
        process = subprocess.Popen(
            ["bash", "-c", line], cwd=log.parent, env={**ENVIRONMENT, **settings}, stdout=told, stderr=told
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def until(find, *processes):
    """What `find` returns once it is something, while the processes run."""
    deadline = time.monotonic() + 2 * PATIENCE
    while not (found := find()):
        assert time.monotonic() < deadline, "not in time"
        assert all(process.poll() is None for process in processes), [process.args for process in processes]
        time.sleep(0.5)
    return found


def address(log):
    """Where a node says that it listens."""
    return next(iter(re.findall(r"(/ip4/127\.0\.0\.1/tcp/\d+/p2p/\w+)", log.read_text())), "")


def trained_peers(folder):
    """The peers whose groups the node of a state folder has trained on."""
    with closing(read_database(StateFolder(folder))) as database:
        return trained_per_peer(database).keys() - {LOCAL}


@pytest.mark.slow
def test_the_printed_commands_make_trl_a_member_of_a_swarm_of_three(tmp_path):
    swarm = write_swarm(tmp_path / "three.toml")
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(ROOT / "examples/trl_grpo.py", folder)
    here = {  # a swarm of this test alone, on loopback, and without mDNS, which not every machine has
        "SAPO_NODE_SWARM": str(swarm),
        "SAPO_NODE_NETWORK": "manual",
        "SAPO_NODE_LISTEN": "/ip4/127.0.0.1/tcp/0",
        "SAPO_NODE_FILTERS": "",  # what passes filters hangs on the keys
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    second, third, node, trainer = printed()
    with ExitStack() as stack:
        running = [stack.enter_context(typed(second, folder / "second.log", **here))]
        here["SAPO_NODE_BOOTSTRAP"] = until(lambda: address(folder / "second.log"), *running)
        running += [
            stack.enter_context(typed(command, folder / f"{name}.log", **here))
            for name, command in (("third", third), ("node", node))
        ]
        [file] = until(lambda: list(folder.glob("*/*/feed.json")), *running)
        running.append(stack.enter_context(typed(trainer, folder / "trainer.log", **here)))
        until(lambda: len(trained_peers(file.parent)) == 2, *running)
