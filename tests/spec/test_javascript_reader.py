"""The reader in JavaScript, written from the text of the standard alone, agrees with every vector."""

import pytest
from conformance.run import Answer, Implementation, Report, load_cases, run_cases, section

from javascript import FOLDER, javascript

CHAPTERS = sorted({section(case.rule) for case in load_cases()})


@pytest.fixture(scope="module")
def reader():
    with Implementation(javascript("cli.mjs")) as running:
        yield running


@pytest.mark.parametrize("rules", CHAPTERS)
def test_every_vector_agrees(rules, reader):
    results = run_cases(load_cases(rules), reader)
    assert Report((), results).as_dict()["disagreements"] == []


def test_a_kind_of_a_later_version_is_not_guessed_at(reader):
    assert reader.ask({"kind": "opinion", "input": {}}) == Answer("unknown kind")


def test_its_lock_file_names_no_registry():
    assert '"resolved"' not in (FOLDER / "package-lock.json").read_text()
