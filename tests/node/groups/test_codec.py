"""What crosses a pipe or is stored comes back as it was, or is refused with the place of what is wrong."""

import json
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.feed.messages import StepReport
from sapo_node.groups.codec import MAX_COUNT, MAX_FLOAT, Count, LogProb, MalformedError, from_json, to_json, to_object
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

REPORTS = st.builds(
    GroupReport,
    tokens=st.integers(0, MAX_COUNT),
    masked=st.integers(0, MAX_COUNT),
    refused=st.none() | st.sampled_from(Refusal),
    rejected=st.dictionaries(st.integers(0, 63), st.sampled_from(FILTERS)),
)
FIGURE = st.none() | st.floats(-MAX_FLOAT, MAX_FLOAT)


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": {"a": 7}}, r"StepReport: Expected `object`, got `int` - at `\$.groups\[...\]`"),
        ({"groups": {"a": {"untrained": [0, True]}}}, r"got `bool` - at `\$.groups\[...\].untrained\[1\]`"),
        ({"id": 1}, r"Expected `str`, got `int` - at `\$.id`"),
        ({"saved": "1"}, r"Expected `int`, got `str` - at `\$.saved`"),
        ({"step": 1}, "unknown field `step`"),
        ({"groups": {"a": {"mask": 1}}}, "unknown field `mask`"),
    ],
)
def test_a_body_of_another_type_or_with_a_misspelt_key_is_refused_with_its_place(change, said):
    with pytest.raises(MalformedError, match=said):
        from_json(StepReport, {"id": "batch/1/a"} | change)


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
        ({"refused": "no reason"}, "Invalid enum value 'no reason'.*refused"),
        ({"rejected": {"0": "nothing"}}, "Invalid enum value 'nothing'.*rejected"),
        ({"rejected": {"first": "equation"}}, "Expected `int`.*rejected"),
        ({"rejected": {"-1": "equation"}}, "Expected `int`.*rejected"),
        ({"rejected": {"00": "equation"}}, "Expected `int`.*rejected"),
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
