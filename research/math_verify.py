"""Compares the mathematics of this project with math-verify: `pip install math-verify==0.9.0`, then

python -m research.math_verify                  the table as text
python -m research.math_verify --json           the same as JSON
python -m research.math_verify --tests FOLDER   also the answer-like pairs of a checkout of math-verify's own tests

Lists of pairs: written by hand (tests/node/tasks/math_pairs.toml), generated from templates (seed 0), and math-verify's
own regression tests. For each list the program counts the equal pairs that math-verify accepts, how many of these this
project accepts, and the different pairs that each accepts. math-verify reads a text in dollars, as it expects LaTeX.
"""

import argparse
import ast
import json
import random
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from sapo_node.tasks.mathematics import equal
from sapo_node.tasks.mathematics.tree import MAX_TEXT

LISTS = Path(__file__).parents[1] / "tests" / "node" / "tasks" / "math_pairs.toml"
GENERATED = 20
"""Numbers that each template is filled with."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A reference and an answer, and whether a person calls them equal."""

    reference: str
    answer: str
    equal: bool


def by_hand() -> Iterator[Pair]:
    """Return the pairs that the tests use."""
    for pair in tomllib.loads(LISTS.read_text("utf-8"))["pair"]:
        yield from (Pair(pair["reference"], answer, equal=True) for answer in pair["equal"])
        yield from (Pair(pair["reference"], answer, equal=False) for answer in pair["different"])


def generated() -> Iterator[Pair]:
    """Return an equal and a different pair from each template, filled with the same numbers."""
    rng = random.Random(0)  # noqa: S311 - numbers of examples
    for _ in range(GENERATED):
        a, b, c = rng.sample(range(2, 20), 3)
        square = c * c
        for reference, same, other in (
            (rf"\frac{{{a}}}{{{b}}}", f"{a * c}/{b * c}", f"{a * c + 1}/{b * c}"),
            (rf"\frac{{{a}}}{{{b}}}", f"{a / b:.7f}", f"{a / b + 1e-4:.7f}"),
            (rf"{c}\frac{{1}}{{{b}}}", rf"\frac{{{c * b + 1}}}{{{b}}}", rf"\frac{{{c}}}{{{b}}}"),
            (f"{a},{b:03},{c:03}", f"{a}{b:03}{c:03}", f"{a}{b:03}{c + 1:03}"),
            (rf"{c}\sqrt{{{a}}}", rf"\sqrt{{{square * a}}}", rf"\sqrt{{{c * a}}}"),
            (rf"\frac{{{a}}}{{\sqrt{{{b}}}}}", rf"\frac{{{a}\sqrt{{{b}}}}}{{{b}}}", rf"\frac{{\sqrt{{{b}}}}}{{{a}}}"),
            (rf"{a}\pi", rf"\frac{{{a * b}\pi}}{{{b}}}", rf"\frac{{{a}}}{{\pi}}"),
            (f"(x+{a})(x-{b})", f"x^2+{a}x-{b}x-{a * b}", f"x^2+{a}x+{b}x-{a * b}"),
            (f"{a}, {b}, {c}", rf"\{{{c}, {a}, {b}\}}", rf"\{{{c}, {a}, {b + 20}\}}"),
            (f"({a}, -{b})", rf"\left({a * c}/{c}, -{b}\right)", f"(-{b}, {a})"),
            (f"[{-a}, {b})", rf"\left[-{a}, {b}\right)", f"({-a}, {b}]"),
            (f"y = {a}x + {b}", f"{a}x - y + {b} = 0", f"{a}x + y + {b} = 0"),
            (rf"x \ge {a}", rf"{a} \le x", rf"x \le {a}"),
            (rf"{a} \pm \sqrt{{{b}}}", rf"{a}+\sqrt{{{b}}}, {a}-\sqrt{{{b}}}", rf"{a}+\sqrt{{{b}}}"),
            (rf"{a}\%", f"{a / 100}", f"{a * 100}"),
            (rf"{a}\text{{ cm}}", f"{a}", f"{a + 1}\\text{{ cm}}"),
            (rf"\begin{{pmatrix}}{a}\\{b}\end{{pmatrix}}", rf"\begin{{bmatrix}}{a} \\ {b}.0\end{{bmatrix}}", f"{a}"),
        ):
            yield Pair(reference, same, equal=True)
            yield Pair(reference, other, equal=False)


_PROSE = re.compile(r"\\[A-Za-z]+(?:\{[^{}]*\})?")
MAX_ANSWER_LIKE = 200
"""Characters of a pair's texts that count as answer-like, at most. Words and line breaks make them prose."""


def of_tests(folder: Path) -> Iterator[Pair]:
    """Return the pairs of math-verify's own tests without prose, free of boxes, with what those tests expect.

    They have a few pairs twice, with other settings. The first counts.
    """
    expected_of: dict[tuple[str, str], bool] = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Tuple) and 3 <= len(node.elts) <= 5:
                values = [each.value for each in node.elts if isinstance(each, ast.Constant)]
                match values:
                    case [str(reference), str(answer), int(expected), *_] if _answer_like(reference, answer):
                        expected_of.setdefault((_unboxed(reference), _unboxed(answer)), bool(expected))
    yield from (Pair(*texts, equal=expected) for texts, expected in expected_of.items())


