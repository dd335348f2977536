"""The reader and the peer in JavaScript: whether they can run here, what they need to, and what the peer says."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from processes import PATIENCE

FOLDER = Path(__file__).parents[2] / "spec" / "conformance" / "js"
NEEDED = 20
"""The oldest major version of Node that runs them."""


def javascript(program):
    """The command that runs a program of the folder, which it installs. Skips the test where there is no fit Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no `node` here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(re.match(r"v(\d+)", version)[1]) < NEEDED:
        pytest.skip(f"node is {version}; it must be {NEEDED} or newer")
    if not (FOLDER / "node_modules").is_dir():
        _install()
    return [node, str(FOLDER / program)]


def _install():
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail("node is here without `npm`, which installs what the JavaScript reader needs")
    done = subprocess.run([npm, "ci", "--prefix", FOLDER], capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        pytest.fail(f"npm cannot install what the JavaScript reader needs:\n{done.stderr[-2_000:]}")


class JavaScriptPeer:
    """One `peer.mjs`, and what it has said so far."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.folder.mkdir()
        with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
            self.process = subprocess.Popen(
                [*javascript("peer.mjs"), *map(str, arguments)], stdout=stdout, stderr=stderr
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def events(self, name):
        """All events of a name. A line that is still being written is left for the next time."""
        lines = (self.folder / "stdout").read_text().splitlines(keepends=True)
        said = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in said if event["event"] == name]

    def until(self, name, count=1):
        """The first `count` events of a name."""
        deadline = time.monotonic() + PATIENCE
        while len(self.events(name)) < count:
            assert self.process.poll() is None, f"the peer ended: {(self.folder / 'stderr').read_text()[-2_000:]}"
            assert time.monotonic() < deadline, f"not within {PATIENCE} s: {count} {name}"
            time.sleep(0.1)
        return self.events(name)[:count]
