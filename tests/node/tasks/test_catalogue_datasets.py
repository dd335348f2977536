"""Every dataset of the catalogue: honest answers earn all levels, others nothing, in any form and within milliseconds.

A new dataset is in these tests as soon as it is in DATASETS. It may need a row in OWN_FORMS or NEAR_MISSES.
"""

import functools
import itertools
import re
import time
from collections.abc import Callable, Mapping
from string import ascii_letters
from typing import Any

import pytest

from sapo_node.tasks import DATASETS, Task, build_task, score, task_digest
from sapo_node.tasks.datasets import scorer_of
from sapo_node.tasks.items import SEEDS, item_hash, known_hashes
from sapo_node.tasks.score import MAX_ANSWER

LEVELS = 15

Form = Callable[[str], str]


@functools.cache
def item(dataset: str, number: int) -> Task:
    return build_task(dataset, {}, SEEDS[1] * number)


def items(dataset: str, count: int) -> list[Task]:
    return [item(dataset, number) for number in range(count)]


def level(task: Task, answer: str) -> int:
    return score(task, f"Let me think.\n<answer>{answer}</answer>", LEVELS)


def pattern(text: str) -> Form:
    return lambda answer: text.replace("ANSWER", answer)


PLAIN = {
    "as it is": "ANSWER",
    "blanks around it": "  ANSWER  ",
    "a line feed before it": "\nANSWER",
    "a line feed behind it": "ANSWER\n",
    "lines of its own": "\n\nANSWER\n\n",
    "carriage returns": "\r\nANSWER\r\n",
    "a tab before it": "\tANSWER",
    "an answer before it": "x</answer> No: <answer>ANSWER",
    "a tag before it": "<answer>ANSWER",
    "thinking before it": "</answer></think><answer>ANSWER",
}
WRAPPERS = {
    "a box": "\\boxed{ANSWER}",
    "dollars": "$ANSWER$",
    "two dollars": "$$ANSWER$$",
    "round LaTeX": "\\(ANSWER\\)",
    "square LaTeX": "\\[ANSWER\\]",
    "bold": "**ANSWER**",
    "backticks": "`ANSWER`",
    "a fence": "```\nANSWER\n```",
    "a fence with a language": "```text\nANSWER\n```",
    "double quotes": '"ANSWER"',
    "an equals sign": "= ANSWER",
    "a sentence": "The answer is ANSWER",
    "a sentence with a colon": "The answer is: ANSWER",
    "a sentence with a period": "The answer is ANSWER.",
    "a box in dollars": "$\\boxed{ANSWER}$",
    "a box in bold": "**\\boxed{ANSWER}**",
    "text in a box": "\\boxed{\\text{ANSWER}}",
    "bold in a sentence": "The answer is **ANSWER**.",
}
FORMS: Mapping[str, Form] = {name: pattern(text) for name, text in (PLAIN | WRAPPERS).items()}


def entries(separator: str, before: str = "", behind: str = "", quote: str = "") -> Form:
    """The entries of a list in another style."""

    def form(answer: str) -> str:
        found = re.findall(r"[^\s,'\"\[\]]+", answer)
        return before + separator.join(f"{quote}{entry}{quote}" for entry in found) + behind

    return form


def rows(between: str, before: str, behind: str, cell: str = " ") -> Form:
    """The rows of a grid in another style."""
    return lambda answer: before + between.join(cell.join(line.split()) for line in answer.split("\n")) + behind


