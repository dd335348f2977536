"""`sapo-node task file` checks a file of rows, keeps it and prints the lines of a manifest that parse."""

import json
import re

import pytest

from row_parts import quiz, sums, written
from sapo_node.cli.main import main
from sapo_node.storage.row_files import open_rows
from sapo_protocol import load_manifest, parse_manifest, render_manifest


@pytest.fixture
def add(run_here, tmp_path):
    """Run the command on rows or lines: its exit code, what it printed, and what it said."""

    def run(rows, *options):
        data = tmp_path / "Word Problems.v2.jsonl"
        if isinstance(rows, bytes):
            data.write_bytes(rows)
        else:
            written(data, rows)
        code, printed = run_here(main, "task", "file", data, "--state", tmp_path / "states", *options)
        return code, printed.out, printed.err

    return run


def test_the_lines_that_it_prints_make_a_manifest_whose_file_this_node_has(add, tmp_path):
    code, out, err = add(sums(100), "--scorer", "number", "--origin", 'a "place"')
    head = re.sub(r"\n\[\[tasks\]\].*", "", render_manifest(load_manifest("interop")), flags=re.DOTALL)
    (task,) = parse_manifest(f"{head}\n{out}", "test").tasks
    assert code == 0
    assert (task.dataset, task.source.rows, task.source.origin) == ("word_problems", 100, 'a "place"')
    assert open_rows([task], tmp_path / "states" / "files")["word_problems"].task(1).answer.isdigit()
    assert "100 rows: " in err
    assert "correct in 2.0%" in err


def test_scripts_get_the_same_facts_as_json(add):
    code, out, _ = add([*sums(100), sums(1)[0]], "--scorer", "number", "--name", "boxes", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["task"] == "boxes"
    assert facts["source"]["rows"] == 100
    assert facts["duplicates"] == 1
    assert facts["assigned"] + facts["held_out"] + facts["examples"] == 100
    assert facts["constant"] == {"answer": "7", "share": 0.02}


def test_a_constant_that_pays_is_told(add):
    _, _, err = add([{**row, "answer": "7"} for row in sums(50)], "--scorer", "number")
    assert "the best constant answer, 7, is correct in 100.0%" in err
    assert "models will learn it" in err


LINES = b"".join(json.dumps(row).encode() + b"\n" for row in sums(40))


@pytest.mark.parametrize(
    ("bad", "scorer", "said"),
    [
        (b"nonsense\n", "number", "line 41: it is not JSON"),
        (b'\n\n{"prompt": "p"}\n', "number", "line 43: its answer is not text"),
        (
            b'{"prompt": "p", "answer": "x = 7"}\n',
            "number",
            "line 41: the scorer number does not accept its own answer",
        ),
        (b'{"prompt": "p", "answer": "a\\tb"}\n', "exact", "line 41: the scorer exact does not accept its own answer"),
        (json.dumps(quiz(1)[0]).encode(), "number", "line 41: it has choices; use --scorer choice"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_nothing_is_kept(add, tmp_path, bad, scorer, said):
    code, out, err = add(LINES + bad, "--scorer", scorer)
    assert code == 1
    assert out == ""
    assert said in err
    assert not list((tmp_path / "states" / "files").glob("*"))


def test_of_many_bad_lines_the_first_are_named(add):
    code, _, err = add(LINES + b"x\n" * 100, "--scorer", "number")
    assert code == 1
    assert "has 100 lines that cannot be used: line 41: " in err
    assert "line 45: it is not JSON and 95 more" in err


def test_too_few_rows_are_refused(add):
    code, _, err = add(sums(31), "--scorer", "number")
    assert code == 1
    assert "31 rows with different prompts; give 32 to" in err


@pytest.mark.parametrize(("name", "said"), [("products", "of the catalogue"), ("a.b", "give 1 to 64"), ("", "give 1")])
def test_a_name_that_is_taken_or_odd_is_refused(add, name, said):
    code, _, err = add(sums(40), "--scorer", "number", "--name", name)
    assert code == 1
    assert said in err


def test_a_file_that_does_not_exist_is_named(run_here, tmp_path):
    code, printed = run_here(main, "task", "file", tmp_path / "none", "--scorer", "exact", "--state", tmp_path)
    assert code == 1
    assert "there is no file of rows at" in printed.err
