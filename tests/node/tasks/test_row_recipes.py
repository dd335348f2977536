"""`examples/rows_from.py` makes rows of items in the shape of well-known data sets. The items here are made up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sapo_node.storage.row_files import Checked, check
from sapo_protocol import AnswerKind, LocalError

RECIPES = Path(__file__).parents[3] / "examples/rows_from.py"
PROOF = {"problem": "Prove that 1 = 1.", "solution": "It is.", "answer": "proof", "question_type": "proof"}

ITEMS = {
    "gsm8k": {
        "question": "Ada has 700 pens and gets 800. How many?",
        "answer": "700 + 800 = <<700+800=1500>>\n#### 1,500",
    },
    "math": {"problem": "What is $1/2$?", "level": "1", "solution": r"First \boxed{2}. So \boxed{\frac{1}{2}}."},
    "deepscaler": {"problem": "What is $1/2$?", "answer": r"\frac{1}{2}", "solution": "It is."},
    "openr1_math": {"problem": "What is $1/2$?", "answer": r"\frac{1}{2}", "question_type": "math-word-problem"},
    "choice": {"question": "Which is even?", "choices": ["1", "2", "3"], "answer": 1, "subject": "numbers"},
}
ROWS = {
    "gsm8k": {"prompt": "Ada has 700 pens and gets 800. How many?", "answer": "1500"},
    "math": {"prompt": "What is $1/2$?", "answer": r"\frac{1}{2}"},
    "deepscaler": {"prompt": "What is $1/2$?", "answer": r"\frac{1}{2}"},
    "openr1_math": {"prompt": "What is $1/2$?", "answer": r"\frac{1}{2}"},
    "choice": {"prompt": "Which is even?", "answer": 1, "choices": ["1", "2", "3"]},
}
LEFT_OUT = {
    "math": [
        {"problem": "[asy] draw(); [/asy] How long?", "solution": r"\boxed{3}"},
        {"problem": "How long?", "solution": "Nobody knows."},
        {"problem": "How long?", "solution": r"\boxed{3"},
    ],
    "openr1_math": [PROOF, {**PROOF, "question_type": "MCQ"}, {**PROOF, "question_type": "other"}],
}


@pytest.fixture
def rows_from(tmp_path):
    """Run a recipe on items: the rows that it writes, and what it says."""

    def run(name, items):
        (tmp_path / "items").write_text("".join(json.dumps(item) + "\n" for item in items))
        done = subprocess.run(
            [sys.executable, RECIPES, name, tmp_path / "items"], capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return run


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_becomes_a_row(rows_from, name):
    assert rows_from(name, [ITEMS[name]])[0] == [ROWS[name]]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_items_without_a_usable_answer_are_left_out_and_counted(rows_from, name):
    rows, said = rows_from(name, [*LEFT_OUT[name], ITEMS[name]])
    assert rows == [ROWS[name]]
    assert said == f"{len(LEFT_OUT[name])} items were left out\n"


@pytest.mark.parametrize(
    ("name", "answers"), [("gsm8k", AnswerKind.NUMBER), ("math", AnswerKind.MATH), ("choice", AnswerKind.CHOICE)]
)
def test_the_rows_of_a_recipe_pass_the_check(name, answers, tmp_path):
    found = Checked()
    (tmp_path / "rows").write_text(json.dumps(ROWS[name]))
    with pytest.raises(LocalError, match="has 1 rows with different prompts"):
        list(check(tmp_path / "rows", answers, found))
    assert (found.rows, found.bad) == (1, 0)
