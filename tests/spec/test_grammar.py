"""The grammar and the bytes shown in the text agree with the vectors."""

import json
import re
from pathlib import Path

import pycddl
import pytest

from cddl import Grammar

SPEC = Path(__file__).parents[2] / "spec"
VECTORS = {
    f"{path.parent.name}/{path.stem}": json.loads(path.read_bytes()) for path in sorted(SPEC.glob("vectors/*/*.json"))
}
JUDGED = [name for name, vector in VECTORS.items() if "grammar" in vector]
EXAMPLE = re.compile(r"^```hex vectors/(\S+)\.json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [found for page in sorted(SPEC.glob("*.md")) for found in EXAMPLE.findall(page.read_text())]

TEXT = (SPEC / "sapo.cddl").read_text()
GRAMMAR = Grammar(TEXT)
MISREAD = {"header/an-x-with-every-type-of-value"}
"""pycddl 0.6.4 has no place for a map within an array where a type has choices."""


def verified_or_unusable(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["input"]["bytes"])


@pytest.mark.parametrize("kind", sorted({VECTORS[name]["kind"] for name in JUDGED}))
def test_the_grammar_takes_what_the_vectors_say_it_takes(kind):
    names = [name for name in JUDGED if VECTORS[name]["kind"] == kind]
    assert [name for name in names if GRAMMAR.fits(kind, verified_or_unusable(name)) != VECTORS[name]["grammar"]] == []


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a-payload-of-one-byte", True),
        ("algorithm-minus-8", False),
        ("algorithm-minus-7", False),
        ("a-key-of-31-bytes", False),
        ("a-key-of-33-bytes", False),
        ("the-key-as-text", False),
        ("a-critical-label", False),
    ],
)
def test_the_grammar_of_protected_headers_takes_one_algorithm_and_a_key(name, fits):
    envelope = verified_or_unusable(f"envelope/{name}")
    length = envelope[3]
    assert GRAMMAR.fits("protected", envelope[4 : 4 + length]) == fits


def test_a_reader_of_cddl_by_others_takes_what_the_grammar_takes():
    """One way only: pycddl also takes text for bytes of a .size, and maps within arrays with any keys."""
    refused = set()
    for name in JUDGED:
        if not VECTORS[name]["grammar"]:
            continue
        try:
            pycddl.Schema(f"root = {VECTORS[name]['kind']}\n{TEXT}").validate_cbor(verified_or_unusable(name))
        except pycddl.ValidationError:
            refused.add(name)
    assert refused == MISREAD


def test_what_a_vector_accepts_fits_the_grammar():
    accepted = {name for name in JUDGED if VECTORS[name]["expect"] == "accept"}
    assert {name for name in accepted if not VECTORS[name]["grammar"]} == set()


@pytest.mark.parametrize(("name", "shown"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_bytes_in_the_text_are_those_of_the_vector(name, shown):
    digits = re.sub(r";.*|\s", "", shown)
    assert digits == VECTORS[name]["input"]["bytes"]


def test_every_block_of_bytes_in_the_text_names_its_vector():
    blocks = sum(page.read_text().count("```hex") for page in SPEC.glob("*.md"))
    assert blocks == len(EXAMPLES) > 0
