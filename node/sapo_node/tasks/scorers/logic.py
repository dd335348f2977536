# ruff: noqa: RUF001, RUF002 - the signs are the dataset's notation
"""Scores propositional_logic: a correct answer follows from the premises, and finding it took an inference.

The dataset asks for any conclusion of its premises. Most conclusions take no inference: a copied premise, all premises
joined by ∧, a tautology. An answer uses the premises' variables in the dataset's notation. It is correct if:

1. It has at most one of ∧ ∨ → ↔, and any number of ¬. The dataset's own conclusions have this size, and joined premises
   do not.
2. At least one conjunct (of A ∧ B, of ¬(A ∨ B), of ¬(A → B), of A ↔ B, of ¬(A ↔ B); else the whole) follows from no
   single premise. This refuses copies and weakenings of one premise, premises of one letter joined by ∧ or ↔, and
   tautologies.
3. It is true in every row of the truth table in which all premises are true, and there is such a row. From
   contradictory premises everything follows.

The dataset's own example is often incorrect, and about two in three items have no correct answer. So `correct_answer`
finds the reference answer of an item, or that it has none.
"""

import re
from dataclasses import dataclass

from sapo_node.tasks.task import Task

MAX_VARIABLES = 8
MAX_FORMULA = 160
"""Characters of an answer, at most."""

_BINARY = frozenset("∧∨→↔")
_PREMISE = re.compile(r"^\.?[0-9]+\. (.+)$", re.MULTILINE)


class _NotAFormulaError(ValueError):
    """The text is not in the dataset's notation."""


@dataclass(frozen=True, slots=True)
class _Formula:
    """A variable (`symbol` is its letter), or an operator and its operands."""

    symbol: str
    parts: tuple["_Formula", ...] = ()


def follows_from_premises(task: Task, answer: str) -> bool:
    """Return whether the answer is a conclusion of the premises by the rules above.

    A text without a formula is incorrect.
    """
    if len(answer) > MAX_FORMULA or sum(answer.count(symbol) for symbol in _BINARY) > 1:
        return False
    try:
        premises, variables = _premises(task.prompt)
        conclusion = _parse(answer)
    except _NotAFormulaError:
        return False
    if not _letters(conclusion) <= set(variables):
        return False
    return _is_inferred(premises, [_rows(part, variables) for part in _conjuncts(conclusion)], variables)


def correct_answer(prompt: str) -> str | None:
    """Return an answer to a prompt that is correct by the rules above; None if there is none.

    If an answer is correct, so is one of its conjuncts alone. A conjunct is a letter, its negation, or two of these
    joined by ∨, in other words.
    """
    try:
        premises, variables = _premises(prompt)
    except _NotAFormulaError:
        return None
    literals = [formula for letter in map(_Formula, variables) for formula in (letter, _not(letter))]
    rows = [_rows(literal, variables) for literal in literals]
    for number, one in enumerate(rows):
        for other_number, other in enumerate(rows[: number + 1]):
            if _is_inferred(premises, [one | other], variables):
                said = [_literal(literals[each]) for each in sorted({number, other_number})]
                return said[0] if len(said) == 1 else f"({said[0]} ∨ {said[1]})"
    return None


def _literal(formula: _Formula) -> str:
    return f"¬{formula.parts[0].symbol}" if formula.parts else formula.symbol


def _premises(prompt: str) -> tuple[list[int], list[str]]:
    """Return the truth table of each premise, and their variables. Raises _NotAFormulaError for too many variables."""
    formulas = [_parse(text) for text in _PREMISE.findall(prompt)]
    variables = sorted({letter for formula in formulas for letter in _letters(formula)})
    if len(variables) > MAX_VARIABLES:
        raise _NotAFormulaError
    return [_rows(formula, variables) for formula in formulas], variables


def _is_inferred(premises: list[int], conjuncts: list[int], variables: list[str]) -> bool:
    together = _all_rows(variables)
    for premise in premises:
        together &= premise
    if not together or any(together & ~conjunct for conjunct in conjuncts):
        return False
    return any(all(premise & ~conjunct for premise in premises) for conjunct in conjuncts)


def _conjuncts(formula: _Formula) -> tuple[_Formula, ...]:
    match formula:
        case _Formula("∧", parts):
            return parts
        case _Formula("↔", (left, right)):
            return _Formula("→", (left, right)), _Formula("→", (right, left))
        case _Formula("¬", (inner,)):
            return _conjuncts_of_not(inner)
        case _:
            return (formula,)


def _conjuncts_of_not(formula: _Formula) -> tuple[_Formula, ...]:
    """Return the conjuncts of the negation of `formula`."""
    match formula:
        case _Formula("¬", (inner,)):
            return _conjuncts(inner)
        case _Formula("∨", (left, right)):
            return _not(left), _not(right)
        case _Formula("→", (left, right)):
            return left, _not(right)
        case _Formula("↔", (left, right)):
            return _Formula("∨", (left, right)), _Formula("→", (left, _not(right)))
        case _:
            return (_not(formula),)


def _not(formula: _Formula) -> _Formula:
    return _Formula("¬", (formula,))


def _letters(formula: _Formula) -> set[str]:
    if not formula.parts:
        return {formula.symbol}
    return {letter for part in formula.parts for letter in _letters(part)}


def _all_rows(variables: list[str]) -> int:
    return (1 << (1 << len(variables))) - 1


def _rows(formula: _Formula, variables: list[str]) -> int:
    """Return the rows of the truth table in which `formula` is true, as a bit set.

    Bit i of a row's number is the value of variable i.
    """
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
    """Parse `pair = unary [operator unary]`, `unary = ¬ unary | letter | ( pair )`. Blanks are ignored.

    The dataset puts every operator in its own parentheses, so the grammar has no precedence.
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
