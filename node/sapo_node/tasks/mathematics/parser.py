r"""Reads the tokens of one expression as a tree.

The grammar, from loose to tight: sums; products, quotients and factors side by side (from left to right, so 1/2x is
x/2); signs; powers; `!`; atoms. A function without brackets takes the factors up to the next function or operator. A
whole number before a proper fraction of whole numbers is a mixed number: `2\frac{1}{2}` is 5/2.
"""

from collections.abc import Sequence
from fractions import Fraction

from sapo_node.tasks.mathematics.tokens import Token
from sapo_node.tasks.mathematics.tree import MAX_DEPTH, Tree, UnreadableError, negative, number

_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "floor": "floored", "ceil": "ceiled", "|": "|"}
_ATOMS = frozenset(
    {"number", "letter", "name", "pi", "infty", "frac", "binom", "over", "(", "[", "{", "floor", "ceil", "|"}
)
_ROUNDING = {"floor": "floor", "ceil": "ceil", "|": "abs"}
_END = Token("")


def expression(tokens: Sequence[Token]) -> Tree:
    """Return the tree of an expression. Raises UnreadableError if the tokens are none, or it is too deep."""
    parser = _Parser(tokens)
    tree = parser.sum()
    if parser.kind:
        raise UnreadableError("something stands behind the expression")
    return tree