def _answer_like(*texts: str) -> bool:
    plain = [_PROSE.sub(" ", _unboxed(text)) for text in texts]
    return not any(
        len(text) > MAX_ANSWER_LIKE
        or "\n" in text
        or re.search("[A-Za-z]{4,}|[A-Za-z']{3,} [A-Za-z']{2,}|[?:.] [A-Za-z]", text)
        for text in plain
    )


def _unboxed(text: str) -> str:
    """Return the text with the content of each box in its place."""
    while (begin := text.find("\\boxed{")) >= 0:
        depth, end = 1, begin + len("\\boxed{")
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[:begin] + text[begin + len("\\boxed{") : end - 1] + text[end:]
    return text.strip()


def theirs(reference: str, answer: str) -> bool:
    """Return the verdict of math-verify with its default precision."""
    return bool(verify(_parsed(reference), _parsed(answer)))


def _parsed(text: str) -> Any:
    in_dollars = text if "$" in text.replace("\\$", "") or "\\(" in text else f"${text}$"
    return parse(in_dollars, [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()])


def compare(pairs: Iterable[Pair]) -> dict[str, Any]:
    """Return counts and the CPU time of a pair, in milliseconds."""
    known = list(dict.fromkeys(pairs))
    ours, our_ms = _verdicts(equal, known)
    their_verdicts, their_ms = _verdicts(theirs, known)
    rows = list(zip(known, ours, their_verdicts, strict=True))
    return {
        "equal": sum(pair.equal for pair in known),
        "math_verify_accepts": sum(their for pair, _, their in rows if pair.equal),
        "of_these_ours": sum(our and their for pair, our, their in rows if pair.equal),
        "ours_accepts": sum(our for pair, our, _ in rows if pair.equal),
        "different": sum(not pair.equal for pair in known),
        "math_verify_accepts_wrong": sum(their for pair, _, their in rows if not pair.equal),
        "ours_accepts_wrong": sum(our for pair, our, _ in rows if not pair.equal),
        "ms_math_verify": their_ms,
        "ms_ours": our_ms,
        "missed": [[pair.reference, pair.answer] for pair, our, their in rows if pair.equal and their and not our],
    }


def _verdicts(decide: Callable[[str, str], bool], pairs: list[Pair]) -> tuple[list[bool], float]:
    began = time.process_time()
    verdicts = [decide(pair.reference, pair.answer) for pair in pairs]
    return verdicts, round((time.process_time() - began) * 1_000 / max(len(pairs), 1), 2)


def worst() -> dict[str, Any]:
    """Return the most CPU time that one hostile text of 4,096 characters takes here, in milliseconds, the best of 3."""
    took: dict[str, float] = {}
    lists = tomllib.loads(LISTS.read_text("utf-8"))["hostile"]
    for unit, head, tail in lists:
        text = head + unit * ((MAX_TEXT - len(head) - len(tail)) // len(unit)) + tail
        tries = []
        for _ in range(3):
            began = time.process_time()
            equal("-2, 1", text)
            tries.append(time.process_time() - began)
        took[unit] = min(tries)
    slowest = max(took, key=lambda unit: took[unit])
    return {"texts": len(lists), "worst_ms": round(took[slowest] * 1_000, 1), "worst_unit": slowest}


TITLES = {
    "equal": "equal pairs",
    "math_verify_accepts": "math-verify accepts",
    "of_these_ours": "of these ours",
    "ours_accepts": "ours accepts",
    "different": "different pairs",
    "math_verify_accepts_wrong": "math-verify accepts",
    "ours_accepts_wrong": "ours accepts",
    "ms_math_verify": "ms a pair, math-verify",
    "ms_ours": "ms a pair, ours",
}


def as_text(report: dict[str, Any]) -> str:
    """Return the table: a row for each count, a column for each list."""
    lists = report["lists"]
    lines = [f"{'':24}" + "".join(f"{name:>12}" for name in lists)]
    lines += [f"{title:24}" + "".join(f"{each[key]:>12}" for each in lists.values()) for key, title in TITLES.items()]
    hostile = report["hostile"]
    lines.append(f"{hostile['texts']} hostile texts: {hostile['worst_ms']} ms at most ({hostile['worst_unit']!r})")
    lines += [f"missed: {reference}   {answer}" for each in lists.values() for reference, answer in each["missed"]]
    return "\n".join(lines)


def main() -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(prog="python -m research.math_verify")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tests", type=Path, metavar="FOLDER", help="the folder `tests` of a checkout of math-verify")
    options = parser.parse_args()
    lists = {"by hand": by_hand(), "generated": generated()}
    if options.tests:
        lists["its tests"] = of_tests(options.tests)
    report = {
        "command": "python -m research.math_verify",
        "math_verify": version("math-verify"),
        "hostile": worst(),
        "lists": {name: compare(pairs) for name, pairs in lists.items()},
    }
    sys.stdout.write((json.dumps(report, indent=1) if options.json else as_text(report)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
