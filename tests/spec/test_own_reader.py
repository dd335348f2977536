"""The node's own reader agrees with every vector of the standard."""

import json
from collections import defaultdict

import pytest
from conformance.python.cli import answer
from conformance.run import Answer, Outcome, Result, load_cases

CASES = defaultdict(list)
for each in load_cases():
    CASES[each.rule].append(each)


def asked(case):
    return Result(case, Answer(**json.loads(json.dumps(answer(case.request)))))


@pytest.mark.parametrize("rule", CASES)
def test_every_vector_agrees(rule):
    results = [asked(case) for case in CASES[rule]]
    wrong = [result.as_dict() for result in results if result.outcome is not Outcome.AGREED]
    assert not wrong, "\n".join(map(json.dumps, wrong))


def test_a_kind_of_a_later_version_is_not_guessed_at():
    assert answer({"kind": "opinion", "input": {}}) == {"verdict": "unknown kind"}
