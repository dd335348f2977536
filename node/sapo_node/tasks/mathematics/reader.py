r"""Reads a text as a form: an expression, a tuple or interval, a list, set, union, matrix or ratio, or a relation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from sapo_node.tasks.mathematics.field import Budget, Field, Value
from sapo_node.tasks.mathematics.parser import expression
from sapo_node.tasks.mathematics.tokens import Token, tokens
from sapo_node.tasks.mathematics.tree import CONSTANTS, MAX_SIGNS, Tree, UnreadableError, negative
from sapo_node.tasks.mathematics.vocabulary import NO_UNITS, UNIT_POWERS, UNITS

MAX_NESTING = 5
"""Lists, tuples and relations inside one another, at most."""
MAX_PARTS = 64
"""Expressions in a text, at most."""
POINTS = 3
"""Points at which two equations are compared."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression with its value. `places` counts the digits behind the point if it is one decimal, else 0."""

    tree: Tree
    value: Value
    places: int = 0
    unit: str = ""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    r"""Several forms.

    `kind` is "tuple" (with brackets; also an interval), "set", "union", "matrix" (its parts are rows), "row", "ratio",
    "list" (no brackets), "and", "or" (lists with this word alone between their parts), or "signs" (the values of one
    expression with `\pm`).
    """

    kind: str
    parts: tuple["Form", ...]
    brackets: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """Sides, and the sign between each two: = != < <=. Chains with > are turned round.

    `names` holds for each side the name that it is (`x`, `f(x)`, `(p,q)`), or "". `differences` holds for each sign the
    left side minus the right one at several points, if both are expressions with a letter.
    """

    sides: tuple["Form", ...]
    signs: tuple[str, ...]
    names: tuple[str, ...]
    differences: tuple[tuple[Value, ...], ...] = ()


Form = Expression | Group | Relation

_INFINITE = Tree("infty")
_OPEN, _CLOSE = frozenset({"(", "[", "{", "\\{", "begin"}), frozenset({")", "]", "}", "\\}", "end"})
_RELATIONS = frozenset({"=", "~", "!=", "<", "<=", ">", ">="})
_SEPARATORS = (
    frozenset({";"}),
    frozenset({",", "and", "or"}),
    _RELATIONS,
    frozenset({"in"}),
    frozenset({"cup"}),
    frozenset({":"}),
)
"""Separators of a text outside brackets, from loose to tight."""
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "array", "smallmatrix"})


def read(text: str) -> Form:
    """Return the form that a text states. Raises UnreadableError."""
    return _Reader().form(tokens(text))