LISTS = {
    "commas": entries(", "),
    "commas alone": entries(","),
    "brackets": entries(", ", "[", "]"),
    "parentheses": entries(", ", "(", ")"),
    "single quotes": entries(", ", "[", "]", "'"),
    "double quotes": entries(", ", "[", "]", '"'),
    "semicolons": entries("; "),
    "lines": entries("\n"),
}
BLANKS = {"blanks": entries(" "), "brackets and blanks": entries(" ", "[", "]")}
GRIDS = {
    "nested brackets": rows("], [", "[[", "]]", ", "),
    "tight brackets": rows("],[", "[[", "]]", ","),
    "brackets on lines": rows("]\n[", "[", "]"),
    "nested brackets on lines": rows("],\n [", "[[", "]]", ", "),
    "commas": rows("\n", "", "", ", "),
    "wide": rows("\n", "", "", "  "),
}
UPPER = {"upper case": str.upper, "lower case": str.lower}
OWN_FORMS: Mapping[str, Mapping[str, Form]] = {
    "ab": LISTS | BLANKS | {"no blanks": entries("")},
    "arc_agi": GRIDS,
    "binary_matrix": GRIDS,
    **dict.fromkeys(("kakurasu", "mini_sudoku", "n_queens", "sudoku", "survo"), GRIDS),
    "complex_arithmetic": {"no blanks": lambda answer: answer.replace(" ", "")},
    "countdown": {
        "no blanks": lambda answer: answer.replace(" ", ""),
        "times": lambda answer: answer.replace("*", "×"),
    },
    "cryptarithm": {
        "lines": lambda answer: answer.replace(",", "\n"),
        "colons": lambda answer: answer.replace("=", ": "),
    },
    "futoshiki": {
        "no signs": lambda answer: "\n".join(" ".join(re.findall("[0-9]", line)) for line in answer.split("\n")[::2])
    },
    "graph_color": {"no quotes": lambda answer: answer.replace('"', "")},
    "jugs": {"lines": lambda answer: "\n".join(re.findall('"([^"]+)"', answer))},
    "knights_knaves": {"lower case": str.lower, "lines": lambda answer: answer.replace(", ", "\n")},
    "polynomial_multiplication": {"carets": lambda answer: answer.replace("**", "^").replace("*", "")},
    "quantum_lock": {
        "commas": lambda answer: answer.replace(" →", ","),
        "letters": lambda answer: answer.replace(" → ", ""),
    },
    "shortest_path": {"arrows": lambda answer: answer.replace(" ", " → "), "upper case": str.upper},
    "simple_integration": {"no constant": lambda answer: answer.removesuffix(" + C")},
    "sokoban": {"blanks": " ".join, "lower case": str.lower},
    "tower_of_hanoi": {"commas": lambda answer: answer.replace("\n", ", "), "lower case": str.lower},
    "bitwise_arithmetic": {
        "upper case": lambda answer: answer.upper().replace("0X", "0x"),
        "all upper case": str.upper,
        "no prefix": lambda answer: answer.replace("0x", ""),
        "zeros": lambda answer: answer.replace("0x", "0x00"),
    },
    "caesar_cipher": UPPER,
    "calendar_arithmetic": UPPER,
    "coin_flip": {
        "four digits": lambda answer: f"{float(answer):.4g}",
        "scientific": lambda answer: f"{float(answer):.6e}",
        "percent": lambda answer: f"{100 * float(answer):.6f}%",
        "percent in LaTeX": lambda answer: f"{100 * float(answer):.6f}\\%",
        "a fraction": lambda answer: f"{round(float(answer) * 2**15)}/{2**15}",
        "a LaTeX fraction": lambda answer: f"\\frac{{{round(float(answer) * 2**15)}}}{{{2**15}}}",
    },
    "color_cube_rotation": UPPER,
    "decimal_chain_sum": {"zeros": lambda answer: answer + ("00" if "." in answer else ".00")},
    "dice": {"a LaTeX fraction": lambda answer: "\\frac{" + answer.replace("/", "}{") + "}"},
    "family_relationships": UPPER | {"blanks": lambda answer: answer.replace("-", " ")},
    "manipulate_matrix": GRIDS,
    "modulo_grid": {
        "blanks": lambda answer: re.sub(r"(?<=[^\n])(?=[^\n])", " ", answer),
        "brackets": lambda answer: "\n".join(f"[{line}]" for line in answer.split("\n")),
        "emoji style": lambda answer: answer.replace("✅", "✅\ufe0f"),
    },
    "needle_haystack": UPPER,
    "number_filtering": LISTS | BLANKS,
    "number_format": {
        "thousands": lambda answer: f"{float(answer):,.3f}",
        "three decimals": lambda answer: f"{float(answer):.3f}",
        "scientific": lambda answer: f"{float(answer):.15e}",
    },
    "number_sorting": LISTS | BLANKS,
    "palindrome_generation": UPPER | {"blanks": " ".join, "commas": ", ".join, "hyphens": "-".join},
    "path_star": LISTS | BLANKS | {"arrows": entries(" -> "), "signs of arrows": entries(" → ")},
    "pool_matrix": GRIDS,
    "prime_factorization": {
        "stars": lambda answer: answer.replace("×", "*"),
        "letters": lambda answer: answer.replace("×", "x"),
        "dots": lambda answer: answer.replace("×", "·"),
        "LaTeX": lambda answer: answer.replace("×", "\\times"),
        "LaTeX dots": lambda answer: answer.replace("×", "\\cdot"),
        "tight": lambda answer: answer.replace(" × ", "×"),
        "commas": lambda answer: answer.replace(" × ", ", "),
        "a list": lambda answer: f"[{answer.replace(' × ', ', ')}]",
        "largest first": lambda answer: " × ".join(reversed(answer.split(" × "))),
    },
    "rearc": GRIDS,
    "rotate_matrix": GRIDS,
    "simple_equations": {"a point": lambda answer: f"{answer}.0"},
    "simple_geometry": {
        "degrees": lambda answer: f"{answer}°",
        "degrees in a word": lambda answer: f"{answer} degrees",
        "LaTeX degrees": lambda answer: f"{answer}^\\circ",
        "a point": lambda answer: f"{answer}.0",
    },
    "spell_backward": UPPER,
    "spiral_matrix": LISTS | BLANKS,
    "string_splitting": LISTS | BLANKS,
    "string_synthesis": LISTS | BLANKS,
    "word_sequence_reversal": LISTS | {"and": lambda answer: ", and ".join(answer.rsplit(", ", 1))},
    "word_sorting": LISTS | {"and": lambda answer: ", and ".join(answer.rsplit(", ", 1))},
}
"""More forms of the same answer, which only this dataset has."""

