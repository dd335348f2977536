"""The wrappers of an answer are taken off, and no other character of it."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.tasks import Task, score
from sapo_node.tasks.wrappers import MAX_WRAPPERS, plain_number, stages

NUMBER = Task("chain_sum", "State the final answer to the following arithmetic problem: ... =", "-1234")
WORD = Task("bf", "What is the output?", "crave")
WEEKDAY = Task("calendar_arithmetic", "What day is it?", "Friday")
HEXADECIMAL = Task("base_conversion", "Convert it.", "3a1")
CONCLUSION = Task("propositional_logic", "Given:\n1. (P → Q)\n.2. P\n.What can we conclude?", "Q")
TASKS = [NUMBER, WORD, WEEKDAY, HEXADECIMAL, CONCLUSION]

WRAPPERS = (
    *("**X**", "__X__", "*X*", "_X_", "$$X$$", "$X$", "$ X $", r"\(X\)", "\\[\nX\n\\]", r"\boxed{X}", r"\text{X}"),
    *(r"\textbf{X}", r"\mathbf{X}", r"\mathrm{X}", '"X"', "'X'", "\u201cX\u201d", "\u2018X\u2019", "\u201eX\u201c"),
    *("\u00abX\u00bb", "= X", "the answer is X", "Answer: X", "answer: X", "\n X\t", "```\nX\n```"),
    *("```text\nX\n```", "```X```"),
)
"""X stands for what is wrapped. Those below are apart: beside others of their characters they are another wrapper."""

ALONE = ("`X`", "X.", "X .", "**Answer:** X", "The final answer is: X", "the correct answer is\nX")


def right(task: Task, answer: str) -> int:
    return score(task, f"So:\n<answer>{answer}</answer>")


def wrapped(answer: str, wrappers: list[str]) -> str:
    for wrapper in wrappers:
        answer = wrapper.replace("X", answer)
    return answer


@pytest.mark.parametrize("wrapper", [*WRAPPERS, *ALONE])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.dataset)
def test_a_correct_answer_is_correct_in_each_wrapper(task: Task, wrapper: str) -> None:
    assert right(task, wrapped(task.answer, [wrapper]))


@given(st.sampled_from(TASKS), st.lists(st.sampled_from(WRAPPERS), max_size=MAX_WRAPPERS))
def test_a_correct_answer_is_correct_in_four_wrappers(task: Task, wrappers: list[str]) -> None:
    answer = wrapped(task.answer, wrappers)
    assert right(task, answer) or len(answer) > 4 * len(task.answer) + 64


@given(st.sampled_from(TASKS), st.text(max_size=20), st.lists(st.sampled_from([*WRAPPERS, *ALONE]), max_size=6))
def test_no_wrapper_makes_an_incorrect_answer_correct(task: Task, answer: str, wrappers: list[str]) -> None:
    if not right(task, answer):
        assert not right(task, wrapped(answer, wrappers))


@given(
    st.sampled_from(TASKS),
    st.sampled_from(
        ["X or Y", "Y or X", "X, Y", "Y = X", "X Y", "Y\nX", "not X", "X?", "X..", "X\u200b", "X\u00a0", "XX"]
    ),
    st.lists(st.sampled_from([*WRAPPERS, *ALONE]), max_size=4),
)
def test_two_answers_or_a_spoilt_one_are_incorrect_in_every_wrapper(
    task: Task, joined: str, wrappers: list[str]
) -> None:
    answer = joined.replace("X", task.answer).replace("Y", "7")
    assert not right(task, wrapped(answer, wrappers))


def test_five_wrappers_are_one_too_many() -> None:
    assert right(NUMBER, wrapped("-1234", ['"X"'] * 4))
    assert not right(NUMBER, wrapped("-1234", ['"X"'] * 5))


@given(st.text(st.sampled_from('*_`$"=.\\[](){} \nanswer: is12'), max_size=60))
def test_stages_are_at_most_five_ever_shorter_parts_of_the_answer(answer: str) -> None:
    found = list(stages(answer))
    assert found[0] == answer
    assert len(found) <= 1 + MAX_WRAPPERS
    for before, after in itertools.pairwise(found):
        assert 0 < len(after) < len(before)
        assert after in before


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        ("***14***", "14"),
        ("**12** or **13**", "12** or **13"),
        ("```yes\nno\n```", "yes\nno"),
        ("```text\nno\n```", "no"),
        ("```mar\u212adown\nno\n```", "mar\u212adown\nno"),
        ("```text\n```", "```text\n```"),
        ("**Answer:** **14**", "14"),
        ("answer 14", "answer 14"),
        ("The answer is14", "The answer is14"),
        ("An\u017fwer: 14", "An\u017fwer: 14"),
        ("14..", "14.."),
        ('"', '"'),
        ("**", "**"),
        ("****", "**"),
        ("=", "="),
        (".", "."),
    ],
)
def test_the_last_stage_has_no_wrapper_left_and_no_word_less(answer: str, last: str) -> None:
    assert list(stages(answer))[-1] == last


def test_a_dataset_whose_own_answers_hold_wrappers_loses_nothing() -> None:
    for answer in ('"crave"', "=1", "`x`.", "**"):
        task = Task("bf", "What is the output?", answer)
        assert right(task, answer)
        assert right(task, f"**{answer}**")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("1,234", "1234"),
        ("1 234 567", "1234567"),
        ("1{,}234", "1234"),
        ("\u2212 1,234.50", "-1234.50"),
        ("+ 12", "+12"),
        ("12.", "12."),
        (".5", ".5"),
        ("1,234e5", "1234e5"),
    ],
)
def test_signs_and_separators_of_a_number_become_plain(text: str, plain: str) -> None:
    assert plain_number(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1,23",
            "12,34",
            "1234,567",
            "0,123",
            "1,234 567",
            "1  234",
            "1\n234",
            "1'234",
            "1.234.567",
            ",123",
            "1,,234",
        ),
        *("- -1", "\uff11\uff12", "\u0661\u0662", "1\u00a0234", "1\u202f234", "1\u200b234", "12 apples", "x"),
    ],
    ids=ascii,
)
def test_what_is_no_number_is_left_as_it_is(text: str) -> None:
    assert plain_number(text) == text


UNITS = [
    *(
        "*",
        "**",
        "_",
        "`",
        "$",
        '"',
        "'",
        "=",
        "= ",
        ".",
        "\u201c",
        "(",
        "\\",
        "\\(",
        "\\boxed{",
        "}",
        "\n",
        "\t",
        "\r\n",
    ),
    *(
        "answer: ",
        "the answer is ",
        "the final ",
        "**Answer:** ",
        "```text\n",
        "1 234 ",
        "1,234,",
        "{,}123",
        "9",
        "0.",
        "1/",
        "1=",
    ),
]


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_4096_characters_of_wrappers_are_scored_within_ten_milliseconds(unit: str) -> None:
    inside = (unit * 4_096)[:4_096]
    half = inside[:2_040]
    for dataset in ("bf", "chain_sum", "fraction_simplification", "decimal_arithmetic", "arc_1d", "binary_matrix"):
        task = Task(dataset, "to a maximum of 5 significant digits", "1" * 1_100)
        for answer in (inside, f"{half}12{half[::-1]}"):
            assert min(_seconds(task, f"<answer>{answer}</answer>") for _ in range(3)) < 0.01


def _seconds(task: Task, completion: str) -> float:
    start = time.thread_time()
    score(task, completion)
    return time.thread_time() - start
