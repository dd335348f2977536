"""Cases of kind `comparison`: whether a completion of a task from a file is correct (ROW-6, ROW-7, ANS)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cases import ACCEPT, Case

CITIES = ("Paris", "London", "Rome")
MOST = "9" * 100


def cases() -> Iterable[Case]:
    yield from _texts()
    yield from _numbers()
    yield from _refused_numbers()
    yield from _choices()
    yield from _refused_choices()


@dataclass(frozen=True)
class Compared:
    """An item of a file, as far as a comparison needs it."""

    answers: str
    reference: str
    choices: Sequence[str] = ()

    def case(self, name: str, rule: str, answer: str, expect: str = ACCEPT, *, note: str = "") -> Case:
        fields = {
            "answers": self.answers,
            "reference": self.reference,
            "choices": self.choices,
            "completion": f"<answer>{answer}</answer>",
        }
        return Case(name, rule, "comparison", fields, expect, note=note)


def _texts() -> Iterator[Case]:
    reference = "A cat.\n\u00c9"
    text = Compared("exact", reference)
    for name, answer in {"a text": reference, "a text in a fence": f"```text\n{reference}\n```"}.items():
        yield text.case(f"{name} of a file", "ANS-3", answer)
    others = {"another case": "a cat.\n\u00c9", "other blanks": "A cat. \u00c9", "another form": "A cat.\nE\u0301"}
    for name, answer in others.items():
        yield text.case(f"{name} of a text of a file", "ANS-3", answer, "answer")
    note = "A tab of an answer counts as a space. So no answer equals this reference."
    yield Compared("exact", "a\tb").case("a reference with a tab", "ANS-1", "a\tb", "answer", note=note)


def _number(name: str, reference: str, answer: str, expect: str = ACCEPT, note: str = "") -> Case:
    return Compared("number", reference).case(name, "ROW-6", answer, expect, note=note)


def _numbers() -> Iterator[Case]:
    pairs = {
        "a whole number": ("72", "72"),
        "a whole number with zeros before it": ("72", "0072"),
        "a whole number with a sign": ("72", "+ 72"),
        "a decimal of a whole number": ("72", "72.00"),
        "a point behind a whole number": ("72", "72."),
        "a fraction of a whole number": ("72", "144/2"),
        "a fraction with zeros before its parts": ("72", "0144/002"),
        "dollars": ("72", "$72"),
        "dollars and a space": ("72", "$ 72"),
        "dollars with a sign": ("-72", "$-72"),
        "dollars and cents": ("1234.5", "$1,234.50"),
        "a number between dollars": ("72", "$72$"),
        "a number in bold": ("72", "**72**"),
        "a half as a decimal": ("1/2", "0.5"),
        "a half without its whole part": ("1/2", ".5"),
        "a half with many zeros": ("0.5", ".5" + "0" * 66),
        "a fraction that is not in lowest terms": ("3/4", "6/8"),
        "a negative fraction": ("-0.75", "-3/4"),
        "a typographical minus before a fraction": ("-0.75", "\u22123/4"),
        "a sign and a space before a fraction": ("-0.75", "- 3/4"),
        "a fraction of thousands": ("500", "1,000/2"),
        "groups with spaces in a decimal": ("1234567.25", "1 234 567.25"),
        "groups with braces in a number": ("1234", "1{,}234"),
        "a reference with groups": ("1,234", "1234"),
        "a reference in dollars": ("$12", "12"),
        "minus zero for zero": ("0", "-0"),
        "nothing over something": ("0", "0/5"),
        "a whole part of 100 digits": (MOST, MOST),
        "100 digits behind the point": (f"0.{MOST}", f".{MOST}"),
        "a denominator of 100 digits": (f"1/{MOST}", f"1/{MOST}"),
    }
    for name, (reference, answer) in pairs.items():
        yield _number(name, reference, answer)


def _refused_numbers() -> Iterator[Case]:
    answers = {
        "the next number": "73",
        "a number negated": "-72",
        "a number in words": "seventy-two",
        "a number with a unit": "72 cm",
        "a number in percent": "72%",
        "two numbers": "72 or 73",
        "two equal numbers": "72 72",
        "a number in scientific form": "7.2e1",
        "a number of another script": "\u0967\u0968",
        "a space between two digits": "7 2",
        "a number with two signs": "--72",
        "two dollars": "$$72",
        "dollars with a backslash": "\\$72",
        "dollars behind a sign": "-$72",
        "dollars behind a number": "72$",
        "euros": "\u20ac72",
        "a fraction of three parts": "144/2/1",
        "a fraction with a space before its line": "144 /2",
        "a fraction with a space behind its line": "144/ 2",
        "a fraction with a sign below": "144/+2",
        "a fraction with a point above": "144./2",
        "a fraction with a decimal above": "144.0/2",
        "a fraction with a decimal below": "144/2.0",
        "a fraction with groups below": "72,000/1,000",
        "a fraction without its lower part": "72/",
        "a fraction without its upper part": "/72",
        "a fraction over zero": "72/0",
        "a fraction over many zeros": "72/000",
        "a mixed number": "71 1/1",
        "a point alone": ".",
        "a sign alone": "+",
        "dollars alone": "$",
        "a decimal off by a thousandth": "72.001",
        "a decimal with a comma": "72,0",
        "groups behind the point": "72.000,000",
        "a number in other bases": "0x48",
        "an expression": "36*2",
        "a fraction in latex": "\\frac{144}{2}",
    }
    for name, answer in answers.items():
        yield _number(f"{name} for 72", "72", answer, "answer")
    pairs = {
        "101 digits with zeros before them": (MOST, f"0{MOST}"),
        "101 digits behind the point": (f"0.{MOST}", f"0.{MOST}0"),
        "a denominator of 101 digits": (f"1/{MOST}", f"1/0{MOST}"),
        "a decimal for a third": ("1/3", "0.333333333333"),
        "nothing over nothing": ("0", "0/0"),
        "a fraction without its upper part for zero": ("0", "/5"),
        "a point alone for zero": ("0", "."),
    }
    for name, (reference, answer) in pairs.items():
        yield _number(name, reference, answer, "answer")
    note = "The reference is no number."
    for name, reference in {"a word": "cat", "a number over zero": "1/0", "a number with a unit": "5 cm"}.items():
        yield _number(f"{name} as a reference", reference, reference, "answer", note)


def _choice(name: str, letter: str, answer: str, expect: str = ACCEPT, choices: Sequence[str] = CITIES) -> Case:
    return Compared("choice", letter, choices).case(name, "ROW-7", answer, expect)


def _choices() -> Iterator[Case]:
    answers = {
        "the letter": "B",
        "the small letter": "b",
        "the letter in brackets": "(B)",
        "the letter behind a bracket": "(b",
        "the letter before a bracket": "B)",
        "the letter and a period": "B.",
        "the letter and a colon": "B:",
        "the letter in bold": "**B**",
        "the letter behind a label": "The answer is (B).",
        "the text": "London",
        "the text in another case": "LONDON",
        "the text in quotes": '"London"',
        "the letter and the text": "B. London",
        "the letter before a bracket and the text": "b) london",
        "the letter in brackets and the text": "(B) London",
        "the letter and a colon and the text": "B: London.",
    }
    for name, answer in answers.items():
        yield _choice(f"{name} of a choice", "B", answer)
    ten = [f"city {n}" for n in range(10)]
    yield _choice("the last of ten letters", "J", "j", choices=ten)
    yield _choice("the text of the last of ten choices", "J", "City 9", choices=ten)
    yield _choice("a letter that is another choice", "A", "A", choices=("B", "A"))
    yield _choice("a text that is a letter beyond the choices", "A", "C", choices=("c", "d"))
    yield _choice("a text that begins with another letter", "B", "A. Smith", choices=("Jones", "A. Smith"))
    yield _choice("a text of several lines", "A", "a\n  b", choices=("a\n  b", "c"))
    yield _choice("other letters in their own case", "A", "\u00c9A", choices=("\u00c9a", "\u00e9a"))
    yield _choice("a text of 65 characters behind its letter", "A", f"A. {'x' * 65}", choices=("x" * 65, "y"))


def _refused_choices() -> Iterator[Case]:
    answers = {
        "another letter": "A",
        "a letter beyond the choices": "D",
        "another text": "Paris",
        "the text and another letter": "A. London",
        "the letter and another text": "B. Paris",
        "two letters": "A or B",
        "two letters and a comma": "B, C",
        "two letters side by side": "BC",
        "two texts": "London or Rome",
        "the letter in square brackets": "[B]",
        "the letter in two brackets": "((B))",
        "the letter and a semicolon": "B;",
        "the letter and the text with no sign between": "B London",
        "the letter and the text with no space between": "B.London",
        "the letter and the text with two spaces between": "B.  London",
        "the letter behind the text": "London (B)",
        "the letter of another script": "\u0412",
        "a wide letter": "\uff22",
        "the index": "1",
        "a part of the text": "Lon",
        "the text with a word more": "London town",
        "a long s in the text": "Pari\u017f",
    }
    for name, answer in answers.items():
        yield _choice(f"{name} for a choice", "B", answer, "answer")
    yield _choice("a letter that is the text of the correct choice", "A", "B", "answer", ("B", "A"))
    yield _choice("other letters in another case", "A", "\u00e9a", "answer", ("\u00c9a", "\u00e9a"))
    yield _choice("the kelvin sign for a k", "A", "\u212a2", "answer", ("k2", "b"))
    yield from _long_choices()


def _long_choices() -> Iterator[Case]:
    long = Compared("choice", "A", ("x" * 100, "y"))
    note = "The longest choice has 100 characters, so 464 are allowed; here they are quotes, blanks and the text."
    yield long.case("a choice in as many characters as it may have", "ROW-7", f'"{" " * 362}{"x" * 100}"', note=note)
    more = f'"{" " * 363}{"x" * 100}"'
    yield long.case("a choice in one character too many", "ROW-7", more, "answer", note=note)
    short = Compared("choice", "B", ("x" * 100, "y"))
    yield short.case("a short choice beside a long one", "ROW-7", f'"{" " * 461}y"', note=note)
    longest = Compared("choice", "A", ("x" * 4_097, "y"))
    note = "No answer has more than 4,096 characters."
    yield longest.case("a text of 4097 characters", "ROW-7", "x" * 4_097, "answer", note=note)
    yield longest.case("the letter of a text of 4097 characters", "ROW-7", "A", note=note)
