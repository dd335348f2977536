# ruff: noqa: RUF001 - the signs of the dataset's notation, and look-alike digits on purpose
"""Scorers pay for the right answer and for nothing else, whatever the text."""

import functools
import itertools
import time
from collections import Counter
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cheap_rules
from sapo_node.tasks import MAX_COMPLETION, Task, build_task, prepare, score
from sapo_protocol.manifest import TaskSpec, load_manifest, shipped_manifests

SPECS = {spec.dataset: spec.config for name in shipped_manifests() for spec in load_manifest(name).tasks}
TRIED = 10 * settings().max_examples
"""Items on which cheap answers are tried: 200 by day, 1,000 at night."""


def items(dataset: str, count: int = 200) -> list[Task]:
    return [build_task(dataset, SPECS[dataset], 1_000_003 * number) for number in range(count)]


@functools.cache
def shipped(swarm: str, dataset: str) -> list[Task]:
    """Items of a task of a swarm."""
    [spec] = [spec for spec in load_manifest(swarm).tasks if spec.dataset == dataset]
    return [build_task(dataset, spec.config, 1_000_003 * number) for number in range(2 * TRIED)]


@functools.cache
def item(dataset: str) -> Task:
    return build_task(dataset, SPECS[dataset], 77)


def right(task: Task, answer: str) -> bool:
    return score(task, f"Let me think.\n<answer>{answer}</answer>")


def number_task(answer: str, dataset: str = "chain_sum") -> Task:
    return Task(dataset, "State the final answer to the following arithmetic problem: ... =", answer)


def logic_task(*premises: str) -> Task:
    listed = "".join(f"{number}. {premise}\n." for number, premise in enumerate(premises, 1))
    return Task("propositional_logic", f"Given:\n{listed}What can we conclude?", "P")


@pytest.mark.parametrize(
    "completion",
    ["7", "<answer>7", "7</answer>", "</answer>7<answer>", "<answers>7</answers>", "<answer>7</answer" + "r>"],
)
def test_an_answer_without_its_tags_is_wrong(completion: str) -> None:
    assert not score(number_task("7"), completion)


@pytest.mark.parametrize(
    "completion",
    [
        "<answer>7</answer>",
        "<answer>8</answer> no: <answer>\n 7 </answer> so much.",
        "<answer>8 <answer>7</answer>",
        "</answer><answer>7</answer>",
    ],
)
def test_the_last_answer_counts(completion: str) -> None:
    assert score(number_task("7"), completion)


def test_a_later_wrong_answer_replaces_a_right_one() -> None:
    assert not score(number_task("7"), "<answer>7</answer><answer>8</answer>")


def test_a_completion_over_the_limit_is_wrong() -> None:
    text = "<answer>7</answer>"
    assert score(number_task("7"), text.rjust(MAX_COMPLETION))
    assert not score(number_task("7"), text.rjust(MAX_COMPLETION + 1))


@pytest.mark.parametrize("answer", ["-42", "-042", " -42\n", "−42", "- 42", "-42.0", "=-42"])
def test_the_same_whole_number_is_right(answer: str) -> None:
    assert right(number_task("-42"), answer)


@pytest.mark.parametrize(
    "answer", ["42", "−−42", "-4_2", "-٤٢", "-42.5", "-4 2", "--42", "-  42", "-1,042", "-0x2a", "x=-42"]
)
def test_another_or_no_whole_number_is_wrong(answer: str) -> None:
    assert not right(number_task("-42"), answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("3/4", "3 / 4", "$3/4$", "$\\frac{3}{4}$", "\\dfrac{3}{4}", "$ \\frac{ 3 }{ 4 } $"),
        *("03/4", "+3/4", "\\tfrac34", "6/8 = 3/4"),
    ],
)
@pytest.mark.parametrize("oracle", ["3/4", "$3/4$", "$\\frac{3}{4}$"])
def test_a_simplified_fraction_is_right_in_each_style(oracle: str, answer: str) -> None:
    assert right(number_task(oracle, "fraction_simplification"), answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("6/8", "0.75", "4/3", "3/0", "0/0", "-3/-4", "3/4/1", "3", "$3/4", "$$", "$", "\\frac{3}{4", "３/4"),
        *("1/2 = 3/4", "3/4 = 6/8", "3/4 = = 3/4", "3/4 = 3/4 = 3/4 = 3/4 = 3/4"),
    ],
)
def test_a_fraction_that_is_other_or_unsimplified_is_wrong(answer: str) -> None:
    assert not right(number_task("3/4", "fraction_simplification"), answer)


