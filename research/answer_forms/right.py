"""Writes the correct answer of an item in the forms in which people and models write it.

The list has forms that the scorers refuse, so that the share accepted is no matter of course.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from sapo_node.tasks import Task

Form = tuple[str, str]
"""The name of a form, and the text between the answer tags or, if it has tags of its own, the whole completion."""

WRAPPERS: Mapping[str, str] = MappingProxyType(
    {
        "as it is": "X",
        "blanks around it": "\n  X \n",
        "CR LF around it": "\r\nX\r\n",
        "fence": "```\nX\n```",
        "fence with a language": "```text\nX\n```",
        "fence on one line": "```X```",
        "backticks": "`X`",
        "bold": "**X**",
        "bold italics": "***X***",
        "italics": "*X*",
        "underscores": "_X_",
        "bold underscores": "__X__",
        "dollars": "$X$",
        "blanks within dollars": "$ X $",
        "two dollars": "$$X$$",
        "round LaTeX brackets": r"\(X\)",
        "square LaTeX brackets": "\\[\nX\n\\]",
        "boxed": r"\boxed{X}",
        "text": r"\text{X}",
        "quotes": '"X"',
        "single quotes": "'X'",
        "typographic quotes": "\u201cX\u201d",
        "typographic single quotes": "\u2018X\u2019",
        "equals": "= X",
        "the answer is": "The answer is X",
        "the answer is, colon": "The answer is: X",
        "answer, colon": "Answer: X",
        "final answer, colon": "Final answer: X",
        "the final answer is, period": "the final answer is X.",
        "period": "X.",
        "boxed in dollars": r"$\boxed{X}$",
        "text in a box": r"\boxed{\text{X}}",
        "bold in dollars": "**$X$**",
        "sentence with dollars": "The answer is $X$.",
        "sentence with a box": r"The answer is \(\boxed{X}\).",
        "sentence in bold": "**The answer is X.**",
        "quotes before a period": '"X".',
        "bold label": "**Answer:** X",
        "bold mathematics": r"$\mathbf{X}$",
        "a variable": "x = X",
    }
)
"""X stands for the value."""

TAGS: Mapping[str, str] = MappingProxyType(
    {
        "capital tags": "<ANSWER>X</ANSWER>",
        "a blank in the tags": "<answer >X</answer >",
        "nested tags": "<answer><answer>X</answer></answer>",
        "two closing tags": "<answer>X</answer></answer>",
        "text behind the answer": "<answer>X</answer> so it is X</answer>",
    }
)
"""Whole completions."""


def right_forms(task: Task) -> Iterator[Form]:
    """Yield correct answers by the name of their form: each spelling bare, and the value in each wrapper."""
    value = correct_value(task)
    for name, wrapper in WRAPPERS.items():
        yield name, f"<answer>{wrapper.replace('X', value)}</answer>"
    for name, completion in TAGS.items():
        yield name, completion.replace("X", value)
    for name, spelling in _spellings(task.dataset, value):
        if spelling != value:
            yield name, f"<answer>{spelling}</answer>"
            yield f"{name}, boxed in dollars", rf"<answer>$\boxed{{{spelling}}}$</answer>"


def correct_value(task: Task) -> str:
    """Return a correct answer without decoration."""
    if task.dataset == "fraction_simplification":
        return "/".join(re.findall("[0-9]+", task.answer))
    return task.answer


def _spellings(dataset: str, value: str) -> Iterator[Form]:
    match dataset:
        case "fraction_simplification":
            yield from _fractions(value)
        case "arc_1d":
            yield from _rows(value)
        case "binary_matrix":
            yield from _matrices(value)
        case "propositional_logic":
            yield "without outer brackets", value.strip("()")
            yield "LaTeX signs", value.replace("\u2228", r"\lor").replace("\u00ac", r"\neg ")
            yield "two negations", f"\u00ac\u00ac{value}"
        case "base_conversion":
            yield "capitals", value.upper()
        case "spell_backward":
            yield "capitals", value.upper()
            yield "small letters", value.lower()
        case _ if re.fullmatch(r"-?[0-9]+", value) and dataset != "bf":
            yield from _integers(value)
        case "decimal_arithmetic":
            yield from _decimals(value)
        case "calendar_arithmetic":
            yield "capitals", value.upper()
            yield "small letters", value.lower()


def _integers(value: str) -> Iterator[Form]:
    yield from _signs(value)
    for name, sign in {"commas": ",", "blanks between groups": " ", "commas in braces": "{,}"}.items():
        yield name, f"{int(value):,}".replace(",", sign)
    for name, rest in {"point": ".", "one zero": ".0", "three zeros": ".000"}.items():
        yield name, value + rest
    yield "leading zero", re.sub("([0-9])", r"0\1", value, count=1)
    yield "unit", f"{value} units"


def _signs(value: str) -> Iterator[Form]:
    if value.startswith("-"):
        yield "typographic minus", value.replace("-", "\u2212")
        yield "blank behind the minus", value.replace("-", "- ")
    else:
        yield "plus", f"+{value}"
        yield "blank behind the plus", f"+ {value}"


def _decimals(value: str) -> Iterator[Form]:
    yield from _signs(value)
    yield "no leading zero", re.sub(r"^(-?)0\.", r"\1.", value)
    if "." in value:
        yield "more zeros", f"{value}00"
        whole, _, rest = value.partition(".")
        yield "commas", f"{int(whole):,}.{rest}" if "E" not in value and whole != "-0" else value


def _fractions(value: str) -> Iterator[Form]:
    above, below = value.split("/")
    for command in ("frac", "dfrac", "tfrac"):
        yield command, rf"\{command}{{{above}}}{{{below}}}"
    yield "blanks around the slash", f"{above} / {below}"
    yield "plus", f"+{value}"
    yield "equation", f"{3 * int(above)}/{3 * int(below)} = {value}"
    yield "LaTeX equation", rf"\frac{{{2 * int(above)}}}{{{2 * int(below)}}} = \frac{{{above}}}{{{below}}}"
    if len(above) == len(below) == 1:
        yield "frac without braces", rf"\frac{above}{below}"
    if below == "1":
        yield "whole number", above


def _rows(value: str) -> Iterator[Form]:
    cells = value.split()
    for name, row in {
        "commas": ", ".join(cells),
        "commas alone": ",".join(cells),
        "two blanks": "  ".join(cells),
    }.items():
        yield name, row
        yield f"{name}, brackets", f"[{row}]"
    yield "blanks in brackets", f"[{value}]"
    yield "round brackets", f"({', '.join(cells)})"


def _matrices(value: str) -> Iterator[Form]:
    rows = [line.split() for line in value.split("\n")]
    yield "tabs", "\n".join("\t".join(row) for row in rows)
    yield "CR LF", value.replace("\n", "\r\n")
    yield "blank lines", value.replace("\n", "\n\n")
    yield "commas", "\n".join(", ".join(row) for row in rows)
    yield "brackets", "[" + ", ".join(f"[{', '.join(row)}]" for row in rows) + "]"
    yield "brackets on lines", "[" + ",\n ".join(f"[{', '.join(row)}]" for row in rows) + "]"
    yield "rows in brackets", "\n".join(f"[{' '.join(row)}]" for row in rows)
    yield "LaTeX", r"\begin{pmatrix}" + r" \\ ".join(" & ".join(row) for row in rows) + r"\end{pmatrix}"
