"""Curves go where people keep them, under the names that TRL has, and a target that fails harms nobody."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import trio

from books import book_of
from sapo_node.app.config import SETTINGS
from sapo_node.app.state import SCHEMA
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, Outcome
from sapo_node.observability import curves
from sapo_node.observability.curves import (
    COLUMNS,
    COMPLETIONS_EVERY,
    CURVES,
    REWARD_STD,
    TARGETS,
    Follower,
    Point,
    Request,
    of_round,
    require_installed,
    write_curves,
)
from sapo_node.observability.history import History
from sapo_node.observability.stored import metrics
from sapo_node.storage.database import Database
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.round import RoundReport
from sapo_protocol import LocalError
from swarm_parts import TRAINING

REPORT = RoundReport(
    epoch=3,
    counter=1,
    step=1,
    at=1_800_000_000.5,
    published=True,
    reward=0.25,
    pass_rate=0.25,
    informative=1,
    local=4,
    external=1,
    drawn=2,
    strangers_share=0.75,
    seconds={"generate": 1.0, "train": 2.0},
    training=replace(TRAINING, local_tokens=30, external_tokens=10),
)
HELD_OUT = HeldOut({"sums": tuple(Levels((right,)) for right in (1, 0, 1, 0))})
ROW = (1, "What is 2 + 2?", "It is | <answer>4</answer>\n", 1.0, 0.5)
POINTS = [
    Point(0, 1_800_000_000.0, {"eval_reward": 0.5}),
    Point(1, 1_800_000_001.0, {"reward": 0.25, "swarm/external_groups": 3.0}, (ROW,)),
    Point(2, 1_800_000_002.0, {"reward": 0.75, "swarm/external_groups": 4.0}),
]


def completion(correct):
    return Sampled(f"<answer>{4 if correct else 5}</answer>", "stop", (1,))


def play(database, step):
    """Record a round of one local group, as a node does."""
    levels = Levels((1, 0, 0, 0))
    group = LocalGroup(
        "sums", "2 + 2?", b"", tuple(map(completion, levels.correct)), levels, (1.5, -0.5, -0.5, -0.5), 3, step
    )
    book = book_of(database)
    book.report(step, book.enter(step, group), "", Outcome(weight=1.0, advantages=group.advantages))
    History(database).record(replace(REPORT, step=step, counter=step))


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path / "node.sqlite", SCHEMA)
    yield database
    database.close()


@pytest.fixture
def run(tmp_path):
    return Request(
        targets=("jsonl",),
        database=str(tmp_path / "node.sqlite"),
        folder=str(tmp_path / "curves"),
        project="sapo-test",
        name="seed-abc",
        round=0,
        evaluation=-1,
    )


def write(target, run):
    with TARGETS[target](run) as write_point:
        for point in POINTS:
            write_point(point)


def test_there_is_a_writer_for_each_target_of_the_configuration():
    assert TARGETS.keys() == {*SETTINGS["log_to"].choices}


def test_a_round_has_the_values_that_its_names_say():
    values = of_round(metrics(REPORT), [1.0, 0.0, 0.0, 0.0])
    assert values["reward"] == 0.25
    assert values["frac_reward_zero_std"] == 0.75
    assert values["reward_std"] == 0.5
    assert values["step_time"] == 3.0
    assert values["swarm/external_token_share"] == 0.25
    assert values["swarm/published"] == 1.0
    assert values.keys() <= {*CURVES, REWARD_STD}


def test_a_round_of_an_older_version_lacks_what_that_did_not_know():
    old = {name: value for name, value in metrics(REPORT).items() if name not in {"rate_scale", "masked_tokens"}}
    values = of_round(old, [])
    assert {"swarm/rate_scale", "swarm/masked_tokens", "reward_std"}.isdisjoint(values)
    assert values["reward"] == 0.25


def test_names_outside_of_swarm_are_those_of_trl():
    trl = find_spec("trl")
    if trl is None:
        pytest.skip("TRL is not installed")
    trainers = [Path(trl.origin).parent / "trainer" / "grpo_trainer.py"]
    trainers.append(Path(find_spec("transformers").origin).parent / "trainer.py")
    source = "".join(path.read_text() for path in trainers)
    for name in (*CURVES, REWARD_STD):
        assert name.startswith("swarm/") or f'"{name}"' in source, name


def test_each_round_and_each_evaluation_comes_once_and_in_order(database):
    follower = Follower(database, round_=0, evaluation=-1)
    History(database).examine(0, HELD_OUT, at=1.0)
    play(database, 1)
    first = follower.new()
    assert [(point.step, "eval_reward" in point.values) for point in first] == [(0, True), (1, False)]
    assert first[0].values["swarm/eval/sums"] == 0.5
    play(database, 2)
    History(database).examine(2, HELD_OUT, at=2.0)
    assert [(point.step, "eval_reward" in point.values) for point in follower.new()] == [(2, False), (2, True)]
    assert follower.new() == []


def test_what_was_played_before_the_start_is_not_written_again(database):
    History(database).examine(0, HELD_OUT, at=1.0)
    for step in (1, 2):
        play(database, step)
    assert [point.step for point in Follower(database, round_=1, evaluation=0).new()] == [2]


def test_the_first_round_and_every_tenth_have_a_table_of_completions(database):
    for step in range(1, COMPLETIONS_EVERY + 1):
        play(database, step)
    tables = {point.step: point.completions for point in Follower(database, round_=0, evaluation=-1).new()}
    assert [step for step, rows in tables.items() if rows] == [1, COMPLETIONS_EVERY]
    assert len(tables[1]) == 4
    assert tables[1][0] == (1, "2 + 2?", "<answer>4</answer>", 1.0, 1.5)


def test_json_lines_hold_every_point_and_a_later_start_appends(run, tmp_path):
    write("jsonl", run)
    write("jsonl", run)
    lines = [json.loads(line) for line in (tmp_path / "curves" / "curves.jsonl").read_text().splitlines()]
    assert lines == [{"step": point.step, "at": point.at, **point.values} for point in POINTS] * 2
    table = (tmp_path / "curves" / "completions.jsonl").read_text().splitlines()
    assert json.loads(table[0]) == dict(zip(COLUMNS, ROW, strict=True))


@pytest.mark.slow
def test_tensorboard_reads_scalars_and_table(run):
    pytest.importorskip("tensorboard", reason="not installed: pip install 'sapo-node[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write("tensorboard", run)
    found = EventAccumulator(f"{run.folder}/tensorboard")
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("reward")] == [(1, 0.25), (2, 0.75)]
    assert [each.wall_time for each in found.Scalars("eval_reward")] == [POINTS[0].at]
    [table] = found.Tensors("completions")
    assert table.tensor_proto.string_val[0].decode().splitlines() == [
        "| step | prompt | completion | reward | advantage |",
        "|---|---|---|---|---|",
        "| 1 | What is 2 + 2? | It is \\| <answer>4</answer>  | 1.0 | 0.5 |",
    ]
    assert found.summary_metadata["completions"].plugin_data.plugin_name == "text"


def in_a_process(code, run, **environment):
    """Run code in a process of its own: the library keeps threads and settings in its process."""
    done = subprocess.run(
        [sys.executable, "-c", code, run.folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WRITE = f"""
