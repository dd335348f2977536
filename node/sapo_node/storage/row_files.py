"""The node's copies of the files that have the rows of tasks: `<files>/<SHA-256>.jsonl`.

`check` reads a file of an operator, and `store` keeps its rows in their normal form. `open_rows` opens the files of a
swarm: it reads each once from start to end, checks its SHA-256, and notes where each row begins. Afterwards a row costs
one read, so a file of gigabytes takes little memory.
"""

import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from string import ascii_uppercase
from types import MappingProxyType

from sapo_node.storage.files import for_owner_alone, sync, work_folder
from sapo_node.tasks import TaskError, score
from sapo_node.tasks.build import MAX_SEED
from sapo_node.tasks.rows import (
    MAX_LINE,
    Row,
    RowError,
    Split,
    normal_line,
    normal_row,
    parse_row,
    split,
    split_mark,
    task_of,
)
from sapo_node.tasks.task import Task
from sapo_protocol import AnswerKind, FileSource, LocalError, TaskSpec
from sapo_protocol.files import NoSuchFile, open_regular
from sapo_protocol.limits import MAX_FILE_ROWS, MIN_FILE_ROWS

_KEPT_ERRORS = 5
"""Errors of a file that are kept with their text."""


class RowFile:
    """The rows of one file as the items of a dataset (ROW-1 to ROW-5)."""

    def __init__(self, path: Path, dataset: str, source: FileSource) -> None:
        """Raises LocalError if the file is not the one that the source names, has a line that is no row in its normal
        form, or has no row of a kind.
        """
        self._dataset = dataset
        self._source = source
        self._file = open_regular(path, "file of rows")
        self._ends = array("Q")
        digest = hashlib.sha256()
        marks = array("Q")
        for number, line in _lines(self._file):
            digest.update(line)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(line))
            marks.append(split_mark(self._parsed(line, f"line {number} of {path}").prompt))
        if digest.hexdigest() != source.file:
            raise LocalError(f"{path} is damaged: its SHA-256 is {digest.hexdigest()}; {how_to_add(dataset, source)}")
        if len(marks) != source.rows:
            raise LocalError(f"the file of {dataset} has {len(marks)} rows, and the manifest says {source.rows}")
        self.split: Split = split(marks)

    def task(self, seed: int) -> Task:
        """Return the task that a seed draws. Raises TaskError if its row cannot be read or the seed is out of range."""
        if not 0 <= seed <= MAX_SEED:
            raise TaskError(f"seed {seed} of {self._dataset} is outside 0 to {MAX_SEED}")
        number = self.split.draw(self._source.file, seed)
        start = self._ends[number - 1] if number else 0
        try:
            line = os.pread(self._file.fileno(), self._ends[number] - start, start)
        except OSError as error:
            raise TaskError(f"cannot read row {number + 1} of {self._dataset}: {error.strerror}") from error
        return task_of(self._dataset, self._parsed(line, f"row {number + 1}"), self._source.answers, seed)

    def _parsed(self, line: bytes, where: str) -> Row:
        try:
            row = normal_row(line)
        except RowError as error:
            raise TaskError(f"{where} of {self._dataset}: {error}") from error
        if bool(row.choices) != (self._source.answers is AnswerKind.CHOICE):
            raise TaskError(f"{where} of {self._dataset} {'has' if row.choices else 'lacks'} choices")
        return row


Rows = Mapping[str, RowFile]
"""The open files of a swarm, by the dataset of the task."""

NO_ROWS: Rows = MappingProxyType({})
"""The files of a swarm without tasks from files."""


def open_rows(tasks: Iterable[TaskSpec], folder: Path | None) -> Rows:
    """Open the files of those tasks that have one; no file if there is no folder.

    Raises LocalError if one is missing or another than the source names, or if its task has a configuration or the
    dataset of another task.
    """
    if folder is None:
        return NO_ROWS
    tasks = tuple(tasks)
    named = Counter(task.dataset for task in tasks)
    rows = {}
    for task in tasks:
        if task.source is None:
            continue
        if named[task.dataset] > 1:
            raise LocalError(f"two tasks of the swarm are called {task.dataset}; a task from a file needs its own name")
        if task.config:
            raise LocalError(f"the task {task.dataset} comes from a file, so its config must be empty")
        try:
            rows[task.dataset] = RowFile(place_of(folder, task.source.file), task.dataset, task.source)
        except NoSuchFile as error:
            raise LocalError(f"this node lacks a file of the swarm; {how_to_add(task.dataset, task.source)}") from error
    return rows


def place_of(folder: Path, file: str) -> Path:
    """Return the place of the file with this SHA-256."""
    return folder / f"{file}.jsonl"


