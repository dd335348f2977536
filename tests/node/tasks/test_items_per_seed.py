"""Items depend on their seed alone, also where reasoning-gym takes them from elsewhere."""

import os
import random
import subprocess
import sys

import pytest

from sapo_node.tasks import build_task

SEEDS = range(12)


@pytest.mark.parametrize("dataset", ["gsm_symbolic", "list_functions"])
def test_an_item_does_not_depend_on_the_items_before_it(dataset: str) -> None:
    items = [build_task(dataset, {}, seed) for seed in SEEDS]
    assert [build_task(dataset, {}, seed) for seed in reversed(SEEDS)] == items[::-1]
    assert len({item.prompt for item in items}) == len(items)


def test_an_item_neither_reads_nor_changes_the_global_generator_of_random_numbers() -> None:
    found = []
    for state in (1, 2):
        random.seed(state)
        expected = random.Random(state).random()
        found.append([build_task("list_functions", {}, seed) for seed in SEEDS])
        assert random.random() == expected
    assert found[0] == found[1]


def test_a_dataset_with_an_object_per_seed_has_the_largest_seed() -> None:
    assert build_task("gsm_symbolic", {}, 2**32 - 1).prompt


PRODUCTS = """
from sapo_node.tasks import build_task
for seed in range(8):
    print(build_task("polynomial_multiplication", {}, seed))
"""


@pytest.mark.slow
def test_products_of_polynomials_do_not_depend_on_the_hash_seed() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRODUCTS], env=os.environ | {"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(printed) == 1
