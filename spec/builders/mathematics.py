"""Cases of kind `mathematics`: whether an answer states the same mathematical object as a reference (ROW-8)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cases import ACCEPT, Case

Pairs = Mapping[str, tuple[str, str]]
"""Reference and answer, by the name of the case."""


def cases() -> Iterable[Case]:
    for pairs in EQUAL:
        yield from _cases(pairs, ACCEPT)
    for pairs in DIFFERENT:
        yield from _cases(pairs, "answer")
    yield from _orders()
    yield from _limits()


def _case(name: str, reference: str, answer: str, expect: str, note: str = "") -> Case:
    fields = {"reference": reference, "completion": f"<answer>{answer}</answer>"}
    return Case(name, "ROW-8", "mathematics", fields, expect, note=note)


def _cases(pairs: Pairs, expect: str) -> Iterator[Case]:
    for name, (reference, answer) in pairs.items():
        yield _case(name, reference, answer, expect)


NUMBERS: Pairs = {
    "a fraction in one line": (r"\frac{3}{4}", "3/4"),
    "a fraction of digits without braces": (r"\frac{3}{4}", r"\frac34"),
    "a fraction in another style": (r"\frac{3}{4}", r"\dfrac{6}{8}"),
    "a decimal of a fraction": (r"\frac{3}{4}", "0.75"),
    "a decimal without its whole part": (r"\frac{3}{4}", ".75"),
    "a difference of fractions": (r"\frac{3}{4}", r"1 - \frac14"),
    "a quotient with a division sign": (r"\frac{3}{4}", r"3 \div 4"),
    "a mixed number": ("2.6", r"2\frac{3}{5}"),
    "a mixed number in one line": ("2.6", "2 3/5"),
    "a negative mixed number": (r"-\frac{22}{7}", r"-3\frac{1}{7}"),
    "a minus below a line": (r"-\frac{22}{7}", r"\frac{22}{-7}"),
    "a typographical minus in mathematics": ("-17", "\u221217"),
    "thousands with commas": ("1234567", "1,234,567"),
    "thousands with braces": ("1234567", "1{,}234{,}567"),
    "thousands with thin spaces": ("1234567", r"1\,234\,567"),
    "thousands with blanks": ("1234567", "1 234 567"),
    "a power of ten": ("7425", r"7.425 \times 10^{3}"),
    "a number in scientific form in mathematics": ("7425", "7.425e3"),
    "a period at the end of mathematics": ("42", "42."),
    "a whole number with zeros behind its point": ("42", "42.000"),
    "a decimal of six places for a third": (r"\frac{1}{3}", "0.333333"),
    "a repeating decimal": (r"\frac{1}{3}", r"0.\overline{3}"),
    "per cent for a decimal": ("0.28", r"28\%"),
    "per cent without its sign": (r"28\%", "28"),
    "per cent in words": (r"28\%", "28 percent"),
    "a binomial": ("10", r"\binom{5}{2}"),
    "a factorial": ("120", "5!"),
    "an absolute value": ("3", "|-3|"),
    "a floor": ("3", r"\lfloor 3.7 \rfloor"),
    "a ceiling": ("4", r"\lceil 3.2 \rceil"),
    "a number in base five": ("204_5", "204_{5}"),
}
ROOTS: Pairs = {
    "a root of a square times a number": (r"2\sqrt{3}", r"\sqrt{12}"),
    "a root below a line": (r"2\sqrt{3}", r"\frac{6}{\sqrt{3}}"),
    "a root as a power": (r"2\sqrt{3}", "12^{1/2}"),
    "a root typed with its sign": (r"2\sqrt{3}", "2\u221a3"),
    "a root as a function": (r"2\sqrt{3}", "2*sqrt(3)"),
    "a cube root": ("-2", r"\sqrt[3]{-8}"),
    "a fourth root": (r"\sqrt[4]{48}", r"2\sqrt[4]{3}"),
    "a root of a negative number": (r"\sqrt{-6}", r"i\sqrt{6}"),
    "a product of roots of large primes": (r"\sqrt{10403}", r"\sqrt{101}\sqrt{103}"),
    "a negative power": ("0.0625", "2^{-4}"),
    "a power typed with a small digit": ("x^2", "x\u00b2"),
    "a power typed with two stars": ("x^2", "x**2"),
    "a power of a power": ("2^6", "(2^3)^2"),
    "a power with a letter": ("2^{n+1}-2", "2(2^n-1)"),
    "pi typed as a sign": (r"9\pi", "9\u03c0"),
    "pi as a word": (r"9\pi", "9*pi"),
    "a fraction of pi": (r"9\pi", r"\frac{18\pi}{2}"),
    "a power of e as a function": ("e^2", r"\exp(2)"),
    "a logarithm of a power": (r"\ln 8", r"3\ln 2"),
    "a logarithm with a base": ("3", r"\log_2 8"),
    "a common logarithm": (r"\lg 2", r"\frac{\ln 2}{\ln 10}"),
    "squares of sine and cosine": ("1", r"\sin^2 x + \cos^2 x"),
    "a product of complex numbers": ("3+4i", "(2+i)^2"),
    "a quotient of complex numbers": ("i", r"\frac{1+i}{1-i}"),
}
LETTERS: Pairs = {
    "a product multiplied out": ("(x+2)(x+3)", "x^2+5x+6"),
    "terms in another order": ("(x+2)(x+3)", "6+5x+x^{2}"),
    "a root of a square of a letter": ("x", r"\sqrt{x^2}"),
    "a greek letter": (r"\frac{\alpha}{2}", r"0.5\alpha"),
    "a letter with an index": ("2a_1", "a_{1}+a_{1}"),
    "a value behind a letter": ("5", "x = 5"),
    "a value behind a function": ("5", "f(2) = 5"),
    "a value behind a sum of values of functions": ("5", "f(1)+f(2) = 2+3 = 5"),
    "a chain of equal sides": ("5", r"x = \frac{10}{2} = 5"),
    "an equation in another arrangement": ("y = 2x+3", "2x-y+3=0"),
    "an equation times a number": ("2x-y+3=0", "6x-3y+9=0"),
    "the value of an equation alone": ("y = 2x+3", "2x+3"),
    "a letter alone": ("C", r"\text{(C)}"),
    "a word in another case": (r"\text{even}", "Even"),
}
GROUPS: Pairs = {
    "members in another order": ("-2, 1", "1, -2"),
    "members joined by and": ("-2, 1", "1 and -2"),
    "members joined by or": ("-2, 1", "x=-2 or x=1"),
    "members in braces": ("-2, 1", r"\{1,-2\}"),
    "members by a double sign": ("-2, 1", r"\frac{-1 \pm 3}{2}"),
    "a member twice": ("-2, 1", "1, -2, 1"),
    "one value twice": ("12", "12 or 12"),
    "an empty set": (r"\emptyset", r"\{\}"),
    "a pair with other brackets": ("(2,-1)", r"\left(2, -1\right)"),
    "a pair behind its names": ("(2,-1)", "(p,q)=(2,-1)"),
    "a pair of fractions": (r"(\frac12, 3)", "(0.5, 9/3)"),
    "pairs in another order": ("(1,2), (3,4)", "(3,4), (1,2)"),
    "an interval": ("[-3,5)", r"\left[-3, 5\right)"),
    "an interval as inequalities": ("[-3,5)", r"-3 \le x < 5"),
    "an interval by membership": ("[-3,5)", r"x \in [-3,5)"),
    "an interval without an end": (r"[2,\infty)", r"x \ge 2"),
    "all real numbers": (r"\mathbb{R}", r"(-\infty,\infty)"),
    "an inequality turned round": ("x > 2", "2 < x"),
    "an inequality times a number": ("x > 2", "3x > 6"),
    "a union in another order": (r"(1,2) \cup [3,4]", r"[3,4]\cup(1,2)"),
    "a ratio": ("2:3", "2 : 3"),
    "a matrix with other brackets": (
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\begin{bmatrix}1\\2.0\end{bmatrix}",
    ),
    "a matrix of two rows": (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{pmatrix} 1 & 2 \\ 3 & \frac{8}{2} \end{pmatrix}",
    ),
}
LAYOUT: Pairs = {
    "dollars around mathematics": ("42", "$42$"),
    "round brackets of mathematics": ("42", r"\(42\)"),
    "a box": ("42", r"\boxed{42}"),
    "a display style": (r"\frac12", r"\displaystyle\frac{1}{2}"),
    "spaces of several widths": ("x+1", r"x\,+\;1"),
    "a command with two backslashes": (r"-2 \le x", r"-2 \\le x"),
    "a unit beside none": (r"5\text{ cm}", "5"),
    "a unit in words": (r"5\text{ cm}", "5 centimeters"),
    "a unit with a power": (r"15\text{ cm}^2", "15 square centimeters"),
    "a sign of degrees": (r"30^\circ", "30 degrees"),
    "dollars of money": ("7425", r"\$7,425"),
    "an unknown unit": ("12", r"12\text{ apples}"),
}
EQUAL: Sequence[Pairs] = (NUMBERS, ROOTS, LETTERS, GROUPS, LAYOUT)

OTHER_NUMBERS: Pairs = {
    "the next whole number in mathematics": ("42", "43"),
    "a number with another sign": ("42", "-42"),
    "a fraction turned over": (r"\frac{3}{4}", r"\frac{4}{3}"),
    "a decimal of five places for a third": (r"\frac{1}{3}", "0.33333"),
    "a decimal of six places for a whole number": ("12", "11.999999"),
    "a decimal that is off": (r"\frac{1}{3}", "0.333335"),
    "a short decimal beside a fraction": (r"\frac{1000000}{2000001}", "0.5"),
    "a decimal beside a fraction of six places": (r"\frac{1}{64}", "0.0156251"),
    "a decimal of six places beside a small fraction": (r"\frac{1}{9999999}", "0.0000009"),
    "a decimal of a root": (r"\sqrt{2}", "1.41421356"),
    "a decimal of pi": (r"\pi", "3.14159265"),
    "a fraction for pi": (r"\pi", "22/7"),
    "nothing for a small number": ("0", "10^{-9}"),
    "a mixed number as a product": (r"2\frac{3}{5}", r"\frac{6}{5}"),
    "another per cent": (r"28\%", r"0.28\%"),
    "a number in another base": ("204_5", "204_6"),
    "the other square root": (r"\sqrt{20402}", r"-101\sqrt{2}"),
    "a sum under a root": (r"\sqrt{5}", r"\sqrt{2}+\sqrt{3}"),
    "a value of sine": (r"\frac{1}{2}", r"\sin 30^\circ"),
    "e with another sign before it": (r"1-\frac{1}{e}", r"1+\frac{1}{e}"),
    "digits of another script in mathematics": ("12", "\u0661\u0662"),
    "a number in words for mathematics": ("12", "twelve"),
    "millions": ("12", "12 million"),
    "a unit as letters": ("12", "12m"),
    "groups of two digits": ("1234", "12,34"),
    "two points": ("12", "12.0.0"),
    "two numbers side by side": ("12", "12 12"),
}
CANDIDATES: Pairs = {
    "two candidates with or": ("12", "12 or 13"),
    "two candidates with a comma": ("12", "12, 13"),
    "two candidates with a sign": ("12", r"12 \pm 1"),
    "two candidates in a set": ("12", r"\{12, 13\}"),
    "two sides that differ": ("12", "12 = 13"),
    "a chain with a wrong side": ("12", "x = 13 = 12"),
    "two letters with one value": ("12", "x = y = 12"),
    "an approximation before or": ("12", r"12 \approx 13 or 12"),
    "a member more": ("-2, 1", "-2, 1, 3"),
    "a member less": ("-2, 1", "1"),
    "a negation": ("12", "not 12"),
    "a question": ("12", "12?"),
}
NO_VALUE: Pairs = {
    "a division by zero": ("12", "12+0/0"),
    "a power of zero": ("1", "0^0"),
    "arithmetic with infinity": ("12", r"\infty-\infty+12"),
    "a root of degree zero": ("12", r"\sqrt[0]{12}"),
    "a fraction without a lower part": ("12", r"\frac{12}{}"),
    "a bracket that stays open": ("12", "(12"),
    "an unknown command": ("12", r"12\zzz"),
    "a double factorial": ("15", "5!!"),
    "a sum with bounds": ("6", r"\sum_{k=1}^{3} k"),
    "a tower of powers": ("12", "9^{9^{9^9}}"),
    "a function without an argument": ("12", r"12\sin"),
}
OTHER_GROUPS: Pairs = {
    "parts of a pair exchanged": ("(2,-1)", "(-1,2)"),
    "a set for a pair": ("(2,-1)", r"\{2,-1\}"),
    "an open interval for a closed one": ("[0,1]", "(0,1)"),
    "an inequality that includes its end": ("x > 2", r"x \ge 2"),
    "an inequality of another letter": ("x > 2", "y > 2"),
    "an inequality times a negative number": ("x > 2", "-x > -2"),
    "or for and": ("x>1 and x<3", "x>1 or x<3"),
    "an intersection for a union": (r"(1,2) \cup (3,4)", "(1,2), (3,4)"),
    "a ratio turned round": ("2:3", "3:2"),
    "a row for a column": (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
    "a cell that differs": (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
    "a vector for a number": ("12", "(12,12)"),
}
OTHER_LETTERS: Pairs = {
    "another letter": ("x", "y"),
    "a letter in another case": ("C", "c"),
    "another sign between terms": ("(x+2)(x+3)", "x^2+5x-6"),
    "an equation with another sign": ("y = 2x+3", "2x+y+3=0"),
    "an equation of another letter": ("x = 5", "y = 5"),
    "an equation of a sum": ("5", "x + 1 = 5"),
    "another unit": (r"15\text{ cm}^2", r"15\text{ m}^2"),
    "another word": (r"\text{even}", "odd"),
    "letters of a word in another order": ("listen", "silent"),
    "two words exchanged": ("a red cat", "red a cat"),
    "a product for an argument": ("sin(x) y", "sin(x y)"),
}
DIFFERENT: Sequence[Pairs] = (OTHER_NUMBERS, CANDIDATES, NO_VALUE, OTHER_GROUPS, OTHER_LETTERS)


def _orders() -> Iterator[Case]:
    """The order of reference and answer makes no difference."""
    for name in ("a decimal of six places for a third", "a power with a letter", "a mixed number"):
        reference, answer = {**NUMBERS, **ROOTS}[name]
        yield _case(f"{name} in the other order", answer, reference, ACCEPT)
    for name in ("two candidates with or", "two sides that differ"):
        reference, answer = CANDIDATES[name]
        yield _case(f"{name} in the other order", answer, reference, "answer")


def _limits() -> Iterator[Case]:
    members = [str(n) for n in range(64)]
    equal = {
        "a list of 64 members": (", ".join(members), ", ".join(members[::-1])),
        "a number of 100 digits": ("9" * 100, f"{'9' * 99}8 + 1"),
        "an exponent of a million": ("2^{1000000}", r"2 \cdot 2^{999999}"),
        "a sum of 300 ones": ("+".join(["1"] * 300), "300"),
        "80 roots": ("+".join([r"\sqrt{7}"] * 80), r"80\sqrt{7}"),
        "9 brackets around a number": ("12", f"{'(' * 9}12{')' * 9}"),
        "23 brackets in a sum": ("12", f"0+{'(' * 23}12{')' * 23}"),
        "three double signs": (r"1 \pm 2 \pm 4 \pm 8", r"1 \pm 8 \pm 4 \pm 2"),
    }
    for name, (reference, answer) in equal.items():
        yield _case(name, reference, answer, ACCEPT)
    different = {
        "a list of 65 members": (", ".join([*members, "99"]), ", ".join(["99", *members])),
        "a number of 101 digits": ("9" * 101, f"{'9' * 100}8 + 1"),
        "an exponent above a million": ("2^{1000001}", r"2 \cdot 2^{1000000}"),
        "a sum of 600 ones": ("+".join(["1"] * 600), "600"),
        "90 roots": ("+".join([r"\sqrt{7}"] * 90), r"90\sqrt{7}"),
        "10 brackets around a number": ("12", f"{'(' * 10}12{')' * 10}"),
        "24 brackets in a sum": ("12", f"0+{'(' * 24}12{')' * 24}"),
        "four double signs": (r"1 \pm 2 \pm 4 \pm 8 \pm 16", r"1 \pm 16 \pm 8 \pm 4 \pm 2"),
    }
    for name, (reference, answer) in different.items():
        yield _case(name, reference, answer, "answer")
    note = "The same text is equal even if it is no mathematics."
    yield _case("the same text that is no mathematics", r"\int_0^1 f", r"\int_0^1 f", ACCEPT, note)
    yield _case("the same text beyond a limit", "9" * 101, "9" * 101, ACCEPT, note)
