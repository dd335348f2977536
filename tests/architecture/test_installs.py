"""What our own commands install is pinned, with what builds it: that code runs with the rights of its user."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURSELVES = re.compile(r"""['"](?:/source|\.)?\[[^]]*\]['"]""")


def installs(file):
    """The commands that install with pip or uv in a file, each on one line."""
    text = (ROOT / file).read_text("utf-8").replace("\\\n", " ")
    commands = [part for line in text.splitlines() for part in re.split(r"&&?|;|\|\|", line)]
    return [" ".join(part.split()) for part in commands if "pip install" in part and "--resolution lowest" not in part]


@pytest.mark.parametrize("command", installs("Makefile"))
def test_make_installs_by_pins(command):
    assert "--constraint constraints.txt" in command or "--require-hashes" in command


@pytest.mark.parametrize("command", [each for each in installs("Makefile") if OURSELVES.search(each)])
def test_make_fetches_nothing_to_build_ourselves(command):
    assert "--no-build-isolation" in command


def test_the_container_compares_hashes_of_what_it_installs_and_takes_what_it_builds_with_by_pins():
    text = (ROOT / "Containerfile").read_text("utf-8")
    ours = r'"sapo-node\[\$EXTRA\] @ file://\$wheel#sha256=\$\(sha256sum "\$wheel"'
    assert re.search(rf"^    && \$pip /source/requirements\.lock {ours}", text, re.MULTILINE)
    assert re.search(r"^ENV PIP_BUILD_CONSTRAINT=/source/constraints\.txt$", text, re.MULTILINE)
    assert [each for each in installs("Containerfile") if "--constraint" not in each] == []