@pytest.mark.parametrize("dataset", ["arc_1d", "binary_matrix"])
def test_cells_are_apart_by_blanks_of_ascii(dataset: str) -> None:
    task = Task(dataset, "Which cells?", "0 1\n1 0")
    assert all(right(task, answer) for answer in ("0  1\n1 0", "0\t1\n1 0", "0 1\r\n1 0", "0 1\n\n1 0"))
    assert not any(right(task, answer) for answer in ("0\u00a01\n1 0", "0\v1\n1 0", "0 1\u20281 0"))


def test_an_answer_has_at_most_4096_characters_however_long_the_reference_is() -> None:
    longest = "a" * 4_096
    assert right(Task("bf", "Which text?", longest), longest)
    assert not right(Task("bf", "Which text?", longest + "a"), longest + "a")


def decimal_task(answer: str, digits: int = 5) -> Task:
    prompt = f"Please solve this problem to a maximum of {digits} significant digits, rounding up from the half."
    return Task("decimal_arithmetic", prompt, answer)


@pytest.mark.parametrize(
    ("oracle", "answer"),
    [
        ("12.345", "12.345"),
        ("12.345", "12.3450"),
        ("12.345", "12.344"),
        ("12.345", "+1.2345e1"),
        ("3", "3.0001"),
        ("4.2865E+5", "428650"),
        ("4.2865E+5", "428655"),
        ("0.00", "0"),
        ("0.00", "-0.0"),
        ("0.5", ".5"),
        ("3", "3."),
        ("4.2865E+5", "428,650.0"),
    ],
)
def test_a_decimal_within_one_unit_of_the_last_digit_asked_for_is_right(oracle: str, answer: str) -> None:
    assert right(decimal_task(oracle), answer)


@pytest.mark.parametrize(
    ("oracle", "answer"),
    [
        ("12.345", "12.347"),
        ("12.345", "12.3"),
        ("3", "4"),
        ("3", "3.001"),
        ("4.2865E+5", "428700"),
        ("0.00", "0.00001"),
        ("12.345", "12.345.0"),
        ("12.345", "12,345"),
        ("12.345", "1e999"),
        ("12.345", ".5"),
        ("12.345", "."),
    ],
)
def test_a_decimal_outside_that_unit_is_wrong(oracle: str, answer: str) -> None:
    assert not right(decimal_task(oracle), answer)


@pytest.mark.parametrize(
    "answer",
    [
        "0 1\n1 2",
        "[[0, 1], [1, 2]]",
        "[[0,1],[1,2]]",
        "[0 1]\n[1 2]",
        "[[0 1]\n [1 2]]",
        "0, 1\n1, 2",
        "00 1\n1 2",
        "| 0 | 1 |\n|---|---|\n| 1 | 2 |",
    ],
)
def test_the_same_matrix_is_right_in_each_style(answer: str) -> None:
    assert right(Task("binary_matrix", "", "0 1\n1 2"), answer)


@pytest.mark.parametrize("answer", ["0 1 1 2", "0 1\n1 1", "0 1\n1 2\n0 0", "[[0, 1], [1, 2]", "[0, 1, 1, 2]", "[]"])
def test_another_or_no_matrix_is_wrong(answer: str) -> None:
    assert not right(Task("binary_matrix", "", "0 1\n1 2"), answer)


@pytest.mark.parametrize(
    ("answer", "correct"), [("[]", True), ("[ ]", True), ("x", False), ("[[]", False), ("0", False)]
)
def test_only_an_empty_matrix_equals_an_empty_one(answer: str, *, correct: bool) -> None:
    assert right(Task("list_functions", "", "[]"), answer) == correct


def test_only_what_is_between_the_cells_of_a_row_may_differ() -> None:
    task = Task("arc_1d", "", "0 0 3 0")
    assert all(right(task, answer) for answer in ("0  0 3\n0", "[0, 0, 3, 0]", "0,0,3,0", "[0 0 3 0]"))
    assert not right(task, "0 0 0 3")
    assert not right(task, "0 0 30")
    assert not right(task, "0030")


