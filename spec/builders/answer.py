"""Cases of kind `answer`: whether a completion is correct (ANS-1 to ANS-4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cases import ACCEPT, Case
from tasks import Config, encoded_config, item


@dataclass(frozen=True)
class Task:
    """One item: a dataset, its configuration and a seed."""

    dataset: str
    config: Config
    seed: int

    @property
    def answer(self) -> str:
        return item(self.dataset, self.config, self.seed)[1]

    def input(self, completion: str) -> Mapping[str, object]:
        return {
            "dataset": self.dataset,
            "config": encoded_config(self.config),
            "seed": self.seed,
            "completion": completion,
        }


def _first_task(dataset: str, config: Config, answer: str) -> Task:
    """The item with this answer that has the smallest seed."""
    return next(task for seed in range(10_000) if (task := Task(dataset, config, seed)).answer == answer)


SUM = _first_task("interop_sum", {"max": 9}, "14")
ZERO = _first_task("interop_sum", {"max": 9}, "0")
WORD = _first_task("interop_reverse", {"letters": 2}, "ok")
LARGEST = _first_task("interop_largest", {"max": 99, "count": 3}, "70")
LONG = Task("interop_sum", {"max": 1_000_000}, 7)


def cases() -> Iterable[Case]:
    yield from _tags()
    yield from _refused_tags()
    yield from _blanks()
    yield from _lengths()
    yield from _numbers()
    yield from _refused_numbers()
    yield from _texts()
    yield from _wrappers()
    yield from _refused_wrappers()


def _passes(name: str, rule: str, task: Task, completion: str, note: str = "") -> Case:
    return Case(name, rule, "answer", task.input(completion), ACCEPT, note=note)


def _refused(name: str, rule: str, task: Task, completion: str, note: str = "") -> Case:
    return Case(name, rule, "answer", task.input(completion), "answer", note=note)


def _tagged(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _tags() -> Iterator[Case]:
    completions = {
        "an answer alone": "<answer>14</answer>",
        "text around the answer": "5 + 9 is <answer>14</answer>, or <b>15</b>?\n",
        "the last answer counts": "<answer>15</answer> no, <answer>14</answer>",
        "the inner of two nested openings": "<answer>is <answer>14</answer>",
        "an opening after the last answer": "<answer>14</answer> or <answer>15",
        "a closing before the first opening": "</answer><answer>14</answer>",
        "an answer after special tokens": "<|endoftext|><answer>14</answer>",
        "a null character outside the answer": "\0<answer>14</answer>\0",
        "two closings": "<answer>14</answer></answer>",
        "two pairs of tags one in the other": "<answer><answer>14</answer></answer>",
        "a closing after the whole answer": "<answer>14</answer> or 15</answer>",
        "capital letters in the tags": "<ANSWER>14</Answer>",
        "a blank in the opening": "<answer >14</answer>",
        "a blank in the closing": "<answer>14</answer >",
        "each kind of blank in the tags": "<answer \t>14</answer\r\n>",
    }
    for name, completion in completions.items():
        yield _passes(name, "ANS-1", SUM, completion)


def _refused_tags() -> Iterator[Case]:
    completions = {
        "no completion": "",
        "a number alone": "14",
        "a number in a sentence": "It is: 14.",
        "an opening alone": "<answer>14.",
        "a closing alone": "It is: 14</answer>",
        "a closing before the opening": "</answer>14<answer>",
        "the first of two answers": "<answer>14</answer> no, <answer>15</answer>",
        "the outer of two nested openings": "<answer>14<answer>15</answer>",
        "a last answer that is empty": "<answer>14</answer><answer></answer>",
        "a later answer in other tags": "<answer>14</answer><ANSWER>15</ANSWER >",
        "a blank before the name of a tag": "< answer>14</ answer>",
        "a no-break space in a tag": "<answer\u00a0>14</answer\u00a0>",
        "a long s in a tag": "<an\u017fwer>14</an\u017fwer>",
        "an attribute in the opening": '<answer id="1">14</answer>',
        "two openings and no closing": "<answer>14<answer>",
        "tags in another shape of letters": "\uff1canswer\uff1e14\uff1c/answer\uff1e",
        "another tag": "<result>14</result>",
    }
    for name, completion in completions.items():
        yield _refused(name, "ANS-1", SUM, completion)


def _blanks() -> Iterator[Case]:
    yield _passes("each kind of blank at both ends", "ANS-1", SUM, _tagged(" \t\r\n14\n\r\t "))
    yield _passes("a blank at the ends of a text", "ANS-1", WORD, _tagged(" ok "))
    many = " " * 1_000
    note = "The answer is measured without them."
    yield _passes("a thousand blanks at both ends", "ANS-1", SUM, _tagged(f"{many}14{many}"), note)
    note = "Blanks are space, tab, line feed and carriage return, whatever a library strips."
    others = {
        "a no-break space": "\u00a0",
        "an ideographic space": "\u3000",
        "an em space": "\u2003",
        "a vertical tab": "\v",
        "a form feed": "\f",
        "a next line": "\u0085",
        "a line separator": "\u2028",
        "a byte order mark": "\ufeff",
        "a zero width space": "\u200b",
        "a null character": "\0",
        "a unit separator": "\x1f",
    }
    for name, blank in others.items():
        yield _refused(f"{name} before a number", "ANS-1", SUM, _tagged(f"{blank}14"), note)
    yield _refused("a no-break space after a text", "ANS-1", WORD, _tagged("ok\u00a0"), note)


def _lengths() -> Iterator[Case]:
    yield _refused("an empty answer", "ANS-1", SUM, _tagged(""))
    yield _refused("an answer of blanks", "ANS-1", SUM, _tagged(" \n\t"))
    note = "The reference has 2 characters, so 72 are allowed; here they are zeros and the number."
    yield _passes("an answer as long as it may be", "ANS-1", SUM, _tagged("14".zfill(72)), note)
    yield _refused("an answer one character too long", "ANS-1", SUM, _tagged("14".zfill(73)), note)
    longest = 4 * len(LONG.answer) + 64
    yield _passes("a long number as long as it may be", "ANS-1", LONG, _tagged(LONG.answer.zfill(longest)))
    yield _refused("a long number one character too long", "ANS-1", LONG, _tagged(LONG.answer.zfill(longest + 1)))


def _numbers() -> Iterator[Case]:
    numbers = {"leading zeros": "0014", "a plus sign": "+14", "a plus sign and leading zeros": "+0014"}
    for name, number in numbers.items():
        yield _passes(name, "ANS-2", SUM, _tagged(number))
    numbers = {
        "a blank after the sign": "+ 14",
        "a decimal point": "14.0",
        "many zeros behind the point": "14.000000",
        "a decimal point and no more": "14.",
    }
    for name, number in numbers.items():
        yield _passes(name, "ANS-2", SUM, _tagged(number))
    zeros = {"minus zero": "-0", "plus zero": "+0", "many zeros": "000", "a typographical minus": "\u22120"}
    for name, number in zeros.items():
        yield _passes(name, "ANS-2", ZERO, _tagged(number))
    groups = f"{int(LONG.answer):,}"
    separators = {"commas": ",", "blanks": " ", "commas in braces": "{,}"}
    for name, separator in separators.items():
        yield _passes(f"{name} between groups", "ANS-2", LONG, _tagged(groups.replace(",", separator)))
    yield _passes("commas between groups and a point", "ANS-2", LONG, _tagged(f"+ {groups}.00"))
    yield _passes("the largest of three", "ANS-2", LARGEST, _tagged("70"))


def _refused_numbers() -> Iterator[Case]:
    numbers = {
        "another number": "15",
        "the number negated": "-14",
        "a minus sign alone": "-",
        "two signs": "++14",
        "two minus signs": "--14",
        "two blanks after the sign": "+  14",
        "a blank between digits": "1 4",
        "a line feed between digits": "1\n4",
        "a typographical minus before another number": "\u221214",
        "a digit behind the point": "14.01",
        "two points": "14..",
        "zero and a comma and the number": "0,014",
        "an exponent": "14e0",
        "hexadecimal": "0xe",
        "binary": "0b1110",
        "an underscore between digits": "1_4",
        "a comma between digits": "1,4",
        "a sum": "5 + 9",
        "an equation": "5 + 9 = 14",
        "a unit": "14 apples",
        "two numbers": "14 14",
        "a number in words": "fourteen",
        "fullwidth digits": "\uff11\uff14",
        "arabic-indic digits": "\u0661\u0664",
        "mathematical digits": "\U0001d7cf\U0001d7d2",
        "a superscript": "1\u2074",
        "a roman numeral": "\u216a",
        "markup around the number": "<b>14</b>",
    }
    for name, number in numbers.items():
        yield _refused(name, "ANS-2", SUM, _tagged(number))
    groups = f"{int(LONG.answer):,}"
    wrong = {
        "groups behind two kinds of separators": groups.replace(",", " ", 1),
        "a group of four digits": groups[:-4].replace(",", "") + groups[-4:],
        "a group of two digits": groups[:-1],
        "a tab between groups": groups.replace(",", "\t", 1),
        "a no-break space between groups": groups.replace(",", "\u00a0"),
    }
    for name, number in wrong.items():
        yield _refused(name, "ANS-1" if "\u00a0" in number else "ANS-2", LONG, _tagged(number))
    note = "In floating point they are equal."
    near = f"{LONG.answer}.0000000000000000000001"
    yield _refused("a number a little larger", "ANS-2", LONG, _tagged(near), note)
    wrapped = str(int(LONG.answer) + 2**64)
    yield _refused("a number 2 to the 64 larger", "ANS-2", LONG, _tagged(wrapped), "In 64 bits they are equal.")
    yield _refused("a sign for zero", "ANS-2", ZERO, _tagged("-"))
    yield _refused("another of the numbers asked about", "ANS-2", LARGEST, _tagged(_smaller(LARGEST)))


def _smaller(task: Task) -> str:
    """A number of the prompt that is not the largest."""
    prompt = item(task.dataset, task.config, task.seed)[0]
    return prompt.removeprefix("Which is the largest of ").split(",")[0]


def _texts() -> Iterator[Case]:
    yield _passes("the word backwards", "ANS-3", WORD, _tagged("ok"))
    texts = {
        "the word forwards": "ko",
        "capital letters": "OK",
        "one capital letter": "Ok",
        "a letter more": "okk",
        "a letter less": "o",
        "a blank between letters": "o k",
        "a quote before the word": '"ok',
        "two full stops after the word": "ok..",
        "fullwidth letters": "\uff4f\uff4b",
        "a kelvin sign": "o\u212a",
        "a cyrillic letter": "\u043ek",
        "a zero width space in the word": "o\u200bk",
        "a combining accent": "o\u0301k",
    }
    for name, answer in texts.items():
        yield _refused(name, "ANS-3", WORD, _tagged(answer))


WRAPPED = {
    "an equals sign": "= X",
    "the answer is": "The answer is X",
    "the answer is and a colon": "the Final Answer is: X",
    "the answer is and a line feed": "the correct answer is\nX",
    "a label and a colon": "Answer: X",
    "a bold label and a colon": "**Answer:** X",
    "a bold label before a colon": "**Final answer**: X",
    "a bold label with a verb": "**The answer is:** X",
    "a bold label and a bold value": "**Answer:** **X**",
    "a fence": "```\nX\n```",
    "a fence with a language": "```text\nX\n```",
    "a fence with a language in capitals": "``` JSON \r\nX\r\n```",
    "a fence on one line": "```X```",
    "backticks": "`X`",
    "two asterisks": "**X**",
    "two underscores": "__X__",
    "an asterisk": "*X*",
    "an underscore": "_X_",
    "three asterisks": "***X***",
    "two dollar signs": "$$X$$",
    "a dollar sign": "$ X $",
    "round latex brackets": "\\(X\\)",
    "square latex brackets": "\\[\nX\n\\]",
    "a box": "\\boxed{X}",
    "latex text": "\\text{X}",
    "bold latex text": "\\textbf{X}",
    "bold latex mathematics": "\\mathbf{X}",
    "roman latex mathematics": "\\mathrm{X}",
    "quotes": '"X"',
    "single quotes": "'X'",
    "typographic quotes": "\u201cX\u201d",
    "typographic single quotes": "\u2018X\u2019",
    "low and high quotes": "\u201eX\u201c",
    "angle quotes": "\u00abX\u00bb",
    "a period": "X.",
    "a period after a blank": "X .",
    "quotes before a period": '"X".',
    "a period before quotes": '"X."',
    "four wrappers": "**The answer is $X$.**",
    "four equal wrappers": '""""X""""',
}
"""X stands for the value."""


def _wrappers() -> Iterator[Case]:
    for name, wrapper in WRAPPED.items():
        yield _passes(f"{name} around a number", "ANS-4", SUM, _tagged(wrapper.replace("X", "14")))
        yield _passes(f"{name} around a text", "ANS-4", WORD, _tagged(wrapper.replace("X", "ok")))


def _refused_wrappers() -> Iterator[Case]:
    answers = {
        "five wrappers": "**The answer is $`X`$.**",
        "a wrong value in a wrapper": "**Y**",
        "two values in bold": "**X** or **Y**",
        "two values in quotes": '"X" or "Y"',
        "two boxes": "\\boxed{X} \\boxed{Y}",
        "two values behind a label": "The answer is X or Y",
        "a value before the equals sign": "Y = X",
        "a fence that is not closed": "```\nX",
        "a fence with another word": "```Y\nX\n```",
        "a language and no fence": "text\nX",
        "a fence with a language and no line feed": "```textX```",
        "a language with a kelvin sign": "```mar\u212adown\nX\n```",
        "a label without a verb": "answer X",
        "a label and no blank": "The answer isX",
        "another label": "The result is X",
        "a label with a long s": "An\u017fwer: X",
        "quotes that do not match": "\"X'",
        "a dollar sign before the value": "$X",
        "a box without its end": "\\boxed{X",
        "capital letters in a command": "\\BOXED{X}",
        "round brackets": "(X)",
        "three periods": "X...",
        "a zero width space in a wrapper": "**X\u200b**",
    }
    for name, answer in answers.items():
        for task, wrong, kind in ((SUM, "15", "number"), (WORD, "ko", "text")):
            filled = answer.replace("X", task.answer).replace("Y", wrong)
            yield _refused(f"{name} for a {kind}", "ANS-4", task, _tagged(filled))
    yield _refused("a pair of quotes and nothing in it", "ANS-4", WORD, _tagged('""'))
    yield _refused("five equal wrappers", "ANS-4", WORD, _tagged('"""""ok"""""'))
