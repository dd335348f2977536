"""The node's reader and the one in JavaScript give the same answer on vectors with seeded changes.

`make test` asks a sample, `make nightly` 14,300. A difference is a hole in the standard's text or a fault of a reader.
"""

import json
import logging
import os
from collections import Counter

from conformance.python.cli import answer
from conformance.run import Answer, Implementation, load_cases

from javascript import javascript
from mutations import JUDGED, Mutations

COUNT = int(os.environ.get("MUTATIONS", "200"))
WITH_OUTPUT = {case.kind for case in load_cases() if case.output}


def comparable(kind, given):
    """The verdict, and where it is to accept the output. A large number is text in JavaScript's JSON, so all are."""
    verdict, output = given
    if verdict != "accept" or kind not in WITH_OUTPUT:
        return verdict
    return verdict, json.loads(json.dumps(output), parse_int=str)


def test_both_readers_agree_on_changed_vectors():
    mutations, differences, verdicts = Mutations(), [], Counter()
    logging.disable()
    try:
        with Implementation(javascript("cli.mjs")) as reader:
            for number in range(COUNT):
                case, request = mutations.request(number)
                ours = answer(request)
                theirs = reader.ask(request)
                assert isinstance(theirs, Answer), (number, case.path, theirs)
                verdicts[case.kind, ours["verdict"] == "accept"] += 1
                one, other = (ours["verdict"], ours.get("output")), (theirs.verdict, theirs.output)
                if comparable(case.kind, one) != comparable(case.kind, other):
                    differences.append((number, case.path, one, other))
    finally:
        logging.disable(logging.NOTSET)
    print(f"{COUNT} requests, {sum(n for (_, taken), n in verdicts.items() if taken)} accepted")  # noqa: T201
    assert not differences, differences[:20]


def test_changes_reach_every_kind_and_are_the_same_for_ever():
    one, other = Mutations(), Mutations()
    requests = [one.request(number) for number in range(400)]
    assert requests == [other.request(number) for number in range(400)]
    assert {case.kind for case, _ in requests} == set(JUDGED)