import sys
from sapo_node.observability.curves import TARGETS, Point, Request

def write(target):
    with TARGETS[target](Request((), "", sys.argv[1], "sapo-test", "seed-abc", 0, -1)) as write_point:
        for point in {[(each.step, each.at, each.values, each.completions) for each in POINTS]!r}:
            write_point(Point(*point))
"""


@pytest.mark.slow
def test_trackio_reads_scalars_and_table(run, tmp_path):
    pytest.importorskip("trackio", reason="not installed: pip install 'sapo-node[trackio]'")
    place = {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    in_a_process(f"{WRITE}\nwrite('trackio')", run, **place)

    def read(name):
        code = f"import sys; from trackio.cli import main; sys.argv = ['trackio', *{name!r}]; main()"
        return json.loads(in_a_process(code, run, **place))

    where = ["--project", "sapo-test", "--run", "seed-abc"]
    values = read(["get", "metric", *where, "--metric", "reward", "--json"])["values"]
    assert [(each["step"], each["value"]) for each in values] == [(1, 0.25), (2, 0.75)]
    [table] = read(["get", "metric", *where, "--metric", "completions", "--json"])["values"]
    assert dict(zip(COLUMNS, ROW, strict=True)) in table["value"]["_value"]


@pytest.mark.slow
def test_weights_and_biases_keeps_scalars_and_table_of_a_run_without_network(run):
    pytest.importorskip("wandb", reason="not installed: pip install 'sapo-node[wandb]'")
    in_a_process(f"{WRITE}\nwrite('wandb')", run, WANDB_MODE="offline", WANDB_SILENT="true", HOME=run.folder)
    [file] = Path(run.folder).rglob("run-seed-abc.wandb")
    recorded = file.read_bytes()
    assert all(name.encode() in recorded for point in POINTS for name in point.values)
    [table] = Path(run.folder).rglob("completions_*.table.json")
    assert json.loads(table.read_text()) == {"columns": list(COLUMNS), "data": [list(ROW)]}


@pytest.mark.parametrize("target", sorted(TARGETS.keys() - {"jsonl"}))
def test_a_missing_library_is_one_line_with_the_extra(target, monkeypatch):
    monkeypatch.setattr(curves, "find_spec", lambda _: None)
    require_installed(["jsonl"])
    with pytest.raises(LocalError, match=f"{target}, which is missing: .*pip install .*\\[{target}\\]'"):
        require_installed(["jsonl", target])


async def test_a_target_writes_until_the_node_stops_and_ends_with_the_last_round(database, run, tmp_path):
    told = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_curves, run, told.append)
        file = tmp_path / "curves" / "curves.jsonl"
        with trio.fail_after(60):
            while not file.exists():  # noqa: ASYNC110 - a file sets no trio.Event
                await trio.sleep(0.05)
        play(database, 1)
        nursery.cancel_scope.cancel()
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1]
    assert told == []


async def test_a_target_that_fails_is_one_notice_and_the_others_go_on(database, run, tmp_path, monkeypatch):
    library = tmp_path / "libraries" / "trackio.py"
    library.parent.mkdir()
    library.write_text("raise ValueError('no room\\nat all')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(library.parent), *sys.path]))
    told = []
    file = tmp_path / "curves" / "curves.jsonl"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_curves, replace(run, targets=("trackio", "jsonl")), told.append)
        with trio.fail_after(60):
            while not (told and file.exists()):  # noqa: ASYNC110 - a file sets no trio.Event
                await trio.sleep(0.05)
        play(database, 1)
        nursery.cancel_scope.cancel()
    assert told == ["no more curves go to trackio (no room); the node goes on without"]
    assert len(file.read_text().splitlines()) == 1


async def test_a_process_of_targets_that_all_failed_ends_with_a_notice_for_each(database, run):
    told = []
    Path(run.folder).write_text("a file where the folder should be")  # noqa: ASYNC240 - a few bytes
    with trio.fail_after(60):
        await write_curves(run, told.append)
    [notice] = told
    assert notice.startswith("no more curves go to jsonl (")
    assert "File exists" in notice
