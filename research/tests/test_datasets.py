"""The page of the datasets is made from the kept measurements, and both have every dataset of the catalogue."""

import json

from research.datasets.__main__ import PAGE, RESULTS
from research.datasets.digest import digest_of
from research.datasets.measure import CONSTANTS
from research.datasets.notes import LEFT_OUT, NOTES
from research.datasets.page import page
from sapo_node.tasks import DATASETS
from sapo_node.tasks.catalogue import describe
from sapo_node.tasks.items import known_hashes

MEASURED = json.loads(RESULTS.read_text("utf-8"))
BEST_CONSTANT = 0.15
"""What a constant answer may earn of an item on average."""
BUILD_MS = 50
"""Milliseconds of processor time that an item may take on average."""


def test_every_dataset_of_the_catalogue_is_measured():
    assert MEASURED["datasets"].keys() == DATASETS.keys() == known_hashes().keys()


def test_the_page_is_the_one_that_its_measurements_make():
    assert PAGE.read_text("utf-8") == page(MEASURED), "run: python -m research.datasets"


def test_no_constant_answer_earns_much():
    assert [name for name, row in MEASURED["datasets"].items() if row["constant_earns"] > BEST_CONSTANT] == []


def test_the_items_of_every_dataset_are_the_same_everywhere():
    assert [name for name, row in MEASURED["datasets"].items() if not row["same"]] == []


def test_no_dataset_builds_slowly():
    assert [name for name, row in MEASURED["datasets"].items() if row["build_ms"][0] > BUILD_MS] == []


def test_the_measurements_are_those_of_todays_rows():
    rows = {name: (dict(sorted(each.defaults.items())), each.graded) for name, each in DATASETS.items()}
    assert {name: (row["defaults"], row["graded"]) for name, row in MEASURED["datasets"].items()} == rows


def test_a_remark_is_on_a_dataset_of_the_catalogue_and_a_reason_on_another():
    assert NOTES.keys() <= DATASETS.keys()
    assert not LEFT_OUT.keys() & DATASETS.keys()


def test_no_constant_is_tried_twice():
    assert len(set(CONSTANTS)) == len(CONSTANTS)


def test_a_scorer_is_described_by_its_first_sentence_or_its_name():
    def is_prime(): ...

    def is_row():
        """Return whether the answer has the same cells. The blanks between them may differ."""

    assert (describe(is_prime), describe(is_row)) == ("prime", "the same cells")


def test_another_number_of_items_has_another_digest():
    assert digest_of("chain_sum", 2) == digest_of("chain_sum", 2) != digest_of("chain_sum", 3)