def decimal(text: str) -> Fraction:
    r"""Return the value of digits with or without a point, or with a repeating end `\overline{3}`."""
    head, _, repeated = text.partition("\\overline")
    whole, _, places = head.strip(" ").partition(".")
    value = Fraction(int(whole or "0")) + (Fraction(int(places), 10 ** len(places)) if places else 0)
    if repeated:
        digits = repeated.strip(" {}")
        value += Fraction(int(digits), (10 ** len(digits) - 1) * 10 ** len(places))
    return value


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._place, self._depth, self._bars = tokens, 0, 0, 0

    @property
    def kind(self) -> str:
        """Kind of the next token; empty at the end."""
        return self._ahead(0).kind

    def _ahead(self, steps: int) -> Token:
        place = self._place + steps
        return self._tokens[place] if place < len(self._tokens) else _END

    def _take(self, kind: str = "") -> Token:
        token = self._ahead(0)
        if not token.kind or (kind and token.kind != kind):
            raise UnreadableError("a sign is missing")
        self._place += 1
        return token

    def sum(self) -> Tree:
        terms = [self._product()]
        while self.kind in {"+", "-"}:
            minus = self._take().kind == "-"
            term = self._product()
            terms.append(negative(term) if minus else term)
        return terms[0] if len(terms) == 1 else Tree("+", tuple(terms))

    def _product(self) -> Tree:
        factors = [self._signed()]
        while True:
            if self.kind in {"*", "/"}:
                divides = self._take().kind == "/"
                factor = self._signed()
                factors.append(Tree("/", (factor,)) if divides else factor)
            elif self._begins_factor() and (self.kind != "number" or self._tokens[self._place - 1].kind == "!"):
                factors.append(self._power())
            else:
                return factors[0] if len(factors) == 1 else Tree("*", tuple(factors))

    def _begins_factor(self) -> bool:
        if self.kind == "|":
            return self._bars == 0
        if self.kind == "text":
            return self._ahead(0).text in {"e", "i", "\\pi"}
        return self.kind in _ATOMS

    def _signed(self) -> Tree:
        minus = False
        while self.kind in {"+", "-"}:
            minus ^= self._take().kind == "-"
        tree = self._power()
        return negative(tree) if minus else tree

    def _power(self) -> Tree:
        base = self._atom()
        while self.kind == "!":
            self._take()
            base = Tree("factorial", (base,))
            if self.kind == "!":
                raise UnreadableError("a double factorial")
        if self.kind != "^":
            return base
        self._take()
        return _raised(base, self._exponent())

    def _exponent(self) -> Tree:
        self._deeper()
        tree = self._signed()
        self._depth -= 1
        return tree

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableError("too deep")

    def _atom(self) -> Tree:
        self._deeper()
        tree = self._of(self._take())
        self._depth -= 1
        while self.kind == "degree":
            self._take()
        return tree

    def _of(self, token: Token) -> Tree:
        match token.kind:
            case "number":
                return self._number(token)
            case "letter" | "text":
                return _named(token)
            case "pi" | "infty":
                return Tree(token.kind)
            case "name":
                return self._function(token.text)
            case "frac" | "binom" | "over":
                return self._command(token.kind)
        if token.kind not in _CLOSING:
            raise UnreadableError("no expression begins so")
        return self._bracketed(token.kind)

    def _command(self, kind: str) -> Tree:
        given = self._argument()
        if kind == "over":
            return Tree("over", (given,))
        second = self._argument()
        return Tree("binom", (given, second)) if kind == "binom" else Tree("*", (given, Tree("/", (second,))))

    def _bracketed(self, opening: str) -> Tree:
        self._bars += opening == "|"
        inner = self._until(_CLOSING[opening])
        self._bars -= opening == "|"
        return Tree(_ROUNDING[opening], (inner,)) if opening in _ROUNDING else inner

    def _until(self, closing: str) -> Tree:
        bars, self._bars = self._bars, self._bars if closing == "|" else 0
        tree = self.sum()
        self._bars = bars
        self._take(closing)
        return tree

    def _number(self, token: Token) -> Tree:
        value = decimal(token.text)
        fraction = self._proper_fraction() if token.text.isdigit() else None
        if fraction is not None:
            return number(value + fraction)
        if self.kind == "_":
            self._take()
            return Tree("base", (number(value), number(len(token.text)), self._argument()))
        return number(value)

    def _proper_fraction(self) -> Fraction | None:
        r"""Take `\frac{a}{b}`, `\frac ab` or `a/b` behind a whole number and return it, if 0 < a < b are whole."""
        ahead = [self._ahead(n) for n in range(7)]
        kinds = "".join(each.kind if each.kind != "number" else "n" for each in ahead)
        for form, above, below in (("frac{n}{n}", 2, 5), ("n/n", 0, 2)):
            length = {2: 7, 0: 3}[above]
            if not kinds.startswith(form) or not (ahead[above].text.isdigit() and ahead[below].text.isdigit()):
                continue
            if 0 < int(ahead[above].text) < int(ahead[below].text):
                self._place += length
                return Fraction(int(ahead[above].text), int(ahead[below].text))
        if kinds.startswith("fracn") and ahead[1].text.isdigit() and len(ahead[1].text) == 2:
            above_digit, below_digit = map(int, ahead[1].text)
            if 0 < above_digit < below_digit:
                self._place += 2
                return Fraction(above_digit, below_digit)
        return None

    def _argument(self) -> Tree:
        r"""Take the argument of a command: braces, a letter, a command, or a single digit (`\frac12`)."""
        if self.kind == "{":
            self._take()
            return self._until("}")
        if self.kind == "number" and self._ahead(0).text.isdigit():
            digits = self._ahead(0).text
            if len(digits) > 1:
                rest = Token("number", digits[1:])
                self._tokens = [*self._tokens[: self._place], rest, *self._tokens[self._place + 1 :]]
            else:
                self._take()
            return number(int(digits[0]))
        return self._atom()

    def _function(self, name: str) -> Tree:
        if name == "sqrt":
            return self._root()
        base: Tree | None = None
        exponent: Tree | None = None
        while self.kind in {"_", "^"}:
            if self._take().kind == "_":
                base = self._argument()
            else:
                exponent = self._exponent()
        if exponent is not None and exponent.number == -1:
            name, exponent = "arc" + name, None
        given = self._operand()
        if name == "exp":
            tree = Tree("^", (Tree("e"), given))
        elif name == "lg" or (name == "log" and base is not None):
            tree = Tree("log", (base or number(10), given))
        else:
            tree = Tree("ln" if name == "log" else name, (given,))
        return tree if exponent is None else _raised(tree, exponent)

    def _root(self) -> Tree:
        degree = number(2)
        if self.kind == "[":
            self._take()
            degree = self._until("]")
        inner = self._until_closed() if self.kind in {"(", "{"} else self._whole_or_atom()
        return _raised(inner, Tree("/", (degree,)))

    def _until_closed(self) -> Tree:
        return self._until(_CLOSING[self._take().kind])

    def _whole_or_atom(self) -> Tree:
        return number(decimal(self._take().text)) if self.kind == "number" else self._atom()

    def _operand(self) -> Tree:
        if self.kind in {"(", "{", "["}:
            return self._until_closed()
        factors: list[Tree] = []
        minus = self.kind == "-"
        if minus:
            self._take()
        while self._begins_factor() and self.kind not in {"name", "("} and not (factors and self.kind == "number"):
            factors.append(self._power())
        if not factors:
            if self.kind != "name":
                raise UnreadableError("a function without an argument")
            factors.append(self._power())
        tree = factors[0] if len(factors) == 1 else Tree("*", tuple(factors))
        return negative(tree) if minus else tree


def _named(token: Token) -> Tree:
    if token.text == "\\pi":
        return Tree("pi")
    if token.kind == "text" and not (len(token.text) == 1 and token.text.isalpha()):
        raise UnreadableError("words are no expression")
    return Tree(token.text)


def _raised(base: Tree, exponent: Tree) -> Tree:
    return Tree("^", (base, exponent))
