# ruff: noqa: RUF001, RUF002 - the signs are the dataset's notation
"""Scoring of propositional_logic: does a conclusion follow, and did it take an inference to find it?

The dataset asks for any conclusion of its premises, so most correct answers are worthless: a premise copied, all
premises joined by ∧, a tautology. The rule here, for an answer over the premises' variables in the dataset's notation:

1. At most one of ∧ ∨ → ↔, any number of ¬. This is the size of the dataset's own conclusions, and refuses the
   premises joined together.
2. At least one conjunct (of A ∧ B, of ¬(A ∨ B), of ¬(A → B); else the whole) follows from no premise alone. Copies
   and weakenings of one premise, premises that are single letters joined by ∧, and tautologies all fail this.
3. The answer holds in every row of the truth table in which all premises hold, and there is such a row: from
   contradictory premises everything follows, so nothing is learnt.

So about half of the items have no correct answer, and the dataset's own example is often none.
"""

import re
from dataclasses import dataclass

from sapo_node.verification.tasks.task import Task

MAX_VARIABLES = 8
MAX_FORMULA = 160
"""Characters of an answer."""

_BINARY = frozenset("∧∨→↔")
_PREMISE = re.compile(r"^\.?[0-9]+\. (.+)$", re.MULTILINE)


class _NotAFormulaError(ValueError):
    """The text is not in the dataset's notation."""


@dataclass(frozen=True, slots=True)
class _Formula:
    """A variable by its letter, or an operator over its parts."""

    symbol: str
    parts: tuple["_Formula", ...] = ()


def follows_from_premises(task: Task, answer: str) -> bool:
    """Whether `answer` is a conclusion by the rule above; False for any text that is no formula."""
    if len(answer) > MAX_FORMULA or sum(answer.count(symbol) for symbol in _BINARY) > 1:
        return False
    try:
        premises = [_parse(text) for text in _PREMISE.findall(task.prompt)]
        conclusion = _parse(answer)
    except _NotAFormulaError:
        return False
    variables = sorted({letter for premise in premises for letter in _letters(premise)})
    if len(variables) > MAX_VARIABLES or not _letters(conclusion) <= set(variables):
        return False
    return _is_inferred([_rows(premise, variables) for premise in premises], conclusion, variables)


def _is_inferred(premises: list[int], conclusion: _Formula, variables: list[str]) -> bool:
    together = _all_rows(variables)
    for premise in premises:
        together &= premise
    if not together or together & ~_rows(conclusion, variables):
        return False
    conjuncts = [_rows(part, variables) for part in _conjuncts(conclusion)]
    return any(all(premise & ~conjunct for premise in premises) for conjunct in conjuncts)


def _conjuncts(formula: _Formula) -> tuple[_Formula, ...]:
    match formula:
        case _Formula("∧", parts):
            return parts
        case _Formula("¬", (_Formula("¬", (inner,)),)):
            return _conjuncts(inner)
        case _Formula("¬", (_Formula("∨", (left, right)),)):
            return _Formula("¬", (left,)), _Formula("¬", (right,))
        case _Formula("¬", (_Formula("→", (left, right)),)):
            return left, _Formula("¬", (right,))
        case _:
            return (formula,)


def _letters(formula: _Formula) -> set[str]:
    if not formula.parts:
        return {formula.symbol}
    return {letter for part in formula.parts for letter in _letters(part)}


def _all_rows(variables: list[str]) -> int:
    return (1 << (1 << len(variables))) - 1


def _rows(formula: _Formula, variables: list[str]) -> int:
    """The rows of the truth table in which `formula` holds, as a bit set; bit i of the row's number is variable i."""
    everything = _all_rows(variables)
    if not formula.parts:
        position = variables.index(formula.symbol)
        return sum(1 << row for row in range(1 << len(variables)) if row >> position & 1)
    values = [_rows(part, variables) for part in formula.parts]
    match formula.symbol:
        case "¬":
            return everything & ~values[0]
        case "∧":
            return values[0] & values[1]
        case "∨":
            return values[0] | values[1]
        case "→":
            return everything & ~values[0] | values[1]
        case _:
            return everything & ~(values[0] ^ values[1])


def _parse(text: str) -> _Formula:
    """Parse `pair = unary [operator unary]`, `unary = ¬ unary | letter | ( pair )`; blanks are free.

    The dataset puts every operator in its own parentheses, so no precedence is needed and none is guessed.
    """
    symbols = text.replace(" ", "")
    formula, end = _parse_pair(symbols, 0)
    if end != len(symbols):
        raise _NotAFormulaError
    return formula


def _parse_pair(symbols: str, start: int) -> tuple[_Formula, int]:
    left, end = _parse_unary(symbols, start)
    if end == len(symbols) or symbols[end] not in _BINARY:
        return left, end
    right, after = _parse_unary(symbols, end + 1)
    return _Formula(symbols[end], (left, right)), after


def _parse_unary(symbols: str, start: int) -> tuple[_Formula, int]:
    negations = 0
    while symbols[start + negations : start + negations + 1] == "¬":
        negations += 1
    start += negations
    symbol = symbols[start : start + 1]
    if symbol == "(":
        formula, end = _parse_pair(symbols, start + 1)
        if symbols[end : end + 1] != ")":
            raise _NotAFormulaError
        end += 1
    elif "A" <= symbol <= "Z":
        formula, end = _Formula(symbol), start + 1
    else:
        raise _NotAFormulaError
    return (_Formula("¬", (formula,)) if negations % 2 else formula), end