HOSTILE = {
    "nothing": "",
    "blanks": " \n ",
    "the answer among others": "ANSWER, or ANSWERx",
    "the answer twice": "ANSWER ANSWER",
    "the answer twice on lines": "ANSWER\nANSWER",
    "two answers": "ANSWER or 7q",
    "the answer and a zero byte": "ANSWER\0",
    "the answer and a zero-width space": "ANSWER\u200b",
    "the answer behind a direction mark": "\u202eANSWER",
    "the answer behind many blanks": f"x{' ' * 4000}ANSWER",
    "an open bracket": "[[ANSWER",
    "a call": "__import__('os').system('touch /tmp/marker')",
    "a comprehension": "[c for c in ().__class__.__base__.__subclasses__()]",
    "the caller's frame": "__import__('sys')._getframe(1).f_locals['task'].answer",
    "exit": "exit()",
    "a huge power": "9**9**9",
    "a huge power in LaTeX": "9^{9^{9}}",
    "a huge factorial": "factorial(10**7)",
    "a huge float": "1e9999999",
    "a tiny float": "1e-9999999",
    "not a number": "nan",
    "a signalling nan": "sNaN",
    "infinity": "Infinity",
    "nans": "[NaN, NaN]",
    "none": "None",
    "an empty object": "{}",
    "a null": "null",
    "infeasible": "infeasible",
    "both words": "Yes No",
    "a lone surrogate": "\ud800",
    "full-width digits": "１２３",  # noqa: RUF001
    "Arabic digits": "٤٢",
    "a fraction over zero": "1/0",
    "an empty box": "\\boxed{}",
    "a tautology": "P ∨ ¬P",  # noqa: RUF001
    "a template": "{{ANSWER}}{0}{answer}",
    "a format": "%s%n%x",
    "markup": "<b>ANSWER</i><answer",
    "a path": "../../etc/passwd",
    "a query": "' OR 1=1 --",
    "thousands of digits": "9" * 5000,
    "deep brackets": "[" * 2000 + "]" * 2000,
    "many variables": "∨".join("abcdefghijklmnopqrstuv"),  # noqa: RUF001
    "many negations": "¬" * 1200 + "P",
    "a script": "```python\nprint(1)\n```",
}
FLOODS = [
    *(
        "9",
        "[",
        "(",
        "{",
        "]",
        "1 ",
        "1,",
        "1\n",
        "[1]",
        "1/",
        "1.",
        "-",
        "- ",
        "−",
        "e9",
        "0x",
        "^9",
        "2^9",
        "2*",
        "2 × ",
    ),
    *(
        "a ",
        "a, ",
        "'a', ",
        '"',
        "`",
        "```\n",
        "**",
        "$",
        "\\frac{",
        "\\boxed{",
        "\\times ",
        "and ",
        "→",
        "->",
        "A# ",
        "✅",
    ),
    *("¬", "∨", "(a", "{1: ", "1e9,", "=", "= ", "x = ", "°", "%", "\u2007", "²"),  # noqa: RUF001
]
OPENINGS = ("x = ", "[", "[[", "\\frac{", "0x", "-", "2^")


