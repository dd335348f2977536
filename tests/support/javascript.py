"""The reader and the peer in JavaScript: whether they can run here, and what they need to."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
