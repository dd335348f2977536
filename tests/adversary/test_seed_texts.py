"""The careful texts of the seed policy are right step by step."""

import random
import re

import pytest

from sapo_adversary import seed_texts as texts
from sapo_node.tasks import build_task, score
from sapo_protocol import load_manifest

SPECS = {spec.dataset: spec for spec in load_manifest("starter").tasks}


def tasks(dataset):
    return [build_task(dataset, SPECS[dataset].config, number) for number in range(300)]


@pytest.mark.parametrize("dataset", SPECS)
def test_careful_text_ends_in_the_right_answer(dataset):
    rng = random.Random(1)
    for task in tasks(dataset):
        text = texts.careful(dataset, task.prompt, rng)
        assert score(task, text), (task, text)


@pytest.mark.parametrize("dataset", SPECS)
def test_every_equation_of_a_careful_text_holds(dataset):
    for task in tasks(dataset):
        text = texts.careful(dataset, task.prompt, random.Random(3))
        for left, right in re.findall(r"(?<![\w*+/-])(\d[\d*+-]*)=(\d[\d*+]*)", text):
            # Digits and operators only, by the expression above.
            assert eval(left) == eval(right), text
