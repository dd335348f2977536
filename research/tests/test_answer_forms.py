"""The list of right forms and wrong answers is large enough, and its sample is scored as the page says."""

import json
from collections import Counter
from pathlib import Path

from click.testing import CliRunner

from research.answer_forms.__main__ import answer_forms
from research.answer_forms.measure import CONFIGS, cases, figures, scored_here
from research.answer_forms.right import WRAPPERS

REFUSED = {"a variable", "unit", "LaTeX", "LaTeX signs", "round brackets"}
"""Forms that the scorers refuse; a second form of each is in a box."""

LISTED = cases(2, seed=3)


def test_every_right_form_but_those_refused_is_accepted_and_no_wrong_answer():
    _, scores = scored_here(LISTED)
    for case, level in zip(LISTED, scores, strict=True):
        expected = bool(case.form) and case.form.removesuffix(", boxed in dollars") not in REFUSED
        assert level == expected, (case.form, case.task.answer, case.completion)


def test_each_dataset_has_its_wrappers_and_twenty_five_wrong_answers_an_item():
    found = Counter((case.task.dataset, bool(case.form)) for case in LISTED)
    for dataset in CONFIGS:
        assert found[dataset, True] >= 2 * len(WRAPPERS)
        assert found[dataset, False] == 2 * 25


def test_the_same_seed_makes_the_same_list():
    assert cases(1, seed=3) == cases(1, seed=3) != cases(1, seed=4)


def test_the_figures_add_up_to_the_list():
    found = figures(LISTED, *scored_here(LISTED))
    assert found["right"] + found["wrong"] == len(LISTED)
    assert found["wrong_accepted"] == 0
    assert set(found["refused_forms"]) == {
        *REFUSED,
        *(f"{name}, boxed in dollars" for name in REFUSED - {"a variable"}),
    }


def test_the_command_scores_every_dataset_and_also_by_another_checkout():
    root = str(Path(__file__).parents[2])
    shown = CliRunner().invoke(answer_forms, ["--items", "1", "--json", "--before", root], catch_exceptions=False)
    found = json.loads(shown.output)
    assert found["after"]["datasets"].keys() == CONFIGS.keys()
    assert found["before"] == found["after"]