def last_changed(answer: str) -> str:
    """The answer with another last letter, digit or sign."""
    place = max((place for place, sign in enumerate(answer) if sign.isalnum()), default=len(answer) - 1)
    return answer[:place] + OTHER[answer[place]] + answer[place + 1 :]


def first_changed(answer: str) -> str:
    """The answer with another first digit."""
    return re.sub("[0-9]", lambda digit: OTHER[digit[0]], answer, count=1)


OTHER = {
    **{digit: str((int(digit) + 1) % 10) for digit in "0123456789"},
    **dict(zip(ascii_letters, ascii_letters[1:] + "y", strict=True)),
    **dict(("BA", "fe", "FE", "✅❌", "❌✅")),
}
NEAR_MISSES: Mapping[str, Form] = dict.fromkeys(
    ("coin_flip", "complex_arithmetic", "decimal_arithmetic", "graph_color", "number_format"), first_changed
) | {
    "cryptarithm": lambda answer: re.sub("[0-9]", "1", answer),
    "list_functions": lambda answer: f"{answer[:-1]}, 7]",
    "jugs": lambda answer: f'{answer[:-1]}, "empty A", "empty B", "empty C"]',
    "quantum_lock": lambda answer: f"{answer} → A",
}
"""Where the last digit may differ, the first one is changed. Where another plan may be correct, it goes astray."""


def by_day_and_night(*, day: int, night: int) -> Any:
    """All datasets with a few items; at night with more of them."""
    return pytest.mark.parametrize(
        ("dataset", "count"),
        [
            *(pytest.param(dataset, day, id=dataset) for dataset in sorted(DATASETS)),
            *(
                pytest.param(dataset, night, id=f"{dataset}-many", marks=pytest.mark.slow)
                for dataset in sorted(DATASETS)
            ),
        ],
    )


@by_day_and_night(day=2, night=200)
def test_the_reference_earns_all_levels(dataset: str, count: int) -> None:
    assert [task.answer for task in items(dataset, count) if level(task, task.answer) != LEVELS] == []


@by_day_and_night(day=2, night=50)
def test_an_honest_answer_earns_all_levels_in_any_form(dataset: str, count: int) -> None:
    forms = {**FORMS, **OWN_FORMS.get(dataset, {})}
    assert len(forms) >= 20
    refused = [
        (name, form(task.answer))
        for task in items(dataset, count)
        for name, form in forms.items()
        # A period behind a reference that ends with one may be either.
        if level(task, form(task.answer)) != LEVELS and not (task.answer.endswith(".") and name.endswith("period"))
    ]
    assert refused == []


@by_day_and_night(day=2, night=50)
def test_a_hostile_answer_never_earns_all_levels(dataset: str, count: int) -> None:
    earning = [
        name
        for task in items(dataset, count)
        for name, text in HOSTILE.items()
        if text != task.answer and level(task, text.replace("ANSWER", task.answer)) == LEVELS
    ]
    assert earning == []


@by_day_and_night(day=2, night=50)
def test_an_answer_that_differs_in_one_sign_never_earns_all_levels(dataset: str, count: int) -> None:
    changed = NEAR_MISSES.get(dataset, last_changed)
    earning = [task.answer for task in items(dataset, count) if level(task, changed(task.answer)) == LEVELS]
    assert earning == []


@by_day_and_night(day=2, night=len(SEEDS))
def test_the_items_are_those_whose_hashes_nodes_compare(dataset: str, count: int) -> None:
    """After a change of a dataset or its defaults, `python -m research.datasets NAME` writes the new hashes."""
    hashes = [item_hash(task_digest(task.prompt, task.answer)) for task in items(dataset, count)]
    assert known_hashes()[dataset][:count] == hashes


@by_day_and_night(day=1, night=5)
def test_no_scorer_takes_ten_milliseconds_for_a_flood(dataset: str, count: int) -> None:
    """The scorer itself is called, since a long text is refused for most references before."""
    slow = []
    for task in items(dataset, count):
        for opening, flood in [*(("", flood) for flood in FLOODS), *itertools.product(OPENINGS, ("9", "1 ", "a"))]:
            text = (opening + flood * MAX_ANSWER)[: MAX_ANSWER - 1] + "!"
            if all(_seconds(task, text) > 0.01 for _ in range(3)):
                slow.append(opening + flood)
    assert slow == []


def _seconds(task: Task, text: str) -> float:
    start = time.process_time()
    scorer_of(task.dataset)(task, text)
    return time.process_time() - start
