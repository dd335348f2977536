"""Write a text backwards. docs/extend/porting-an-environment.md explains it.

sapo-node task check examples/reverse_text.py --levels 10
"""

import hashlib
import json
from fractions import Fraction
from pathlib import Path

SCORER_VERSION = 1
ROWS = [json.loads(line)["text"] for line in Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()]
HELD_OUT, EXAMPLES = 2**31, 2**31 + 2**30  # the first seeds of evaluation, and of worked examples


def item(config, seed):
    if config:
        raise ValueError("this task takes no configuration")
    part = (seed >= HELD_OUT) + (seed >= EXAMPLES)
    rows = [row for number, row in enumerate(ROWS) if part == {0: 1, 1: 2}.get(number % 8, 0)]
    drawn = int.from_bytes(hashlib.sha256(str(seed).encode()).digest())
    text = rows[drawn % len(rows)]
    return f"Reverse the text character by character.\n\n{text}", text[::-1]


def earns(prompt, answer, given):
    """1 for the reference. Each character too few or too many costs the share of one character of the reference."""
    faults = len(answer) + len(given) - 2 * common(answer, given)
    return Fraction(max(0, len(answer) - faults), len(answer))


def common(one, other):
    """The length of the longest common subsequence, with one bit for each character of `one` (Hyyrö 2004)."""
    places = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    full = rest = (1 << len(one)) - 1
    for character in other:
        matched = rest & places.get(character, 0)
        rest = (rest + matched | rest - matched) & full
    return len(one) - rest.bit_count()