class _Reader:
    def __init__(self) -> None:
        self._budget = Budget()
        self._parts = self._depth = self._signs = 0

    def form(self, given: Sequence[Token]) -> Form:
        self._depth += 1
        if self._depth > MAX_NESTING * 2:
            raise UnreadableError("too deep")
        form = self._form(given)
        self._depth -= 1
        return form

    def _form(self, given: Sequence[Token]) -> Form:
        if _encloses(given, "{"):
            return self.form(given[1:-1])
        for separators in _SEPARATORS:
            parts, found = _split(given, separators)
            if found:
                return self._separated(parts, found)
        return self._single(given)

    def _separated(self, parts: list[list[Token]], found: list[str]) -> Form:
        match found[0]:
            case "," | ";" | "and" | "or":
                # In "1, 2, and 3" nothing stands between the comma and the word.
                around = zip(["", *found], parts, [*found, ""], strict=True)
                kept = [part for ahead, part, behind in around if part or ahead != "," or behind not in {"and", "or"}]
                return Group(found[0] if set(found) in ({"and"}, {"or"}) else "list", self._all(kept))
            case "in":
                if len(parts) > 2:
                    raise UnreadableError("two signs of membership")
                members = self.form(parts[1])
                if isinstance(members, Expression):
                    raise UnreadableError("a number has no members")
                return Relation((members,), (), (_name(parts[0]),))
            case "cup":
                return Group("union", self._all(parts))
            case ":":
                return Group("ratio", self._all(parts))
        return self._relation(parts, found)

    def _all(self, parts: Sequence[Sequence[Token]]) -> tuple[Form, ...]:
        return tuple(self.form(part) for part in parts)

    def _single(self, given: Sequence[Token]) -> Form:
        kinds = [token.kind for token in given]
        if kinds == ["real"]:
            ends = self._all([[Token("-"), Token("infty")], [Token("infty")]])
            return Group("tuple", ends, "()")
        if kinds in (["empty"], ["\\{", "\\}"]):
            return Group("set", ())
        if _encloses(given, "\\{"):
            return Group("set", self._members(given[1:-1]))
        inner = given[1:-1] if kinds[:2] in (["[", "begin"], ["(", "begin"]) else given
        if _encloses(inner, "begin"):
            return self._matrix(inner)
        return self._bracketed(given) or self._signed(given)

    def _bracketed(self, given: Sequence[Token]) -> Form | None:
        """Return the tuple or interval in brackets, or what alone stands in them; None for an expression."""
        brackets = "".join(token.kind for token in (*given[:1], *given[-1:]))
        if brackets not in {"()", "[]", "[)", "(]"} or not _closes_at_end(given):
            return None
        inner = self._members(given[1:-1])
        if len(inner) > 1:
            return Group("tuple", inner, brackets)
        return None if isinstance(inner[0], Expression) else inner[0]

    def _members(self, given: Sequence[Token]) -> tuple[Form, ...]:
        return self._all(_split(given, frozenset({",", ";"}))[0])

    def _matrix(self, given: Sequence[Token]) -> Form:
        if given[0].text not in _MATRICES or given[0].text != given[-1].text:
            raise UnreadableError("no matrix")
        rows, _ = _split(given[1:-1], frozenset({"row"}))
        if not rows[-1]:
            del rows[-1]
        return Group("matrix", tuple(Group("row", self._all(_split(row, frozenset({"&"}))[0])) for row in rows))

    def _signed(self, given: Sequence[Token]) -> Form:
        r"""Return an expression, or the list of its values if it has double signs.

        Each `\pm` is free; if there is a `\mp`, one choice decides all.
        """
        places = [n for n, token in enumerate(given) if token.kind in {"pm", "mp"}]
        if not places:
            return self._expression(given)
        self._signs += len(places)
        if self._signs > MAX_SIGNS:
            raise UnreadableError("too many double signs")
        if any(given[n].kind == "mp" for n in places):
            choices: Iterator[tuple[str, ...]] = (
                tuple(sign if given[n].kind == "pm" else "+-"[sign == "+"] for n in places) for sign in "+-"
            )
        else:
            choices = product("+-", repeat=len(places))
        values = []
        for choice in choices:
            plain = list(given)
            for n, sign in zip(places, choice, strict=True):
                plain[n] = Token(sign)
            values.append(self._expression(plain))
        return Group("signs", tuple(values))

    def _relation(self, parts: list[list[Token]], signs: list[str]) -> Form:
        if "~" in signs:
            if signs[0] == "~":
                signs[0] = "="
            cut = signs.index("~") if "~" in signs else len(signs)
            parts, signs = parts[: cut + 1], signs[:cut]
        if signs[0] in {">", ">="}:
            parts, signs = parts[::-1], [_TURNED.get(sign, sign) for sign in signs[::-1]]
        sides = self._all(parts)
        differences = [self._difference(left, right) for left, right in pairwise(sides)]
        names = tuple(_name(part) for part in parts)
        return Relation(sides, tuple(signs), names, tuple(differences) if all(differences) else ())

    def _difference(self, left: Form, right: Form) -> tuple[Value, ...]:
        if not isinstance(left, Expression) or not isinstance(right, Expression):
            return ()
        tree = Tree("+", (left.tree, negative(right.tree)))
        if tree.names() <= CONSTANTS:
            return ()
        return tuple(Field(self._budget, point).value(tree) for point in range(POINTS))

    def _expression(self, given: Sequence[Token]) -> Expression:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise UnreadableError("too many parts")
        rest, units, percent = list(given), list[str](), False
        while len(rest) > 1:
            raised = _raised_unit(rest)
            if rest[-1].kind == "%" and not percent:
                percent = True
                del rest[-1]
            elif raised:
                units.append(f"{rest[-raised].text}^{rest[-1].text or rest[-2].text}")
                del rest[-raised:]
            elif rest[-1].kind == "degree" or (rest[-1].kind == "text" and rest[-1].text not in {"e", "i", "\\pi"}):
                units.append(rest[-1].text or "degree")
                del rest[-1]
            else:
                break
        tree = expression(rest)
        if "infty" in tree.names() and tree not in {_INFINITE, negative(_INFINITE)}:
            raise UnreadableError("arithmetic with infinity")
        literal = rest[-1].text if tree.symbol == "number" and len(rest) <= 2 else ""
        places = len(literal.partition(".")[2]) if "\\" not in literal else 0
        return Expression(tree, Field(self._budget).value(tree), places, _unit(units[::-1]), percent)


