"""A file of rows is kept by its SHA-256, opened by the nodes of its swarm, and refused if it is another."""

import hashlib
import tracemalloc
from dataclasses import replace

import pytest

from row_parts import quiz, sums, task_from, written
from sapo_node.storage.row_files import Checked, check, open_rows, place_of, store
from sapo_node.tasks.task import FIRST_EXAMPLE_SEED, TaskError
from sapo_protocol import ASSIGNED_SEEDS, AnswerKind, LocalError, TaskSpec


@pytest.fixture
def boxes(tmp_path):
    return task_from(sums(200), tmp_path)


def test_the_same_rows_in_another_form_are_the_same_file(tmp_path):
    rows = sums(100)
    other = [{"source": "x", "answer": f" {row['answer']}\n", "prompt": row["prompt"]} for row in rows]
    assert task_from(rows, tmp_path / "one").source.file == task_from(other, tmp_path / "other").source.file


def test_a_stored_file_is_stored_again_as_the_same(boxes, tmp_path):
    found = Checked()
    stored = place_of(tmp_path, boxes.source.file)
    assert store(check(stored, AnswerKind.NUMBER, found), tmp_path / "again") == boxes.source.file


def test_only_the_owner_can_read_a_stored_file(boxes, tmp_path):
    assert place_of(tmp_path, boxes.source.file).stat().st_mode & 0o777 == 0o600


def test_equal_prompts_are_one_row_and_their_number_is_told(tmp_path):
    rows = sums(100)
    found = Checked()
    list(check(written(tmp_path / "rows", [*rows, rows[3], {**rows[4], "answer": "0"}]), AnswerKind.NUMBER, found))
    assert (found.rows, found.duplicates, found.contradictions) == (100, 2, 1)


def test_rows_are_the_tasks_of_their_seeds(boxes, tmp_path):
    answers = {row["prompt"]: row["answer"] for row in sums(200)}
    rows = open_rows([boxes], tmp_path)["boxes"]
    kinds = [
        {rows.task(first + seed).prompt for seed in range(1_000)} for first in (0, ASSIGNED_SEEDS, FIRST_EXAMPLE_SEED)
    ]
    assert [len(prompts) for prompts in kinds] == [
        len(kind) for kind in (rows.split.assigned, rows.split.held_out, rows.split.examples)
    ]
    assert set().union(*kinds) == set(answers)
    task = rows.task(1)
    assert task.answer == answers[task.prompt]


def test_a_missing_file_is_named_with_its_origin_and_the_command(boxes, tmp_path):
    with pytest.raises(LocalError) as refused:
        open_rows([boxes], tmp_path / "empty")
    said = str(refused.value)
    assert "get the file of boxes from https://example.org/boxes.jsonl (200 rows, SHA-256 " in said
    assert boxes.source.file in said
    assert said.endswith("if it has one: sapo-node task file PATH --scorer number")


def test_an_origin_cannot_colour_a_terminal(boxes, tmp_path):
    evil = replace(boxes, source=replace(boxes.source, origin="\x1b[31mred\n"))
    with pytest.raises(LocalError) as refused:
        open_rows([evil], tmp_path / "empty")
    assert str(refused.value).isprintable()


def change_a_digit(path):
    path.write_bytes(path.read_bytes().replace(b'"7"', b'"8"', 1))


def leave_out_a_line(path):
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])


def spoil_a_line(path):
    path.write_bytes(path.read_bytes().replace(b"{", b"[", 1))


@pytest.mark.parametrize("spoil", [change_a_digit, leave_out_a_line, spoil_a_line])
def test_a_damaged_copy_is_refused(boxes, tmp_path, spoil):
    spoil(place_of(tmp_path, boxes.source.file))
    with pytest.raises(LocalError):
        open_rows([boxes], tmp_path)


def test_a_manifest_that_says_another_number_of_rows_is_refused(boxes, tmp_path):
    with pytest.raises(LocalError, match="has 200 rows, and the manifest says 199"):
        open_rows([replace(boxes, source=replace(boxes.source, rows=199))], tmp_path)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_no_row_belongs_to_a_seed_outside_the_range(boxes, tmp_path, seed):
    with pytest.raises(TaskError, match="is outside 0 to"):
        open_rows([boxes], tmp_path)["boxes"].task(seed)


def test_a_file_in_another_form_than_the_normal_one_is_refused(boxes, tmp_path):
    data = place_of(tmp_path, boxes.source.file).read_bytes().replace(b'","prompt":', b'", "prompt":')
    file = hashlib.sha256(data).hexdigest()
    place_of(tmp_path, file).write_bytes(data)
    with pytest.raises(LocalError, match=r"line 1 of .* is not in the normal form"):
        open_rows([replace(boxes, source=replace(boxes.source, file=file))], tmp_path)


def test_a_task_from_a_file_has_a_name_of_its_own(boxes, tmp_path):
    with pytest.raises(LocalError, match="two tasks of the swarm are called boxes"):
        open_rows([boxes, TaskSpec("boxes", {}, 1)], tmp_path)


def test_a_task_from_a_file_has_no_configuration(boxes, tmp_path):
    with pytest.raises(LocalError, match="config must be empty"):
        open_rows([replace(boxes, config={"max": 1})], tmp_path)


def test_a_file_without_choices_is_no_quiz(boxes, tmp_path):
    with pytest.raises(LocalError, match="lacks choices"):
        open_rows([replace(boxes, source=replace(boxes.source, answers=AnswerKind.CHOICE))], tmp_path)


def test_a_row_that_is_damaged_while_the_node_runs_is_named(boxes, tmp_path):
    rows = open_rows([boxes], tmp_path)["boxes"]
    path = place_of(tmp_path, boxes.source.file)
    with path.open("r+b") as file:
        file.write(b"x" * path.stat().st_size)
    with pytest.raises(TaskError, match=r"row \d+ of boxes: it is not JSON"):
        rows.task(1)


def test_the_letter_of_a_quiz_counts_as_its_best_constant(tmp_path):
    found = Checked()
    list(check(written(tmp_path / "rows", quiz(100)), AnswerKind.CHOICE, found))
    answer, share = found.constant
    assert answer == "A"
    assert share == pytest.approx(1 / 3)


def test_an_open_file_takes_little_memory(tmp_path):
    task = task_from([{"prompt": f"{number} {'x' * 2_000}", "answer": "1"} for number in range(2_000)], tmp_path)
    tracemalloc.start()
    try:
        rows = open_rows([task], tmp_path)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows["boxes"].task(1).prompt.endswith("x")
    assert kept < 200_000 < place_of(tmp_path, task.source.file).stat().st_size
