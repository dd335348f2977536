"""The environment of verifiers that docs/extend/porting-an-environment.md ports, as an item of a swarm."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.cli.tasks.check import judge
from sapo_node.cli.tasks.chosen import chosen
from sapo_node.cli.tasks.survey import survey
from sapo_node.tasks import plugins, score

ROOT = Path(__file__).parents[3]
FILE = ROOT / "examples/reverse_text.py"
PAGE = (ROOT / "docs/extend/porting-an-environment.md").read_text("utf-8")


@pytest.fixture(scope="module")
def ported():
    with chosen(str(FILE), None, None, 10) as task:
        yield task


def prompts(task, first):
    return {task.build(seed).prompt for seed in range(first, first + 300)}


def test_the_page_shows_the_module():
    assert re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) == [FILE.read_text("utf-8")]


def test_its_rows_pass_the_check(ported):
    found = survey(ported.dataset, {}, range(0, 60_000, 1_000), ported.levels)
    assert {each.outcome for each in judge(found, ported.levels)} == {"passed"}


def test_no_row_is_both_assigned_and_held_out_or_an_example(ported):
    assigned, held_out, examples = (prompts(ported, first) for first in (0, 2**31, 2**31 + 2**30))
    assert assigned.isdisjoint(held_out)
    assert (assigned | held_out).isdisjoint(examples)
    assert len(assigned | held_out | examples) == 40


@pytest.mark.parametrize(
    ("change", "level"),
    [(lambda text: text, 10), (lambda text: text[1:], 9), (lambda text: text[: len(text) // 2], 5), (str.upper, 0)],
)
def test_an_answer_earns_the_share_of_its_characters(ported, change, level):
    task = ported.build(1)
    assert score(task, f"<answer>{change(task.answer)}</answer>", 10) == level


def longest_common(one, other):
    row = [0] * (len(other) + 1)
    for character in one:
        before = row
        row = [0]
        for place, each in enumerate(other):
            row.append(before[place] + 1 if each == character else max(before[place + 1], row[place]))
    return row[-1]


_TEXT = st.text("ab c", min_size=1, max_size=12)


@given(_TEXT, _TEXT)
def test_the_share_is_that_of_the_longest_common_subsequence(ported, answer, given):
    faults = len(answer) + len(given) - 2 * longest_common(answer, given)
    assert plugins.of(ported.dataset).earns("", answer, given) == max(0, 1 - Fraction(faults, len(answer)))
