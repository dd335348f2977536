"""`task list`, `task show` and `task check`: what they print of a task, and which faults of a module they find."""

import json
import sys
from collections import Counter
from functools import partial

import pytest
import trio

from sapo_node.cli.main import main
from sapo_node.cli.tasks.check import _of_other, _same, _survey, as_known, judge, other_pythons
from sapo_node.cli.tasks.chosen import Chosen, chosen, parse_config
from sapo_node.cli.tasks.survey import Item, Survey, survey
from sapo_node.tasks.items import known_hashes
from sapo_protocol import LocalError, load_manifest, render_manifest

GOOD = """
import random
from fractions import Fraction
SCORER_VERSION = 1
def item(config, seed):
    number = random.Random(seed).randrange(config.get("max", 1000))
    return f"Write {number} in words of digits.", str(number)
def earns(prompt, answer, given):
    return given == answer
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that defines a task, and returns its file."""
    monkeypatch.setenv("COLUMNS", "80")

    def write(more=""):
        file = tmp_path / "own_numbers.py"
        file.write_text(GOOD + more)
        return file

    return write


def shown(run_here, *arguments):
    code, told = run_here(main, "task", "show", *arguments, "--json")
    assert code == 0, told.err
    return json.loads(told.out)


def test_the_list_names_the_swarms_of_a_data_set_and_fits_into_80_columns(run_here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, told = run_here(main, "task", "list", "--json")
    by_name = {row["dataset"]: row for row in json.loads(told.out)}
    assert by_name["interop_sum"]["swarms"] == ["interop"]
    assert by_name["sudoku"]["graded"]
    _, told = run_here(main, "task", "list")
    assert by_name.keys() <= {line.split()[0] for line in told.out.splitlines()}
    shown = Counter(told.out.replace(",", " ").split())
    assert shown["smollm2-easy"] == sum("smollm2-easy" in row["swarms"] for row in by_name.values())
    assert "…" not in told.out


def test_an_item_is_shown_as_the_model_sees_it(run_here):
    found = shown(run_here, "products", "--swarm", "starter", "--seed", "3", "--examples", "2")
    assert [each["role"] for each in found["messages"]] == ["system", *["user", "assistant"] * 2, "user"]
    assert found["config"] == {"min_digits": 2, "max_digits": 2}
    assert found["forms"] == [form.format(found["answer"]) for form in ("**{}**", r"\boxed{{{}}}", "The answer is {}.")]


@pytest.mark.parametrize(
    ("given", "level", "reason"),
    [
        ("7", 7, "it is correct"),
        ("so <answer>7</answer>", 7, "it is correct"),
        ("8", 0, "the scorer of own.own_numbers finds it incorrect"),
        ("half", 3, "at least 3 of 7 parts"),
        ("little", 0, "about 0.10 of it is right, which is less than one of 7 levels"),
        ("<answer>7", 0, "no <answer> and </answer>"),
        (" ", 0, "nothing between the tags"),
        ("9" * 90, 0, "it has 90 characters; at most 68"),
        ("a\0", 0, "the character U+0000"),
    ],
)
def test_what_an_answer_earns_is_explained(run_here, module, given, level, reason):
    file = module("""
def item(config, seed): return "seven?", "7"
def earns(prompt, answer, given): return Fraction({"7": 10, "half": 5, "little": 1}.get(given, 0), 10)
""")
    found = shown(run_here, file, "--levels", "7", f"--answer={given}")["given"]
    assert found["level"] == level
    assert reason in found["reason"]


def test_a_table_is_shown_in_a_terminal_of_80_columns(run_here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, told = run_here(main, "task", "show", "binary_matrix", "--answer", "0")
    assert code == 0
    assert max(map(len, told.out.splitlines())) <= 80
    assert "earns level 0 of 1" in told.out


@pytest.fixture
def swarm_of_a_file(tmp_path, monkeypatch, run_here):
    """The manifest of a swarm whose one task, `sums`, comes from a file, of which this machine has a copy."""
    monkeypatch.setenv("SAPO_NODE_STATE", str(tmp_path / "state"))
    rows = "".join(json.dumps({"prompt": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(60))
    (tmp_path / "sums.jsonl").write_text(rows)
    code, told = run_here(main, "task", "file", tmp_path / "sums.jsonl", "--scorer", "number")
    assert code == 0, told.err
    head = render_manifest(load_manifest("interop")).partition("[[tasks]]")[0]
    (tmp_path / "sums.toml").write_text(f"{head}\n{told.out}")
    return tmp_path / "sums.toml"


def test_a_row_of_a_file_is_shown_and_is_checked_by_another_command(run_here, swarm_of_a_file):
    found = shown(run_here, "sums", "--swarm", swarm_of_a_file, "--seed", "4")
    row, example = found["messages"][-1]["content"], found["messages"][1]["content"]
    assert row == f"{int(found['answer']) - 1} + 1?" != example
    code, told = run_here(main, "task", "check", "sums", "--swarm", swarm_of_a_file)
    assert code == 1
    assert "`sapo-node task file` checks" in told.err


@pytest.mark.parametrize("text", ['{"max": 9}', "{ max = 9 }", "max = 9"])
def test_a_configuration_is_json_or_toml(text):
    assert parse_config(text) == {"max": 9}


def test_a_module_is_forgotten_when_the_command_ends(module):
    before = list(sys.path)
    with chosen(str(module()), None, None, None) as task:
        assert task.dataset == "own.own_numbers"
    assert sys.path == before
    with pytest.raises(LocalError, match="no dataset"), chosen("own.own_numbers", None, None, None):
        pass


FAULTS = {
    "": set(),
    "def earns(prompt, answer, given): return 1.0 if given == answer else 0.0": {"items"},
    "def item(config, seed): return 'x' * 40_000 + str(seed), str(seed)": {"lengths"},
    "def item(config, seed): return str(seed), f' {seed}'": {"reference"},
    "def earns(prompt, answer, given): return given == answer or given.startswith('((((')": {"hostile answers"},
    "def item(config, seed): return str(seed), str(seed % 200)": {"constant answers"},
    "def earns(prompt, answer, given): return True if given == answer else Fraction(2, 5)": {"constant answers"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_finds_the_fault_of_a_module(module, fault):
    with chosen(str(module(fault)), None, None, 5) as task:
        found = survey(task.dataset, task.config, range(0, 4000, 100), task.levels)
    assert {each.check for each in judge(found, 5) if each.outcome == "failed"} == FAULTS[fault]


@pytest.mark.parametrize("slow", [{"build_ms": [49.0, 52.0]}, {"build_ms": [0.1] * 99 + [2001.0]}, {"score_ms": [101]}])
def test_a_slow_module_is_found(slow):
    times = {"build_ms": [49.0], "score_ms": [99.0]}
    of = partial(Survey, [Item(1, "00", "7", reference=1)], {"7": 0}, "")
    assert all(each.outcome == "passed" for each in judge(of(**times), 1))
    assert [each.check for each in judge(of(**times | slow), 1) if each.outcome == "failed"] == ["speed"]


@pytest.mark.parametrize(
    ("sum_of_levels", "outcome"), [(30, "passed"), (31, "skipped"), (44, "skipped"), (45, "failed")]
)
def test_a_constant_answer_fails_a_check_of_100_items_beyond_two_standard_errors(sum_of_levels, outcome):
    items = [Item(seed, f"{seed}", "7", reference=2) for seed in range(100)]
    (found,) = (
        each for each in judge(Survey(items, {"7": sum_of_levels}, "", [1.0], [1.0]), 2) if "constant" in each.check
    )
    assert found.outcome == outcome


def test_the_order_of_the_items_changes_nothing_in_a_survey_of_shares(module):
    file = module("def earns(prompt, answer, given): return given == answer or Fraction(len(given) % 3, 3)")
    with chosen(str(file), None, None, 3) as task:
        one, other = (survey(task.dataset, {}, seeds, 3) for seeds in (range(30), range(29, -1, -1)))
    assert (one.items, one.constants) == (other.items, other.constants)
    assert any(item.hostile for item in one.items)


@pytest.mark.parametrize(("changed", "outcome"), [({}, "passed"), ({3: "00000000"}, "failed")])
def test_other_items_of_reasoning_gym_are_found_by_the_known_hashes(changed, outcome):
    known = [changed.get(number, each) for number, each in enumerate(known_hashes()["chain_sum"])]
    assert as_known("chain_sum", known).outcome == outcome


def test_an_endless_answer_is_a_fault_of_its_item(module, monkeypatch):
    monkeypatch.setattr("sapo_node.cli.tasks.survey.SECONDS", 0.05)
    file = module("def earns(prompt, answer, given):\n    while given == 'lambda: 0': pass\n    return given == answer")
    with chosen(str(file), None, None, None) as task:
        found = survey(task.dataset, task.config, range(2), 1)
    assert [item.fault for item in found.items] == [
        "the answer 'lambda: 0' takes more than 0.05 s of processor time"
    ] * 2


def test_a_module_that_evaluates_an_answer_is_told_so(run_here, module):
    file = module("def earns(prompt, answer, given): return eval(given) == int(answer)")
    code, told = run_here(main, "task", "check", file, "--items", "20")
    assert code == 1
    assert "ended its process with status 9: `earns` must never evaluate an answer" in told.err


def test_an_item_that_depends_on_the_hash_seed_is_found(module):
    file = module("def item(config, seed): return ' '.join({'a', 'b', 'c', 'd', str(seed)}), str(seed)")
    with chosen(str(file), None, None, None) as task:
        one, same, other = (trio.run(partial(_survey, task, [*range(20)], hash_seed=each)) for each in "112")
    assert _same("again", one, same, "").outcome == "passed"
    assert _same("again", one, other, "").outcome == "failed"


def test_a_sound_module_passes_all_checks_also_confined(run_here, module, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, told = run_here(main, "task", "check", module(), "--items", "20", "--levels", "3", "--json")
    assert code == 0
    outcomes = {each["check"]: each["outcome"] for each in json.loads(told.out)}
    assert outcomes.pop("other Pythons") == "skipped"
    assert set(outcomes) >= {"items", "again", "in reverse order", "sandbox"}
    assert set(outcomes.values()) == {"passed"}


def test_a_module_that_reads_a_file_later_fails_in_the_sandbox_alone(run_here, module, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    file = module("def item(config, seed): return open(__file__).readline() + str(seed), str(seed)")
    code, told = run_here(main, "task", "check", file, "--items", "20")
    assert code == 1
    assert [line.split()[1] for line in told.out.splitlines() if line.startswith("✗")] == ["sandbox"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no such Python >&2; exit 127", "no such Python"),
        (
            """echo '{"items": [], "constants": {}, "versions": "an old one"}'""",
            "it has an old one, and this Python a new one",
        ),
    ],
)
def test_another_python_without_this_version_of_the_package_is_skipped(module, tmp_path, monkeypatch, script, reason):
    other = f"python3.{13 if sys.version_info.minor != 13 else 12}"
    (tmp_path / other).write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / other).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert other_pythons() == [other]
    found = trio.run(_of_other, other, Chosen("own.own_numbers", {}, 1), [1], Survey([], {}, "a new one"))
    assert (found.outcome, found.text) == ("skipped", reason)
