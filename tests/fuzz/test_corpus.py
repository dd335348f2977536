"""What fuzzing has found to matter is replayed, without a fuzzer, by every run of the tests."""

import importlib

import pytest
from harness import CORPUS, NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_input_of_the_corpus_keeps_the_promise(name):
    module = importlib.import_module(f"fuzz_{name}")
    inputs = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert inputs
    for data in [*inputs, *module.seeds()]:
        module.fuzz(data)
