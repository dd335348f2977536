"""Writes incorrect answers: values near the correct one, texts that hold several, and look-alikes of it."""

import random
import re
from collections.abc import Iterator
from decimal import Decimal

from research.answer_forms.right import WRAPPERS, correct_value
from sapo_node.tasks import Task

_DIGITS = str.maketrans("0123456789", "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19")
_ARABIC = str.maketrans("0123456789", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669")

JOINED = (
    *("R or W", "W or R", "R, W", "W, R", "R and W", "R\nW", "W\nR", "R; W", "R / W", "W = R", "R = W", "R, not W"),
    *("**R** or **W**", "**W** or **R**", '"W" or "R"', '"W", "R"', r"\boxed{R} \boxed{W}", r"$W$, $R$", "`W` `R`"),
    *(
        "The answer is W. The answer is R",
        "The answer is W or R.",
        "Answer: W, Answer: R",
        "= W = R",
        "W. R.",
        "[W] [R]",
    ),
    *("```W\nR```", "```text\nW\nR\n```", "(R) (W)", "either R or W", r"\text{W} \text{R}"),
)
"""R stands for the correct value, W for a wrong one."""

COMPLETIONS = (
    *("R", "The answer is R.", "<answer>R", "R</answer>", "<answer>R</answer> no, <answer>W</answer>"),
    *(
        "<answer>R<answer>W</answer></answer>",
        "<answer></answer>",
        "<result>R</result>",
        "<answer>W</answer>R</answer>",
    ),
    *("<answer>W</answer> or <answer>R", "</answer>R<answer>", "<answer>R</answer><ANSWER>W</ANSWER>"),
)

SPOILT = (
    *("R?", "not R", "R..", "R\u200b", "\u200bR", "R\u00a0", "\u00a0R", "R x", "xR", "-R-", "R R", "RR", '"R', "*R"),
    *("$R", r"\boxed{R", "<b>R</b>R", "R\0", "\u202eR", "```R", "R``", "= = = = = R"),
)
"""Not an answer, or more than one."""


def wrong_answers(task: Task, rng: random.Random, count: int) -> Iterator[str]:
    """Yield completions without a correct answer: `count` with a wrong value in random wrappers, then the others."""
    right = correct_value(task)
    meaning = _meaning(task.dataset, right)
    values = sorted({each for each in _values(task, right, rng) if each and _meaning(task.dataset, each) != meaning})
    wrappers = list(WRAPPERS.values())
    for number in range(count):
        text = values[number % len(values)]
        for _ in range(rng.choice((0, 1, 1, 2, 3, 4))):
            text = rng.choice(wrappers).replace("X", text)
        yield f"<answer>{text}</answer>"
    # In an equation 2/4 = 1/2 both sides are the same fraction, and 00 is 0.
    others = [each for each in values if task.dataset != "fraction_simplification" or each != _doubled(right)]
    patterns = [each for each in (*JOINED, *SPOILT) if each != "RR" or right != "0"]
    for pattern in rng.sample(patterns, 12):
        yield f"<answer>{_filled(pattern, right, rng.choice(others))}</answer>"
    for pattern in rng.sample(COMPLETIONS, 3):
        yield _filled(pattern, right, rng.choice(others))


def _filled(pattern: str, right: str, wrong: str) -> str:
    return re.sub("(?<![ANSE])[RW](?![ANSE])", lambda match: right if match[0] == "R" else wrong, pattern)


def _values(task: Task, right: str, rng: random.Random) -> Iterator[str]:
    """Yield values near the correct one. Some may be correct after all."""
    match task.dataset:
        case "fraction_simplification":
            above, below = map(int, right.split("/"))
            yield from (_doubled(right), f"{below}/{above}", f"{above + 1}/{below}", f"{above}/{below + 1}")
            yield from (f"-{right}", f"{above}/0", f"{above}", f"{above}{below}", rf"\frac{{{below}}}{{{above}}}")
            yield from (f"{above}/{below}/1", f"{above}.0/{below + 2}", rf"\frac{{{above}}}{{{below}", f"1/{right}")
        case "arc_1d" | "binary_matrix":
            yield from _cells(right, rng)
        case "propositional_logic":
            premises = re.findall(r"^\.?[0-9]+\. (.+)$", task.prompt, re.MULTILINE)
            yield from (f"\u00ac({right})", "P \u2228 \u00acP", *premises, "Q \u2192 Q")
            yield " \u2227 ".join(f"({premise})" for premise in premises)
            yield from (f"{right} \u2227", f"{right} {right}", "Z", right.lower(), f"{right} \u2227 \u00ac{right}")
        case "decimal_arithmetic":
            yield from _decimals(task, right)
        case _ if re.fullmatch(r"-?[0-9]+", right) and task.dataset not in {"bf", "base_conversion"}:
            yield from _integers(int(right))
        case "calendar_arithmetic":
            yield from ("Yes", "No", "Monday", "Thursday", "True", right[:-1], right[::-1], f"{right}s", "0", "1")
        case _:
            yield from _words(task.dataset, right, rng)


def _doubled(fraction: str) -> str:
    above, below = map(int, fraction.split("/"))
    return f"{2 * above}/{2 * below}"


def _integers(right: int) -> Iterator[str]:
    text = str(right)
    yield from (str(right + 1), str(right - 1), str(right + 10), str(-right), f"{text}0", text[:-1], text[::-1])
    yield from (
        f"{text}.5",
        f"{text}.01",
        f"{text}e1",
        f"0x{text}",
        f"{abs(right)},{abs(right):03}",
        str(right + 2**64),
    )
    yield from (text.translate(_DIGITS), text.translate(_ARABIC), "\u00a0".join(text), "\u200b".join(f"{text}1"))
    yield from (",".join(text) if len(text) > 1 else f"{text},{text}", f"{text},00", f"{right + 1:,}", f"--{text}")
    yield from (f"{text}%", f"{text}/2", f"\u2212{text}" if right else "-", f"{text} 000", f"{text}\u00b2", f"1_{text}")


def _decimals(task: Task, right: str) -> Iterator[str]:
    exact = Decimal(right)
    (digits,) = re.findall("maximum of ([0-9]+) significant", task.prompt)
    unit = Decimal(1).scaleb(exact.adjusted() - int(digits) + 1)
    yield from (f"{exact + step * unit:f}" for step in (2, -2, 3, -3, 10, -10, 1000, -1000))
    yield from (f"{-exact:f}", f"{exact * 10:f}", f"{exact / 10:f}", right.replace(".", ""), right.replace(".", ","))
    yield from (
        right.translate(_DIGITS),
        f"{right}e1",
        f"{right}.0",
        f"{right}%",
        "nan",
        "inf",
        "1e999",
        f"{exact:.1f}",
    )


def _cells(right: str, rng: random.Random) -> Iterator[str]:
    rows = [line.split() for line in right.split("\n")]
    row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    changed = [list(each) for each in rows]
    changed[row][column] = str((int(changed[row][column]) + 1) % 10)
    for each in (changed, rows[:-1], [*rows, rows[0]], [line[1:] for line in rows], [line[::-1] for line in rows]):
        yield _matrix(each)
    yield _matrix([list(column) for column in zip(*rows, strict=True)] if len(rows) > 1 else [[*rows[0], "0"]])
    yield _matrix(changed).replace(" ", ", ")
    yield "[" + ", ".join(f"[{', '.join(line)}]" for line in changed) + "]"
    yield from (right.replace(" ", ""), right.translate(_DIGITS), right.replace(" ", "\u00a0"), f"[{right}], [{right}]")
    yield right.replace(" ", "").replace("\n", ",")


def _matrix(rows: list[list[str]]) -> str:
    return "\n".join(" ".join(row) for row in rows)


def _words(dataset: str, right: str, rng: random.Random) -> Iterator[str]:
    place = rng.randrange(len(right))
    yield from (right[:place] + right[place + 1 :], right[:place] + right[place] + right[place:], right[::-1])
    yield from (
        right[:place] + ("0" if right[place] != "0" else "1") + right[place + 1 :],
        f"{right}s",
        " ".join(right),
    )
    yield from (right.translate(_DIGITS), "\u200b".join(f"{right}a"), f"0x{right}", f"-{right}", f"{right}\u0301")
    if dataset in {"bf", "interop_reverse"}:
        yield right.upper()


def _meaning(dataset: str, text: str) -> object:
    """Return the value that a generated text writes, by rules apart from the scorers'."""
    match dataset:
        case "arc_1d" | "binary_matrix":
            lines = re.findall(r"\[([^\[\]]*)\]", text) or text.split("\n")
            return [line.replace(",", " ").split() for line in lines]
        case "spell_backward" | "base_conversion":
            return text.lower()
        case "propositional_logic" | "bf" | "interop_reverse":
            return text
        case "fraction_simplification":
            return text.removesuffix("/1")
        case _:
            return Decimal(text) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?", text) else text
