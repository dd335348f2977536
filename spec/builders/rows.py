"""A file of rows and its tasks (ROW-1 to ROW-5), written from the text."""

from collections.abc import Sequence

from wire import EXAMPLE, Swarm, TaskEntry, array, sha256, sorted_table, table, text, uint

Row = tuple[str, str, Sequence[str]]
"""Prompt, answer and choices."""

ASSIGNED, HELD_OUT, EXAMPLES = range(3)
FIRST_HELD_OUT, FIRST_EXAMPLE = 2**31, 3 * 2**30
LETTERS = "ABCDEFGHIJ"


def quoted(content: str) -> str:
    """A text of a row."""
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        content = content.replace(character, written)
    return f'"{content}"'


def line(row: Row) -> bytes:
    prompt, answer, choices = row
    listed = f'"choices":[{",".join(map(quoted, choices))}],' if choices else ""
    return f'{{"answer":{quoted(answer)},{listed}"prompt":{quoted(prompt)}}}\n'.encode()


def file_of(rows: Sequence[Row]) -> bytes:
    return b"".join(map(line, rows))


def source(file: bytes, rows: int, answers: str = "number") -> bytes:
    values = {"file": text(sha256(file).hex()), "rows": uint(rows), "origin": text(""), "answers": text(answers)}
    return sorted_table(values)


def swarm_of(source_: bytes, config: bytes = table(), dataset: str = "boxes") -> Swarm:
    """A swarm of one task, which has this source."""
    return Swarm(tasks=[TaskEntry(dataset, config, 1, source=source_), EXAMPLE.tasks[0]])


def mark(prompt: str) -> int:
    return int.from_bytes(sha256(array([text("sapo/split/2"), text(prompt)]))[:8], "big")


def kinds(prompts: Sequence[str]) -> tuple[list[int], list[int], list[int]]:
    """The numbers of the assigned rows, the held-out rows and the examples."""
    marks = [mark(prompt) for prompt in prompts]
    of_rows = [EXAMPLES if m % 64 == 0 else HELD_OUT if m % 16 == 0 else ASSIGNED for m in marks]
    for kind in (HELD_OUT, EXAMPLES):
        if kind not in of_rows:
            smallest = min((m, number) for number, m in enumerate(marks) if of_rows[number] == ASSIGNED)
            of_rows[smallest[1]] = kind
    assigned, held_out, examples = (
        [number for number, each in enumerate(of_rows) if each == kind] for kind in (ASSIGNED, HELD_OUT, EXAMPLES)
    )
    return assigned, held_out, examples


def drawn_number(file: bytes, seed: int) -> int:
    return int.from_bytes(sha256(array([text("sapo/row/2"), text(sha256(file).hex()), uint(seed)]))[:8], "big")


def drawn(rows: Sequence[Row], seed: int, file: bytes) -> int:
    """The number of the row that a seed draws."""
    kind = kinds([prompt for prompt, _, _ in rows])[(seed >= FIRST_HELD_OUT) + (seed >= FIRST_EXAMPLE)]
    return kind[drawn_number(file, seed) % len(kind)]


def item_of(row: Row, seed: int) -> tuple[str, str]:
    """Prompt and answer of an item."""
    prompt, answer, choices = row
    if not choices:
        return prompt, answer
    before = [text("sapo/row/2"), text(prompt), uint(min(seed, 2**31))]
    order = sorted(choices, key=lambda choice: sha256(array([*before, text(choice)])))
    correct = choices[LETTERS.index(answer)]
    lines = [f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, order, strict=False)]
    return "".join([prompt, *lines]), LETTERS[order.index(correct)]