@pytest.mark.parametrize("answer", ["friday", "FRIDAY", "Friday"])
def test_a_weekday_is_right_in_any_case(answer: str) -> None:
    assert right(Task("calendar_arithmetic", "", "Friday"), answer)
    assert not right(Task("calendar_arithmetic", "", "Monday"), answer)


PREMISES = ("(P → Q)", "P", "(R ∨ ¬Q)")


@pytest.mark.parametrize("answer", ["Q", "R", "(Q)", "¬¬Q", "Q ∧ R", "P∧R", "R ↔ Q", "¬(¬R ∨ ¬Q)", "¬(P → ¬R)"])
def test_a_conclusion_that_needs_two_premises_is_right(answer: str) -> None:
    assert right(logic_task(*PREMISES), answer)


@pytest.mark.parametrize(
    "answer",
    [
        "P",  # a premise
        "P → Q",  # a premise
        "¬P ∨ Q",  # a premise in other words
        "P ∨ Q",  # a weaker premise
        "P ∨ ¬P",  # a tautology
        "¬R",  # does not follow
        "P ∧ ¬Q",  # does not follow
        "(P → Q) ∧ P",  # premises joined
        "((P → Q) ∧ P) ∧ (R ∨ ¬Q)",  # all premises joined
        "(Q ∧ R) ∧ P",  # more than one operator
        "S",  # no variable of the premises
        "Q ∧",
        "Q R",
        "(Q",
        "()",
        "Q and R",
        "Q." + " because of 1 and 2",
    ],
)
def test_a_conclusion_that_is_copied_weakened_or_malformed_is_wrong(answer: str) -> None:
    assert not right(logic_task(*PREMISES), answer)


def test_single_letter_premises_joined_are_no_conclusion() -> None:
    assert not right(logic_task("P", "Q"), "P ∧ Q")
    assert not right(logic_task("¬P", "¬Q"), "¬(P ∨ Q)")


@pytest.mark.parametrize("answer", ["P ↔ ¬Q", "(¬Q ↔ P)", "¬(P ↔ Q)", "¬¬(P ↔ ¬Q)", "¬P ↔ Q"])
def test_two_premises_of_one_letter_joined_by_an_equivalence_are_wrong(answer: str) -> None:
    assert not right(logic_task("P", "¬Q"), answer)


def test_an_equivalence_that_one_premise_alone_does_not_give_is_right() -> None:
    assert right(logic_task("P → R", "R ↔ Q", "Q → P"), "P ↔ Q")


def test_nothing_is_concluded_from_contradictory_premises() -> None:
    task = logic_task("P", "¬P", "Q")
    assert not any(right(task, answer) for answer in ("R", "P ∧ ¬P", "¬Q", "Q ↔ P"))


