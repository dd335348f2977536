"""What crosses a pipe or is stored comes back as it was, or is refused with the place of what is wrong."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.codec import MalformedError, from_json, to_json, to_object
from sapo_node.groups.messages import (
    FILTERS,
    GenerateRequest,
    GroupReport,
    LearnerOptions,
    Refusal,
    RequestError,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.ranges import FLOAT, MAX_COUNT, Count, LogProb

REPORTS = st.builds(
    GroupReport,
    tokens=st.integers(0, MAX_COUNT),
    masked=st.integers(0, MAX_COUNT),
    refused=st.none() | st.sampled_from(Refusal),
    rejected=st.dictionaries(st.integers(0, 63), st.sampled_from(FILTERS)),
)
FIGURE = st.none() | st.floats(FLOAT.low, FLOAT.high)


@dataclass(frozen=True)
class Part:
    number: float
    names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    pair: tuple[int, str]
    flag: bool = True
    note: str | None = None


WHOLE = {"parts": [{"number": 1.5}], "pair": [1, "a"]}


@given(groups=st.dictionaries(st.text(max_size=20), REPORTS), loss=FIGURE, skipped=st.none() | st.text())
def test_a_report_comes_back_as_it_was(groups, loss, skipped):
    report = TrainReport(7, groups, 1e-4, loss=loss, skipped=skipped)
    assert from_json(TrainReport, json.loads(json.dumps(to_json(report)))) == report


@given(
    texts=st.lists(st.text(), min_size=1, max_size=4),
    advantage=st.floats(-100, 100),
    spans=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3),
)
def test_a_request_comes_back_as_it_was(texts, advantage, spans):
    completions = tuple(Sampled(text, "stop", silent=tuple(spans)) for text in texts)
    group = TrainGroup("external", "?", 0.5, (advantage,) * len(texts), completions, "a/1/2/3")
    request = TrainRequest(3, (group,), "on-policy")
    assert from_json(TrainRequest, json.loads(json.dumps(to_json(request)))) == request


def test_options_come_back_as_they_were():
    options = LearnerOptions(checkpoints="", filters=("equation", "answer-likelihood"), dtype="bfloat16")
    assert from_json(LearnerOptions, json.loads(json.dumps(to_json(options)))) == options


def test_what_is_nothing_by_default_is_left_out_and_what_says_something_is_written():
    assert to_json(Whole((), (1, ""))) == {"parts": [], "pair": [1, ""], "flag": True}


def test_a_number_may_be_written_with_a_fraction_of_zero_or_without():
    value = from_json(Whole, {"parts": [{"number": 2}], "pair": [1.0, "a"]})
    assert (type(value.parts[0].number), type(value.pair[0])) == (float, int)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parts": {}}, "Whole.parts must be a list"),
        ({"parts": [7]}, r"Whole.parts\[0\] must be an object"),
        ({"parts": [{}]}, r"Whole.parts\[0\] lacks 'number'"),
        ({"parts": [{"number": True}]}, r"Whole.parts\[0\].number must be a number from -3.4e\+38 to 3.4e\+38"),
        ({"parts": [{"number": float("nan")}]}, "must be a number"),
        ({"parts": [{"number": 1e308}]}, "must be a number"),
        ({"parts": [{"number": 10**400}]}, "must be a number"),
        ({"parts": [{"number": 1, "names": {"x": 2**63}}]}, "must be a whole number from"),
        ({"parts": [{"number": 1, "names": {"x": 0.5}}]}, "names.*must be a whole number"),
        ({"pair": [1]}, "Whole.pair must have 2 items"),
        ({"pair": [True, "a"]}, r"Whole.pair\[0\] must be a whole number"),
        ({"flag": 1}, "Whole.flag must be true or false"),
        ({"note": 1}, "Whole.note must be text"),
        ({"other": 1}, "Whole has no 'other'"),
    ],
)
def test_what_is_of_another_type_is_refused_with_its_place(change, said):
    with pytest.raises(MalformedError, match=said):
        from_json(Whole, WHOLE | change)


@dataclass(frozen=True)
class Ranged:
    count: Count = 0
    logprobs: tuple[LogProb, ...] = ()
    last: LogProb | None = None


NO_COUNTS = (-1, MAX_COUNT + 1, 10**4_000, 1.5, 1e300, float("nan"), True, "1", None)
NO_LOGPROBS = (0.5, -1e300, -1e308, 1e308, float("nan"), float("inf"), -float("inf"), -(10**400), True, "0")


@pytest.mark.parametrize(
    "change",
    [
        *({"count": each} for each in NO_COUNTS),
        *({"last": each} for each in NO_LOGPROBS),
        *({"logprobs": [-1.0, each, -2.0]} for each in NO_LOGPROBS),
        {"logprobs": [-1e308] * 2},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_number_out_of_its_range_is_refused_by_reader_and_writer(change):
    assert from_json(Ranged, {"count": 7, "logprobs": [-1, -0.5, 0.0]}) == Ranged(7, (-1.0, -0.5, 0.0))
    with pytest.raises(MalformedError, match="Ranged"):
        from_json(Ranged, change)
    [(name, value)] = change.items()
    with pytest.raises(MalformedError, match="Ranged"):
        to_object(Ranged(**{name: tuple(value) if isinstance(value, list) else value}))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"refused": "no reason"}, "refused is 'no reason'; give one of"),
        ({"rejected": {"0": "nothing"}}, "rejected.*give one of: one-answer"),
        ({"rejected": {"first": "equation"}}, "has the key 'first'; give a whole number"),
        ({"rejected": {"-1": "equation"}}, "has the key '-1'"),
        ({"rejected": {"00": "equation"}}, "has the key '00'"),
        ({"rejected": {"1" + "0" * 9: "equation"}}, "at most 9 digits"),
    ],
)
def test_a_word_that_is_not_in_the_vocabulary_is_refused(body, said):
    with pytest.raises(MalformedError, match=said):
        from_json(GroupReport, body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["step", "groups", "id", "x"]), inner),
    )
)
def test_any_json_is_read_or_refused(body):
    with suppress(MalformedError, RequestError):
        from_json(TrainRequest, body)


def test_groups_without_an_id_are_named_by_their_number_in_the_request():
    group = TrainGroup("local", "?", 1.0, (), ())
    assert [each.id for each in TrainRequest(1, (group, group)).groups] == ["0", "1"]


def test_two_groups_of_one_id_are_refused():
    group = TrainGroup("local", "?", 1.0, (), (), "same")
    with pytest.raises(RequestError, match="one id"):
        TrainRequest(1, (group, group))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"advantages": [1.0, 2.0]}, "another number of advantages"),
        ({"source": "local"}, "lacks its tokens"),
    ],
)
def test_a_group_whose_parts_do_not_fit_together_is_refused(change, said):
    body = {
        "source": "external",
        "prompt": "?",
        "weight": 1,
        "advantages": [1],
        "completions": [{"text": "", "finish": "stop"}],
    }
    assert from_json(TrainGroup, body).weight == 1.0
    with pytest.raises(RequestError, match=said):
        from_json(TrainGroup, body | change)


@pytest.mark.parametrize("change", [{"completions": 0}, {"max_tokens": 0}, {"temperature": 0}, {"seed": -1}])
def test_a_request_to_generate_nothing_is_refused(change):
    body = {"prompts": [{"text": "?", "examples": []}], "completions": 1, "max_tokens": 1, "seed": 0}
    assert from_json(GenerateRequest, body).temperature == 1.0
    with pytest.raises(RequestError, match="must be"):
        from_json(GenerateRequest, body | change)
