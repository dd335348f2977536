"""Cases of kind `row`: the item that a seed draws from the file of a task (ROW-1 to ROW-5)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

from cases import ACCEPT, Case
from rows import (
    FIRST_EXAMPLE,
    FIRST_HELD_OUT,
    Row,
    drawn,
    drawn_number,
    file_of,
    item_of,
    kinds,
    mark,
    source,
    swarm_of,
)
from tasks import digest
from wire import EXAMPLE, Swarm, table, uint


def _boxes(number: int) -> Sequence[Row]:
    return [(f"Box {n}: {n % 9} + 7?", str(n % 9 + 7), ()) for n in range(number)]


BOXES = _boxes(40)
QUIZ: Sequence[Row] = [(f"Which is {n}?", "B", (str(n + 1), str(n), str(n + 2))) for n in range(40)]
PLAIN = b'{"answer":"7","prompt":"p"}\n'


def cases() -> Iterable[Case]:
    yield from _files()
    yield from _rows()
    yield from _refused_rows()
    yield from _kinds()
    yield from _draws()
    yield from _choices()
    yield from _refused_choices()


def _input(swarm: Swarm, file: bytes, seed: int) -> dict[str, object]:
    return {"manifest": swarm.encoded(), "file": file, "seed": seed}


def _answers(rows: Sequence[Row]) -> str:
    return "choice" if rows[0][2] else "number"


def _passes(
    name: str, rule: str, rows: Sequence[Row], seed: int = 0, *, swarm: Swarm | None = None, note: str = ""
) -> Case:
    file = file_of(rows)
    prompt, answer = item_of(rows[drawn(rows, seed, file)], seed)
    output = {"question": prompt, "answer": answer, "digest": digest(prompt, answer)}
    swarm = swarm or swarm_of(source(file, len(rows), _answers(rows)))
    return Case(name, rule, "row", _input(swarm, file, seed), ACCEPT, output, note)


def _refused(
    name: str, rule: str, file: bytes, rows: int = len(BOXES), *, answers: str = "number", seed: int = 0, note: str = ""
) -> Case:
    swarm = swarm_of(source(file, rows, answers))
    return Case(name, rule, "row", _input(swarm, file, seed), "task", note=note)


def _refused_by_manifest(name: str, swarm: Swarm) -> Case:
    return Case(name, "ROW-1", "row", _input(swarm, file_of(BOXES), 0), "task")


def _files() -> Iterator[Case]:
    yield _passes("a file of 32 rows", "ROW-1", _boxes(32))
    yield _passes("a file of 40 rows", "ROW-1", BOXES)
    file, entry = file_of(BOXES), swarm_of(source(file_of(BOXES), 40)).tasks[0]
    note = "The name of a task from a file is a name alone."
    named = swarm_of(source(file, 40), dataset="interop_reverse")
    yield _passes("a file whose task is called like a dataset", "ROW-1", BOXES, swarm=named, note=note)
    twice = Swarm(tasks=[entry, replace(entry, dataset="pens")])
    yield _passes("one file for two tasks", "ROW-1", BOXES, swarm=twice)
    yield _refused("a file of 39 rows where 40 are named", "ROW-1", file_of(BOXES[1:]))
    yield _refused("a file of 41 rows where 40 are named", "ROW-1", file_of(_boxes(41)))
    yield _refused("an empty file", "ROW-1", b"")
    other = file.replace(b'"8"', b'"9"', 1)
    swarm = swarm_of(source(file, 40))
    yield Case("another file than that named", "ROW-1", "row", _input(swarm, other, 0), "task")
    swapped = file_of([BOXES[1], BOXES[0], *BOXES[2:]])
    yield Case("a file with two rows exchanged", "ROW-1", "row", _input(swarm, swapped, 0), "task")
    yield _refused("an empty line at the end of a file", "ROW-1", file + b"\n")
    yield _refused("an empty line that is counted", "ROW-1", file + b"\n", 41)
    yield _refused("a file without its last line feed", "ROW-1", file[:-1])
    yield _refused("a byte order mark before a file", "ROW-1", "\ufeff".encode() + file)
    yield _refused_by_manifest("a configuration beside a file", swarm_of(source(file, 40), table(("max", uint(9)))))
    same = Swarm(tasks=[entry, replace(EXAMPLE.tasks[0], dataset="boxes")])
    yield _refused_by_manifest("two tasks with the name of a file", same)


def _with(row: bytes, answers: str = "number") -> bytes:
    """A file whose last row is this line."""
    return file_of((BOXES if answers == "number" else QUIZ)[1:]) + row


def _drawing(row: Row, others: Sequence[Row] = BOXES) -> tuple[Sequence[Row], int]:
    """A file whose last row is this one, and the smallest seed that draws it."""
    rows = [*others[1:], row]
    file, kind = file_of(rows), kinds([prompt for prompt, _, _ in rows])
    assigned = kind[0]
    if len(rows) - 1 not in assigned:
        raise ValueError(f"the row of {row[0][:40]!r} is not assigned; change its prompt")
    place = assigned.index(len(rows) - 1)
    return rows, next(seed for seed in count() if drawn_number(file, seed) % len(assigned) == place)


def _passing_row(name: str, prompt: str, answer: str, note: str = "") -> Case:
    rows, seed = _drawing((prompt, answer, ()))
    return _passes(name, "ROW-2", rows, seed, note=note)


def _rows() -> Iterator[Case]:
    texts = {
        "quotes and backslashes": ('Is "\\n" a \\ or a "?', '"\\"'),
        "line feeds and tabs in a row": ("a\n\tb\n\nc", "1\t2\n3"),
        "a row with a slash": ("Half of 1/2?", "1/4"),
        "a row with a line separator": ("a\u2028b\u2029c", "7"),
        "a row with a byte order mark": ("\ufeffa", "\ufeff"),
        "a row with a no-break space at its ends": ("\u00a0a\u00a0", "7"),
        "a row in other scripts": ("\u0967 + \u4e8c = \U0001f600?", "\u00e9\u0065\u0301"),
        "a row of one character each": ("q", "0"),
        "the keys of a row inside its texts": ('{"answer":"8","prompt":"b"}', "7"),
        "a noncharacter in a row": ("a\uffff\U0010ffff", "7"),
        "a soft hyphen and a mark of direction in a row": ("a\u00ad\u200fb", "7"),
    }
    for name, (prompt, answer) in texts.items():
        yield _passing_row(name, prompt, answer)
    note = "A character of four bytes is one character."
    yield _passing_row("a prompt of 16384 characters", "b" * 16_383 + "\U0001f600", "7", note)
    yield _passing_row("an answer of 1024 characters", "An answer", "\U0001f600" * 1_023 + "b", note)


def _refused_rows() -> Iterator[Case]:
    lines = {
        "a blank behind a colon": b'{"answer": "7","prompt":"p"}\n',
        "a blank behind a comma": b'{"answer":"7", "prompt":"p"}\n',
        "a blank before a row": b' {"answer":"7","prompt":"p"}\n',
        "a blank behind a row": b'{"answer":"7","prompt":"p"} \n',
        "a carriage return behind a row": b'{"answer":"7","prompt":"p"}\r\n',
        "the prompt before the answer": b'{"prompt":"p","answer":"7"}\n',
        "a key of a row in capitals": b'{"answer":"7","Prompt":"p"}\n',
        "another key in a row": b'{"answer":"7","prompt":"p","source":"x"}\n',
        "an answer twice": b'{"answer":"7","answer":"7","prompt":"p"}\n',
        "a prompt twice": b'{"answer":"7","prompt":"o","prompt":"p"}\n',
        "a row without an answer": b'{"prompt":"p"}\n',
        "a row without a prompt": b'{"answer":"7"}\n',
        "an answer that is a number": b'{"answer":7,"prompt":"p"}\n',
        "a prompt that is null": b'{"answer":"7","prompt":null}\n',
        "a row with empty choices": b'{"answer":"7","choices":[],"prompt":"p"}\n',
        "a row with choices that are null": b'{"answer":"7","choices":null,"prompt":"p"}\n',
        "an array for a row": b'["7","p"]\n',
        "a text for a row": b'"p"\n',
        "a line that is no json": b"p\n",
        "two rows on a line": b'{"answer":"7","prompt":"p"}{"answer":"7","prompt":"q"}\n',
        "a comma at the end of a row": b'{"answer":"7","prompt":"p",}\n',
        "single quotes in a row": b"{'answer':'7','prompt':'p'}\n",
        "an empty answer": b'{"answer":"","prompt":"p"}\n',
        "an empty prompt": b'{"answer":"7","prompt":""}\n',
        "an escape of a letter": b'{"answer":"7","prompt":"\\u0070"}\n',
        "an escape of a slash": b'{"answer":"1\\/2","prompt":"p"}\n',
        "an escape of a line feed by its number": b'{"answer":"7","prompt":"a\\u000ab"}\n',
        "an escape of a line separator": b'{"answer":"7","prompt":"a\\u2028b"}\n',
        "an escape of half a pair": b'{"answer":"7","prompt":"a\\ud83db"}\n',
        "an escape of a pair": b'{"answer":"7","prompt":"a\\ud83d\\ude00b"}\n',
        "an escape of no character": b'{"answer":"7","prompt":"a\\qb"}\n',
        "an escape of a carriage return": b'{"answer":"7","prompt":"a\\rb"}\n',
        "an escape of a form feed": b'{"answer":"7","prompt":"a\\fb"}\n',
        "an escape of a null character": b'{"answer":"7","prompt":"a\\u0000b"}\n',
        "a tab that is not escaped": b'{"answer":"7","prompt":"a\tb"}\n',
        "a carriage return that is not escaped": b'{"answer":"7","prompt":"a\rb"}\n',
        "a null character in a row": b'{"answer":"7","prompt":"a\0b"}\n',
        "a delete character in a row": b'{"answer":"7","prompt":"a\x7fb"}\n',
        "a next line in a row": '{"answer":"7","prompt":"a\u0085b"}\n'.encode(),
        "a control of the second block in an answer": '{"answer":"\u009f","prompt":"p"}\n'.encode(),
        "a byte that is no character": b'{"answer":"7","prompt":"a\xffb"}\n',
        "an overlong slash": b'{"answer":"7","prompt":"a\xc0\xafb"}\n',
        "a surrogate in a row": b'{"answer":"7","prompt":"a\xed\xa0\x80b"}\n',
        "a character beyond the last": b'{"answer":"7","prompt":"a\xf4\x90\x80\x80b"}\n',
        "a row in two bytes a character": '{"answer":"7","prompt":"p"}\n'.encode("utf-16-le"),
        "a hundred thousand brackets": b"[" * 100_000 + b"\n",
    }
    for name, line in lines.items():
        yield _refused(name, "ROW-2", _with(line))
    for where, blank in {"space": " ", "tab": "\\t", "line feed": "\\n"}.items():
        for name, (before, behind) in {"before": (blank, ""), "behind": ("", blank)}.items():
            prompt = f'{{"answer":"7","prompt":"{before}p{behind}"}}\n'.encode()
            yield _refused(f"a {where} {name} a prompt", "ROW-2", _with(prompt))
    yield _refused("a space behind the answer of a row", "ROW-2", _with(b'{"answer":"7 ","prompt":"p"}\n'))
    note = "The fault is in a row that this seed does not draw."
    first = b'{"answer": "7","prompt":"p"}\n' + file_of(BOXES[1:])
    yield _refused("a fault in another row", "ROW-2", first, note=note)
    long = {"a prompt of 16385 characters": ("b" * 16_385, "7"), "an answer of 1025 characters": ("p", "7" * 1_025)}
    for name, (prompt, answer) in long.items():
        yield _refused(name, "ROW-2", _with(file_of([(prompt, answer, ())])))
    choices = b'{"answer":"A","choices":["7","8"],"prompt":"p"}\n'
    yield _refused("choices in a file of numbers", "ROW-2", _with(choices))
    yield _refused("a row without choices in a file of them", "ROW-2", _with(PLAIN, "choice"), answers="choice")


def _prompts(which: Callable[[int], bool]) -> Iterator[str]:
    """Prompts whose m is one of these."""
    return (prompt for n in count() if which(mark(prompt := f"Prompt {n}?")))


def _of(prompts: Iterable[str]) -> Sequence[Row]:
    return [(prompt, str(number), ()) for number, prompt in enumerate(prompts)]


def _assigned(m: int) -> bool:
    return m % 16 != 0


def _held_out(m: int) -> bool:
    return m % 16 == 0 and m % 64 != 0


def _example(m: int) -> bool:
    return m % 64 == 0


def _kinds() -> Iterator[Case]:
    assigned = list(islice(_prompts(_assigned), 40))
    held_out, examples = list(islice(_prompts(_held_out), 40)), list(islice(_prompts(_example), 40))
    files = {
        "none held out and no example": assigned,
        "none held out": [*assigned[1:], examples[0]],
        "no example": [*assigned[1:], held_out[0]],
        "one row of each kind beside the assigned": [*assigned[2:], held_out[0], examples[0]],
        "one assigned row": [*held_out[:20], assigned[0], *examples[:20]],
    }
    for name, prompts in files.items():
        for kind, seed in {"assigned": 5, "held out": FIRST_HELD_OUT, "example": FIRST_EXAMPLE}.items():
            yield _passes(f"{name} and a seed of {kind}", "ROW-3", _of(prompts), seed)
    lowest = min(assigned, key=mark)
    note = "The smallest m occurs twice: the first such row becomes held out and the second an example."
    for seed in (FIRST_HELD_OUT, FIRST_EXAMPLE):
        twice = _of([*assigned, lowest])
        yield _passes(f"a prompt twice and seed {seed}", "ROW-3", twice, seed, note=note)
    faults = {
        "a file of held-out rows": held_out,
        "a file of examples": examples,
        "a file of held-out rows and examples": held_out[:20] + examples[:20],
        "one row that is not held out": [*held_out[1:], assigned[0]],
        "one row that is no example": [*examples[1:], assigned[0]],
        "two rows that are no examples": [*examples[2:], assigned[0]],
    }
    for name, prompts in faults.items():
        rows = _of(prompts)
        yield _refused(name, "ROW-3", file_of(rows), len(rows))


def _draws() -> Iterator[Case]:
    for seed in (0, 1, 24, 2**31 - 1, FIRST_HELD_OUT, FIRST_HELD_OUT + 1, FIRST_EXAMPLE - 1, FIRST_EXAMPLE, 2**32 - 1):
        yield _passes(f"a row of seed {seed}", "ROW-4", BOXES, seed)
    file = file_of(BOXES)
    high = next(seed for seed in count() if drawn_number(file, seed) >= 2**63)
    low = next(seed for seed in count() if drawn_number(file, seed) < 2**60)
    yield _passes("a row by a number above 2 to the 63", "ROW-4", BOXES, high)
    yield _passes("a row by a number below 2 to the 60", "ROW-4", BOXES, low)
    yield _passes("a row of another file", "ROW-4", _boxes(41), 1)
    many = _boxes(300)
    for seed in (7, FIRST_HELD_OUT + 7, FIRST_EXAMPLE + 7):
        yield _passes(f"a row of 300 and seed {seed}", "ROW-4", many, seed)
    for seed in (2**32, 2**53 - 1):
        yield _refused(f"a row of seed {seed}", "ROW-4", file, seed=seed)


def _choices() -> Iterator[Case]:
    for seed in (0, 1, 2, 2**31 - 1):
        yield _passes(f"choices of seed {seed}", "ROW-5", QUIZ, seed)
    note = "The order is that of seed 2^31."
    for seed in (FIRST_HELD_OUT, FIRST_HELD_OUT + 1, FIRST_EXAMPLE, FIRST_EXAMPLE + 1, 2**32 - 1):
        yield _passes(f"choices of seed {seed}", "ROW-5", QUIZ, seed, note=note)
    ten = tuple(f"city {n}" for n in range(10))
    rows = {
        "two choices": ("Is it even?", "A", ("yes", "no")),
        "ten choices": ("Which of the cities?", "J", ten),
        "choices that differ in the case of other letters": ("Which is \u00e9?", "B", ("\u00c9", "\u00e9")),
        "choices that look like letters": ("Which letter?", "A", ("B", "A", "C. B")),
        "choices of several lines": ('Which "text"?', "C", ("a\n\tb", 'a "b"', "a \\ b")),
        "choices of 16384 characters with their prompt": ("Which number?", "B", ("b" * 8_000, "c" * 8_371)),
    }
    for name, row in rows.items():
        yield _passes(name, "ROW-5", *_drawing(row, QUIZ))


def _refused_choices() -> Iterator[Case]:
    eleven = ",".join(f'"{n}"' for n in range(11)).encode()
    lines = {
        "one choice": b'{"answer":"A","choices":["7"],"prompt":"p"}\n',
        "eleven choices": b'{"answer":"A","choices":[' + eleven + b'],"prompt":"p"}\n',
        "no choice": b'{"answer":"A","choices":[],"prompt":"p"}\n',
        "a choice twice": b'{"answer":"A","choices":["x","y","x"],"prompt":"p"}\n',
        "a choice twice in another case": b'{"answer":"A","choices":["x","y","X"],"prompt":"p"}\n',
        "an empty choice": b'{"answer":"A","choices":["x",""],"prompt":"p"}\n',
        "a choice with a blank at its end": b'{"answer":"A","choices":["x","y "],"prompt":"p"}\n',
        "a choice that is a number": b'{"answer":"A","choices":["x",7],"prompt":"p"}\n',
        "a choice with a control character": b'{"answer":"A","choices":["x","a\x7f"],"prompt":"p"}\n',
        "choices in an object": b'{"answer":"A","choices":{"A":"x","B":"y"},"prompt":"p"}\n',
        "choices behind the prompt": b'{"answer":"A","prompt":"p","choices":["x","y"]}\n',
        "a letter beyond the choices": b'{"answer":"C","choices":["x","y"],"prompt":"p"}\n',
        "a small letter": b'{"answer":"a","choices":["x","y"],"prompt":"p"}\n',
        "the text of a choice for its letter": b'{"answer":"x","choices":["x","y"],"prompt":"p"}\n',
        "the index of a choice": b'{"answer":0,"choices":["x","y"],"prompt":"p"}\n',
        "the index of a choice as a text": b'{"answer":"0","choices":["x","y"],"prompt":"p"}\n',
        "two letters": b'{"answer":"AB","choices":["x","y"],"prompt":"p"}\n',
        "choices of 16385 characters with their prompt": file_of([("p", "A", ("b" * 16_383, "c"))]),
    }
    for name, line in lines.items():
        yield _refused(name, "ROW-5", _with(line, "choice"), answers="choice")