def _raised_unit(given: Sequence[Token]) -> int:
    """Return the number of tokens of a unit with a power, `cm^2` or `cm^{2}`, at the end; 0 if there is none."""
    kinds = [each.kind for each in given]
    for form in (["text", "^", "number"], ["text", "^", "{", "number", "}"]):
        if len(kinds) > len(form) and kinds[-len(form) :] == form:
            return len(form)
    return 0


def _unit(units: Sequence[str]) -> str:
    """Return one name for a unit, "" if it is unknown. Raises UnreadableError for words that change the number."""
    words = re.split(r"[ /.-]+", " ".join(units).strip(" ."))
    names, power = [], ""
    for word in words:
        bare, raised, exponent = word.partition("^")
        if bare.lower() in NO_UNITS or any(letter.isdigit() for letter in bare):
            raise UnreadableError("a word that changes the number")
        if bare.lower() in UNIT_POWERS:
            power = UNIT_POWERS[bare.lower()]
            continue
        names.append(UNITS.get(bare.lower(), "?") + (raised + exponent if raised else power))
        power = ""
    return "" if any(name.startswith("?") for name in names) else " ".join(names)


def _split(given: Sequence[Token], separators: frozenset[str]) -> tuple[list[list[Token]], list[str]]:
    """Return the parts between separators that stand in no bracket, and the separators."""
    parts: list[list[Token]] = [[]]
    found: list[str] = []
    depth = 0
    for n, token in enumerate(given):
        depth += (token.kind in _OPEN) - (token.kind in _CLOSE)
        kind = "cup" if token == _U and 0 < n < len(given) - 1 and given[n - 1].kind in _CLOSE else token.kind
        if depth == 0 and kind in separators:
            parts.append([])
            found.append(kind)
        else:
            parts[-1].append(token)
    return parts, found


_U = Token("letter", "U")


def _closes_at_end(given: Sequence[Token]) -> bool:
    """Return whether the bracket that the first token opens is closed by the last token."""
    depth = 0
    for n, token in enumerate(given):
        depth += (token.kind in _OPEN) - (token.kind in _CLOSE)
        if depth == 0:
            return n == len(given) - 1
    return False


_PAIRS = {"{": "}", "\\{": "\\}", "begin": "end"}


def _encloses(given: Sequence[Token], opening: str) -> bool:
    return len(given) > 2 and given[0].kind == opening and given[-1].kind == _PAIRS[opening] and _closes_at_end(given)


_WORD = r"(?:(?:[a-zA-Z]|\\[a-zA-Z]{2,10})(?:_[a-zA-Z0-9]{1,8})?'{0,3}"
_ARGUMENTS = r"\([-a-zA-Z0-9,]{1,16}\)"
_ONE_NAME = rf"{_WORD}(?:{_ARGUMENTS})?|[A-Z]{{2,5}})"
_NAME = re.compile(
    rf"{_ONE_NAME}|\|{_ONE_NAME}\||\({_ONE_NAME}(?:,{_ONE_NAME}){{0,7}}\)|{_ONE_NAME}:{_ONE_NAME}"
    rf"|frac\{{{_ONE_NAME}\}}\{{{_ONE_NAME}\}}|\u00a7"
)
_SUM_OF_VALUES = re.compile(rf"{_WORD}{_ARGUMENTS})(?:[+-]{_WORD}{_ARGUMENTS})){{1,7}}")
"""Values of functions, such as f(1)+f(2)."""


def _name(given: Sequence[Token]) -> str:
    """Return the name that the tokens spell, without arguments: `x`, `f` for `f(x)`, `AB`, `(p,q)`; else "".

    A sum of values, `f(1)+f(2)`, is a name with its arguments.
    """
    text = "".join(_NAMED.get(each.kind, each.kind) or _letter(each.text) for each in given[:32])
    if len(given) <= 32 and _SUM_OF_VALUES.fullmatch(text):
        return text
    if len(given) > 32 or not _NAME.fullmatch(text):
        return ""
    return text.partition("(")[0] or text


_NAMED = {"letter": "", "number": "", "text": "\u00a7"}


def _letter(text: str) -> str:
    return "\\" + text if len(text.partition("_")[0]) > 1 and not text[0].isdigit() else text
