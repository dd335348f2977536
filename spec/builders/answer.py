"""Cases of kind `answer`: whether a completion is correct (ANS-1 to ANS-3)."""

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
        "two closings": "<answer>14</answer></answer>",
        "a last answer that is empty": "<answer>14</answer><answer></answer>",
        "capital letters in the tags": "<ANSWER>14</ANSWER>",
        "a blank in the opening": "<answer >14</answer>",
        "a blank in the closing": "<answer>14</answer >",
        "an attribute in the opening": '<answer id="1">14</answer>',
        "two openings and no closing": "<answer>14<answer>",
        "tags in another shape of letters": "\uff1canswer\uff1e14\uff1c/answer\uff1e",
        "another tag": "<result>14</result>",
    }
    for name, completion in completions.items():
        yield _refused(name, "ANS-1", SUM, completion)
    note = "What follows the last opening before the last closing is 14</answer>, which is no number."
    yield _refused("a closing after the whole answer", "ANS-1", SUM, "<answer>14</answer> or 15</answer>", note)


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
    for name, number in {"minus zero": "-0", "plus zero": "+0", "many zeros": "000"}.items():
        yield _passes(name, "ANS-2", ZERO, _tagged(number))
    yield _passes("the largest of three", "ANS-2", LARGEST, _tagged("70"))


def _refused_numbers() -> Iterator[Case]:
    numbers = {
        "another number": "15",
        "the number negated": "-14",
        "a minus sign alone": "-",
        "two signs": "++14",
        "two minus signs": "--14",
        "a blank after the sign": "+ 14",
        "a blank between digits": "1 4",
        "a line feed between digits": "1\n4",
        "a typographical minus": "\u221214",
        "a decimal point": "14.0",
        "a decimal point and no more": "14.",
        "an exponent": "14e0",
        "hexadecimal": "0xe",
        "binary": "0b1110",
        "an underscore between digits": "1_4",
        "a comma between digits": "1,4",
        "a sum": "5 + 9",
        "an equation": "5 + 9 = 14",
        "a full stop after the number": "14 .",
        "a unit": "14 apples",
        "two numbers": "14 14",
        "a number in words": "fourteen",
        "fullwidth digits": "\uff11\uff14",
        "arabic-indic digits": "\u0661\u0664",
        "mathematical digits": "\U0001d7cf\U0001d7d2",
        "a superscript": "1\u2074",
        "a roman numeral": "\u216a",
        "markup around the number": "<b>14</b>",
        "dollar signs around the number": "$14$",
    }
    for name, number in numbers.items():
        yield _refused(name, "ANS-2", SUM, _tagged(number))
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
        "quotes around the word": '"ok"',
        "a full stop after the word": "ok.",
        "fullwidth letters": "\uff4f\uff4b",
        "a kelvin sign": "o\u212a",
        "a cyrillic letter": "\u043ek",
        "a zero width space in the word": "o\u200bk",
        "a combining accent": "o\u0301k",
    }
    for name, answer in texts.items():
        yield _refused(name, "ANS-3", WORD, _tagged(answer))
