"""The vectors are what the builders write, and together they cover the text."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SPEC = Path(__file__).parents[2] / "spec"
VECTORS = [json.loads(path.read_bytes()) for path in sorted(SPEC.glob("vectors/*/*.json"))]
RULES = {
    rule
    for page in SPEC.glob("*.md")
    for rule in re.findall(r"\*\*([A-Z]+-\d+)\*\*", page.read_text())
    if not rule.startswith("DUTY")
}


def checked(spec: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, spec / "builders", "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_every_vector_is_what_the_builders_write():
    result = checked(SPEC)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.slow
def test_the_check_names_what_is_missing_changed_or_written_by_nobody(tmp_path):
    copy = shutil.copytree(SPEC, tmp_path / "spec", ignore=shutil.ignore_patterns("node_modules"))
    folder = copy / "vectors" / "encoding"
    (folder / "false.json").unlink()
    (folder / "true.json").write_text("{}\n")
    (folder / "an-orphan.json").write_text("{}\n")
    result = checked(copy)
    names = [f"encoding/{name}.json" for name in ("an-orphan", "false", "true")]
    assert (result.returncode, result.stdout.split()) == (1, names)


def test_builders_know_nothing_of_the_implementation():
    for path in SPEC.glob("builders/*.py"):
        assert not re.search(r"\b(import|from) +sapo_", path.read_text()), path.name


def test_there_are_at_least_300_vectors_and_70_percent_must_fail():
    # Mathematics has as many ways to write a value as ways to miss it.
    others = [vector for vector in VECTORS if vector["kind"] != "mathematics"]
    assert len(others) >= 300
    assert sum(vector["expect"] != "accept" for vector in others) / len(others) >= 0.7


@pytest.mark.parametrize(
    ("kind", "output", "most"),
    [
        ("body", "turns", 16),
        ("delivery", "ids", 64),
        ("introductions", "introduced", 16),
        ("request", "want", 64),
        ("rollout", "levels", 16),
    ],
)
def test_an_accepted_vector_has_as_many_elements_as_a_message_may_have(kind, output, most):
    accepted = [vector["output"] for vector in VECTORS if vector["kind"] == kind and "output" in vector]
    assert max(len(each[output] or ()) for each in accepted) == most


def test_an_accepted_rollout_has_sixteen_groups_of_sixteen_completions():
    levels = [vector["output"]["levels"] for vector in VECTORS if vector["kind"] == "rollout" and "output" in vector]
    assert [16] * 16 in [[len(group or ()) for group in groups] for groups in levels]


@pytest.mark.parametrize("kind", ["delivery", "evidence", "message", "rollout"])
def test_a_kind_that_is_checked_in_steps_has_cases_of_two_faults(kind):
    assert [vector for vector in VECTORS if vector["kind"] == kind and vector.get("note", "").startswith("Two faults")]


def test_every_rule_that_a_vector_names_is_in_the_text():
    assert {vector["rule"] for vector in VECTORS} <= RULES


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_has_a_vector_that_passes_and_one_that_is_refused(rule):
    verdicts = Counter(vector["expect"] == "accept" for vector in VECTORS if vector["rule"] == rule)
    assert verdicts[True], "none passes"
    assert verdicts[False], "none is refused"


def test_every_verdict_is_a_layer_of_the_text():
    table = (SPEC / "conventions.md").read_text().split("**Notation.**")[0]
    layers = set(re.findall(r"`([a-z]+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE))))
    assert {vector["expect"] for vector in VECTORS} <= layers | {"accept"}


def test_every_vector_has_the_input_and_output_that_the_contract_names():
    contract = (SPEC / "conformance" / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)` \|([^|]*)\|[^|]*\|[^|]*\|([^|]*)\|$", contract, re.MULTILINE)
    named = {kind: [set(re.findall(r"`([a-z_]+)`", cell)) for cell in cells] for kind, *cells in rows}
    assert set(named) == {vector["kind"] for vector in VECTORS}
    for vector in VECTORS:
        inputs, outputs = named[vector["kind"]]
        assert vector["input"].keys() == inputs, vector["name"]
        assert vector.get("output", {}).keys() in (outputs, set()), vector["name"]
