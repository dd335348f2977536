"""Files of word problems for tests."""

import json
from pathlib import Path

from sapo_node.storage.row_files import Checked, check, store
from sapo_protocol import AnswerKind, FileSource, TaskSpec


def sums(count: int) -> list[dict[str, str]]:
    """Rows of different problems; the same numbers, so the same answers, come back after 50."""
    return [
        {"prompt": f"Box {number} has {number % 50} pens and gets 7. How many?", "answer": str(number % 50 + 7)}
        for number in range(count)
    ]


def quiz(count: int) -> list[dict[str, object]]:
    """Rows with choices, of which the first is correct."""
    return [
        {"prompt": f"Which is {number}?", "choices": [str(number), str(number + 1), str(number + 2)], "answer": 0}
        for number in range(count)
    ]


def written(path: Path, rows: object) -> Path:
    """Write rows as JSON Lines."""
    assert isinstance(rows, list)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def task_from(rows: object, folder: Path, answers: AnswerKind = AnswerKind.NUMBER, name: str = "boxes") -> TaskSpec:
    """Store rows in a folder of files, and return the task of a swarm that has them."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Checked()
    file = store(check(written(folder / "rows.txt", rows), answers, found), folder)
    return TaskSpec(name, {}, 1, source=FileSource(file, found.rows, answers, "https://example.org/boxes.jsonl"))
