"""Forms of completions are named by what stands around the answer, and figures count whole groups."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from research.forms_of_smollm2 import form_of, forms
from sapo_node.tasks import build_task
from sapo_protocol import load_manifest


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("It is 12.", "no answer tags"),
        ("So <answer>12</answer>", "no wrapper"),
        ("<answer>12.</answer>", "X."),
        ("<ANSWER>$12$</ANSWER>", "other tags, $X$"),
    ],
)
def test_a_form_is_named_by_what_stands_around_the_answer(text, form):
    assert form_of(text) == form


def test_the_figures_count_accepted_completions_and_informative_groups(tmp_path):
    (config,) = (spec.config for spec in load_manifest("smollm2-easy").tasks if spec.dataset == "products")
    answer = build_task("products", config, 5).answer
    texts = [f"<answer>{answer}.</answer>", "<answer>x</answer>"]
    row = {"swarm": "smollm2-easy", "examples": 3, "dataset": "products", "seed": 5, "texts": texts}
    (tmp_path / "texts.jsonl").write_text(json.dumps(row) + "\n")
    arguments = ["score", str(tmp_path / "texts.jsonl"), "--before", str(Path(__file__).parents[2])]
    found = json.loads(CliRunner().invoke(forms, arguments, catch_exceptions=False).output)
    figures = found["smollm2-easy, 3 examples"]["products"]
    assert figures["before"] == figures["after"] == {"accepted": 0.5, "informative": 1.0}
    assert figures["forms"] == {"X.": 1, "no wrapper": 1}
