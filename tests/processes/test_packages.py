"""What is built installs by itself, brings what its part needs and no more, and says what is missing."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LIGHT = """
import sys, sapo_protocol
manifest = sapo_protocol.load_manifest("starter")
assert not sapo_protocol.verify_signature(bytes(32), b"", bytes(64))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "libp2p", "trio", "reasoning_gym", "click"}))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, made of the sdist as an index would."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT])
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):
    """The folder of programs of a new environment that has the package with an extra."""

    def made(extra=""):
        folder = tmp_path_factory.mktemp("environment")
        run([sys.executable, "-m", "venv", folder])
        wanted = f"sapo-node{extra} @ {built.as_uri()}"
        run([folder / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wanted])
        return folder / "bin"

    return made


@pytest.fixture(scope="module")
def light(environment):
    return environment()


def run(command, *, check=True):
    """Run a command outside of the clone, so that only what is installed can be found."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)), check=check, capture_output=True, text=True, timeout=900, cwd="/", env=clean
    )


def installed(programs):
    listed = run([programs / "pip", "list", "--format", "json"]).stdout
    return {each["name"].lower() for each in json.loads(listed)}


def test_the_wire_alone_is_light(light):
    assert run([light / "python", "-c", LIGHT]).stdout.strip() == "[]"
    assert installed(light) <= {"sapo-node", "base58", "cbor2", "pynacl", "cffi", "pycparser", "pip", "setuptools"}


def test_the_wheel_has_the_page_with_its_chart_library_and_the_licence_of_that(built):
    names = zipfile.ZipFile(built).namelist()
    library = "sapo_node/observability/dashboard/page/uplot"
    assert {f"{library}/uPlot.iife.min.js", f"{library}/uPlot.min.css", f"{library}/SHA256SUMS"} <= set(names)
    assert [name for name in names if name.endswith(f".dist-info/licenses/node/{library}/LICENSE")]


@pytest.mark.parametrize(("program", "extra"), [("sapo-node", "train"), ("sapo-adversary", "adversary")])
def test_a_command_without_its_part_says_what_to_install(built, light, program, extra):
    done = run([light / program, "--help"], check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f" -m pip install '{built}[{extra}]'" in done.stderr


def test_the_same_commit_is_built_to_the_same_bytes_by_anybody(tmp_path):
    sums = []
    for name, settings, umask in (("a", {"TZ": "UTC"}, 0o022), ("b", {"TZ": "Asia/Tokyo", "LC_ALL": "C"}, 0o077)):
        done = subprocess.run(
            [ROOT / "scripts" / "dist", tmp_path / name],
            env=os.environ | settings | {"PYTHON": sys.executable},
            umask=umask,
            capture_output=True,
            text=True,
            check=True,
        )
        sums.append(done.stdout)
    assert sums[0] == sums[1] == (tmp_path / "a" / "SHA256SUMS").read_text()
    assert sums[0].count("sapo_node-") == 2


def test_a_node_that_cannot_learn_says_so_and_relays(environment, tmp_path):
    programs = environment("[node]")
    assert "torch" not in installed(programs)
    at = ("--key", tmp_path / "node.key", "--state", tmp_path / "state")
    done = run([programs / "sapo-node", "start", *at], check=False)
    assert done.returncode != 0
    assert "[train]'; or start with --no-train" in done.stderr
    assert "the node can relay and contribute, but not train" in run([programs / "sapo-node", "doctor", *at]).stdout


def test_a_node_learns_from_what_is_installed(environment, tmp_path):
    programs = environment("[train]")
    at = ("--key", tmp_path / "node.key", "--state", tmp_path / "state")
    done = run([programs / "sapo-node", "start", *at, "--rounds", 1, "--json", "--dashboard", "off"])
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert "round" in events