def how_to_add(dataset: str, source: FileSource) -> str:
    """Say which file a task needs, and how to add it."""
    origin = f" from {source.origin}" if source.origin else ""
    return (
        f"get the file of {dataset}{origin} ({source.rows:,} rows, SHA-256 {source.file}), and run, with the "
        f"--config or --state of the node if it has one: sapo-node task file PATH --scorer {source.answers}"
    )


@dataclass(slots=True)
class Checked:
    """What `check` found in a file."""

    rows: int = 0
    """Different prompts."""
    duplicates: int = 0
    """Lines that were left out, because an earlier line has the same prompt."""
    contradictions: int = 0
    """Those of the duplicates that have another answer."""
    marks: MutableSequence[int] = field(default_factory=lambda: array("Q"))
    """Of each row, for its split."""
    references: Counter[str] = field(default_factory=Counter)
    longest_prompt: int = 0
    """Characters, choices included."""
    longest_answer: int = 0
    errors: list[str] = field(default_factory=list)
    """The first lines that are no usable rows, with the reason."""
    bad: int = 0
    """All lines that are no usable rows."""
    by_letter: float = 0.0
    """The rows that one letter answers on average."""

    @property
    def constant(self) -> tuple[str, float]:
        """The best answer that is the same for all rows, and the share of them that it answers."""
        ((answer, count),) = self.references.most_common(1)
        return (answer, count / self.rows) if count >= self.by_letter else ("A", self.by_letter / self.rows)


def check(path: Path, answers: AnswerKind, found: Checked) -> Iterator[Row]:
    """Yield the rows of a file, one for each prompt, and note in `found` what is told of them.

    Raises LocalError if the file cannot be read, and at its end if a line was no usable row or if there are too few.
    """
    seen: dict[bytes, bytes] = {}
    with open_regular(path, "file of rows") as file:
        for number, line in _lines(file):
            if not line.strip():
                continue
            try:
                row = parse_row(line)
                _require_scorable(row, answers)
            except RowError as error:
                found.bad += 1
                if len(found.errors) < _KEPT_ERRORS:
                    found.errors.append(f"line {number}: {error}")
                continue
            prompt, reference = (hashlib.sha256(each.encode()).digest()[:16] for each in (row.prompt, _reference(row)))
            if prompt in seen:
                found.duplicates += 1
                found.contradictions += seen[prompt] != reference
                continue
            seen[prompt] = reference
            found.rows += 1
            found.marks.append(split_mark(row.prompt))
            found.references[_reference(row)] += 1
            found.longest_prompt = max(found.longest_prompt, len(row.prompt) + sum(map(len, row.choices)))
            found.longest_answer = max(found.longest_answer, len(row.answer))
            found.by_letter += 1 / len(row.choices) if row.choices else 0
            yield row
    if found.bad:
        more = f" and {found.bad - len(found.errors)} more" if found.bad > len(found.errors) else ""
        raise LocalError(f"{path} has {found.bad} lines that cannot be used: {'; '.join(found.errors)}{more}")
    if not MIN_FILE_ROWS <= found.rows <= MAX_FILE_ROWS:
        bounds = f"{MIN_FILE_ROWS} to {MAX_FILE_ROWS:,}"
        raise LocalError(f"{path} has {found.rows} rows with different prompts; give {bounds}")


def _reference(row: Row) -> str:
    return row.choices[ascii_uppercase.index(row.answer)] if row.choices else row.answer


def _require_scorable(row: Row, answers: AnswerKind) -> None:
    if bool(row.choices) != (answers is AnswerKind.CHOICE):
        raise RowError("it has choices; use --scorer choice" if row.choices else "it has no choices")
    task = task_of("", row, answers, 0)
    if not score(task, f"<answer>{task.answer}</answer>"):
        raise RowError(f"the scorer {answers} does not accept its own answer, {row.answer[:80]!r}")


def store(rows: Iterable[Row], folder: Path) -> str:
    """Keep the rows in a file of the folder. Return its SHA-256, which is its name. Raises LocalError."""
    digest = hashlib.sha256()
    try:
        with for_owner_alone():
            folder.mkdir(parents=True, exist_ok=True)
            with work_folder(folder, "rows") as work:
                new = work / "rows"
                with new.open("wb") as file:
                    for row in rows:
                        line = normal_line(row)
                        digest.update(line)
                        file.write(line)
                sync(new)
                new.replace(place_of(folder, digest.hexdigest()))
                sync(folder)
    except OSError as error:
        raise LocalError(f"cannot keep the file in {folder}: {error.strerror}") from error
    return digest.hexdigest()


def _lines(file: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers. A line that is too long comes in pieces, which are no rows."""
    return enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1)