def test_premises_joined_or_doubled_never_pay() -> None:
    for task in items("propositional_logic", TRIED // 4):
        premises = [line.split(". ", 1)[1] for line in task.prompt.splitlines() if line.lstrip(".")[:1].isdigit()]
        for first, second in itertools.product(premises, repeat=2):
            assert not right(task, f"({first}) ∧ ({second})")
            assert not right(task, first)


LITERALS = [sign + letter for letter in "PQRSTU" for sign in ("", "¬")]


@pytest.mark.slow
def test_a_logic_item_without_a_right_answer_is_skipped_and_no_other() -> None:
    source = prepare("propositional_logic", {})
    pairs = [f"{left} {sign} {right}" for left, right in itertools.product(LITERALS, repeat=2) for sign in "∧∨→↔"]
    answers = [*LITERALS, *pairs, *(f"¬({pair})" for pair in pairs)]
    for seed in range(300):
        task = Task("propositional_logic", source[seed]["question"], "P")
        assert (build_task("propositional_logic", {}, seed).prompt == task.prompt) == any(
            right(task, answer) for answer in answers
        )


CONSTANTS = [
    *(
        "Yes",
        "No",
        "True",
        "False",
        "None",
        "Monday",
        "Friday",
        "a",
        "[]",
        "-1",
        "0",
        "1",
        "2",
        "9",
        "10",
        "0.0",
        "1.0",
    ),
    *("1/1", "1/2", "1/3", "P", "Q", "R", "S", "¬P", "¬Q", "¬R", "¬S", "P ∧ Q", "P ∨ Q", "0 0 0"),
    *("P → Q", "Q → P", "P ↔ Q", "P ↔ R", "Q ↔ R", "P ∧ R", "P ∨ R"),
]
SHIPPED = [
    pytest.param(
        name, spec, id=f"{name}-{spec.dataset}", marks=[] if name in {"starter", "interop"} else [pytest.mark.slow]
    )
    for name in shipped_manifests()
    for spec in load_manifest(name).tasks
]


@pytest.mark.parametrize(("swarm", "spec"), SHIPPED)
def test_no_constant_answer_pays_well(swarm: str, spec: TaskSpec) -> None:
    """In `starter`, which is meant for learning, at most 5 in 100 items; in other swarms at most 20."""
    tasks = shipped(swarm, spec.dataset)
    frequent = [answer for answer, _ in Counter(task.answer for task in tasks).most_common(10)]
    on = dict.fromkeys(CONSTANTS, tasks[:TRIED]) | dict.fromkeys(frequent, tasks)
    paid = {answer: fmean(right(task, answer) for task in tried) for answer, tried in on.items()}
    best = max(paid, key=lambda answer: paid[answer])
    assert paid[best] <= (0.05 if swarm == "starter" else 0.20), best


BOUNDS = {
    ("interop", "interop_largest"): 0.40,
    ("smollm2-easy", "leg_counting"): 0.35,
    ("smollm2-easy", "products"): 0.25,
    ("math-easy", "products"): 0.25,
    ("paper-nine", "calendar_arithmetic"): 0.25,
}
"""What cheap rules may earn where it is more than elsewhere; docs/trust/limits.md has what they earn."""
SOLVES = {"interop_largest": "the largest number"}
"""The rule that is the task itself."""


@pytest.mark.parametrize(("swarm", "spec"), SHIPPED)
def test_no_rule_that_copies_or_decides_by_length_pays_well(swarm: str, spec: TaskSpec) -> None:
    """In `starter` at most 5 in 100 items; in other swarms at most 20, but for those of BOUNDS."""
    tasks = shipped(swarm, spec.dataset)[:TRIED]
    paid: Counter[str] = Counter()
    for task in tasks:
        ruled = cheap_rules.answers(task.prompt)
        earns = {answer: right(task, answer) for answer in set(ruled.values())}
        paid.update(rule for rule, answer in ruled.items() if earns[answer] and rule != SOLVES.get(spec.dataset))
    bound = 0.05 if swarm == "starter" else BOUNDS.get((swarm, spec.dataset), 0.20)
    assert not [rule for rule, times in paid.items() if times / len(tasks) > bound]


def test_a_rule_that_is_the_task_itself_earns_everything() -> None:
    for task in items("interop_largest", 50):
        assert right(task, cheap_rules.answers(task.prompt)["the largest number"])


pieces = st.sampled_from(
    ["<answer>", "</answer>", "[", "]", "(", ")", "P", "¬", "∧", "1", "/", ".", "e9", "$", "\\frac{", "\n"]
)
answers = st.lists(pieces | st.text(max_size=5), max_size=30).map("".join)


@given(st.sampled_from(sorted(SPECS)), answers | st.text(st.characters(exclude_categories=())))
def test_every_text_has_a_score(dataset: str, text: str) -> None:
    assert right(item(dataset), text) in (True, False)
    assert score(item(dataset), text) in (True, False)


FLOODS = [
    "<answer>",
    "</answer>",
    "<answer>1</answer>",
    "<answer>[[",
    "\\frac{",
    "1 ",
    "[1]",
    "(",
    "¬",
    "9",
    "1/",
    "\u2007",
]


@pytest.mark.parametrize("flood", FLOODS)
def test_no_flood_takes_ten_milliseconds(flood: str) -> None:
    text = (flood * MAX_COMPLETION)[: MAX_COMPLETION - 17]
    for task, completion in itertools.product(
        map(item, SPECS), (text, f"<answer>{text}</answer>", f"<answer>{text[:400]}</answer>")
    ):
        assert any(seconds(task, completion) < 0.01 for _ in range(3))


def seconds(task: Task, completion: str) -> float:
    start = time.process_time()
    score(task, completion)
    return time.process_time() - start
