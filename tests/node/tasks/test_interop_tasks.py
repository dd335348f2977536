# ruff: noqa: RUF001 - look-alike digits and letters on purpose
"""The spec's own tasks are what its text says, byte by byte, and score as any other language would score them."""

import hashlib
import os
import subprocess
import sys

import pytest

from processes import RunningProcess
from sapo_node.tasks import Task, TaskError, build_task, interop, score, task_digest
from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
from sapo_protocol import load_manifest

ITEM = b"\x83\x6bsapo/item/1"
"""An array of three, and its first item, a text of eleven bytes; written by hand."""


def drawn(hashed, modulus, count):
    digest = hashlib.sha256(hashed).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "big") % modulus for i in range(count)]


@pytest.mark.parametrize(
    ("most", "seed", "encoded", "numbers", "answer"),
    [
        (9, 0, b"\x00", [6, 2], "8"),
        (9, 23, b"\x17", [9, 6], "15"),
        (9, 24, b"\x18\x18", [7, 9], "16"),
        (9, 2**32 - 1, b"\x1a\xff\xff\xff\xff", [2, 9], "11"),
        (1, 0, b"\x00", [0, 0], "0"),
        (1, 24, b"\x18\x18", [1, 1], "2"),
        (1_000_000, 255, b"\x18\xff", [691_804, 828_513], "1520317"),
        (1_000_000, 256, b"\x19\x01\x00", [619_072, 954_998], "1574070"),
    ],
)
def test_a_sum_is_that_of_the_first_two_numbers(most, seed, encoded, numbers, answer):
    assert drawn(ITEM + b"\x6binterop_sum" + encoded, most + 1, 2) == numbers
    prompt = f"What is {numbers[0]} + {numbers[1]}?"
    assert build_task("interop_sum", {"max": most}, seed) == Task("interop_sum", prompt, answer)


@pytest.mark.parametrize(
    ("letters", "seed", "encoded", "word", "answer"),
    [
        (3, 0, b"\x00", "xhc", "chx"),
        (3, 23, b"\x17", "wry", "yrw"),
        (3, 65_535, b"\x19\xff\xff", "ppd", "dpp"),
        (2, 65_536, b"\x1a\x00\x01\x00\x00", "hy", "yh"),
        (7, 2**31 - 1, b"\x1a\x7f\xff\xff\xff", "ycvelxa", "axlevcy"),
        (7, 2**32 - 1, b"\x1a\xff\xff\xff\xff", "uqcfnum", "munfcqu"),
    ],
)
def test_a_word_is_spelt_by_the_first_numbers(letters, seed, encoded, word, answer):
    places = drawn(ITEM + b"\x6finterop_reverse" + encoded, 26, letters)
    assert "".join("abcdefghijklmnopqrstuvwxyz"[place] for place in places) == word
    task = build_task("interop_reverse", {"letters": letters}, seed)
    assert task == Task("interop_reverse", f"Write {word} backwards.", answer)


@pytest.mark.parametrize(
    ("config", "seed", "encoded", "listed", "answer"),
    [
        ({"count": 3, "max": 99}, 0, b"\x00", "56, 67 and 98", "98"),
        ({"count": 3, "max": 99}, 23, b"\x17", "59, 84 and 17", "84"),
        ({"count": 3, "max": 99}, 65_536, b"\x1a\x00\x01\x00\x00", "37, 11 and 2", "37"),
        ({"count": 2, "max": 99}, 2**31 - 1, b"\x1a\x7f\xff\xff\xff", "3 and 90", "90"),
        ({"count": 2, "max": 1}, 24, b"\x18\x18", "0 and 0", "0"),
        (
            *({"count": 7, "max": 1_000_000}, 2**32 - 1, b"\x1a\xff\xff\xff\xff"),
            "855204, 643270, 320006, 815038, 11553, 913293 and 654246",
            "913293",
        ),
    ],
)
def test_the_largest_is_among_the_first_numbers(config, seed, encoded, listed, answer):
    numbers = drawn(ITEM + b"\x6finterop_largest" + encoded, config["max"] + 1, config["count"])
    assert numbers == [int(number) for number in listed.replace(" and", ",").split(", ")]
    task = build_task("interop_largest", config, seed)
    assert task == Task("interop_largest", f"Which is the largest of {listed}?", answer)


def test_the_digest_of_a_task_is_that_of_its_cbor():
    task = build_task("interop_sum", {"max": 9}, 0)
    assert task_digest(task.prompt, task.answer) == hashlib.sha256(b"\x82\x6eWhat is 6 + 2?\x618").digest()


GOOD = {"interop_sum": {"max": 9}, "interop_reverse": {"letters": 3}, "interop_largest": {"count": 3, "max": 99}}
RANGES = [
    ("interop_sum", "max", 1, 1_000_000),
    ("interop_reverse", "letters", 2, 7),
    ("interop_largest", "count", 2, 7),
    ("interop_largest", "max", 1, 1_000_000),
]


@pytest.mark.parametrize(("dataset", "key", "low", "high"), RANGES)
def test_a_configuration_value_is_taken_within_its_bounds_and_refused_outside(dataset, key, low, high):
    for value in (low, high):
        assert build_task(dataset, GOOD[dataset] | {key: value}, 1).answer
    for value in (low - 1, high + 1, -low, 2**64):
        with pytest.raises(TaskError, match=f"{key} = {low} to {high}"):
            build_task(dataset, GOOD[dataset] | {key: value}, 1)


@pytest.mark.parametrize(("dataset", "key"), [each[:2] for each in RANGES])
@pytest.mark.parametrize("value", [True, 3.0, "3", None, [3], {"max": 3}], ids=repr)
def test_a_configuration_value_that_is_no_whole_number_is_refused(dataset, key, value):
    with pytest.raises(TaskError, match="give exactly"):
        build_task(dataset, GOOD[dataset] | {key: value}, 1)


@pytest.mark.parametrize(("dataset", "key"), [each[:2] for each in RANGES])
def test_a_configuration_without_one_of_its_keys_is_refused(dataset, key):
    with pytest.raises(TaskError, match="give exactly"):
        build_task(dataset, {name: value for name, value in GOOD[dataset].items() if name != key}, 1)


@pytest.mark.parametrize("dataset", GOOD)
@pytest.mark.parametrize("key", ["", "Max", "min", "seed", "size", "data_file"])
def test_a_configuration_with_another_key_is_refused(dataset, key):
    with pytest.raises(TaskError, match="give exactly"):
        build_task(dataset, GOOD[dataset] | {key: 3}, 1)


@pytest.mark.parametrize("dataset", GOOD)
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_outside_its_range_is_refused(dataset, seed):
    with pytest.raises(TaskError, match="outside"):
        build_task(dataset, GOOD[dataset], seed)


INTEGERS = ["interop_sum", "interop_largest"]


def right(dataset, reference, answer):
    return score(Task(dataset, "?", reference), f"Let me think.\n<answer>{answer}</answer>")


@pytest.mark.parametrize("dataset", INTEGERS)
@pytest.mark.parametrize(
    "answer",
    [
        *("15", "+15", "015", "+00015", " 15", "15\t", "\n15\n", "\r\n15\r\n", " \t\n\r15", "0" * 70 + "15"),
        *("+ 15", "15.", "15.0", "= 15", "=15"),
    ],
    ids=repr,
)
def test_the_same_whole_number_is_right(dataset, answer):
    assert right(dataset, "15", answer)


@pytest.mark.parametrize("dataset", INTEGERS)
@pytest.mark.parametrize("answer", ["0", "00", "+0", "-0", "-000"])
def test_zero_is_zero_with_either_sign(dataset, answer):
    assert right(dataset, "0", answer)


@pytest.mark.parametrize("dataset", INTEGERS)
@pytest.mark.parametrize(
    "answer",
    [
        *("", " ", "\n", "+", "-", "16", "-15", "--15", "++15", "+-15", "15+", "1 5", "1\n5", "15 15"),
        *("15..", "15.1", "15,0", "1_5", "1'5", "1e1", "0xf", "0b1111", "#15", "fifteen", "None", "15\0"),
        *("１５", "１5", "١٥", "¹5", "⑮", "－15", "＋15", "15\u200b", "\ufeff15"),
        *("\u00a015", "15\u2003", "\v15", "15\f", "\x1c15", "\u008515"),
    ],
    ids=ascii,
)
def test_another_or_no_whole_number_is_wrong(dataset, answer):
    assert not right(dataset, "15", answer)


@pytest.mark.parametrize("answer", ["chx", " chx", "chx\t", "\nchx\n", "\r\nchx\r\n", "chx.", "'chx'"], ids=repr)
def test_the_very_word_is_right(answer):
    assert right("interop_reverse", "chx", answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("", " ", "xhc", "ch", "chxx", "CHX", "Chx", "c h x", "c\nhx", "chx chx", "chx..", "'chx", "chx\0", "chx!"),
        *("ｃｈｘ", "сhx", "chх", "chx\u200b", "\ufeffchx", "chx\u0301", "\u00a0chx", "chx\u2003", "\vchx", "chx\f"),
    ],
    ids=ascii,
)
def test_another_word_is_wrong(answer):
    assert not right("interop_reverse", "chx", answer)


@pytest.mark.parametrize("dataset", INTEGERS)
@pytest.mark.parametrize(("reference", "limit"), [("8", 68), ("15", 72), ("1520317", 92)])
def test_an_answer_has_at_most_four_times_the_references_characters_and_64(dataset, reference, limit):
    assert right(dataset, reference, reference.rjust(limit, "0"))
    assert right(dataset, reference, f" {reference.rjust(limit, '0')}\n")
    assert not right(dataset, reference, reference.rjust(limit + 1, "0"))


@pytest.mark.parametrize(
    "completion",
    [
        "<answer>8</answer>",
        "<answer>9</answer><answer>8</answer>",
        "<answer>9<answer>8</answer>",
        "</answer><answer>8</answer>",
        "<answer>8</answer><answer>9",
        "<answer>8</answer> so <answer>",
        "<<answer>8</answer>>",
        "<answer>8</answer></answer>",
        "<answer><answer>8</answer></answer>",
        "<answer>8</answer> or 9</answer>",
        "<ANSWER>8</Answer>",
        "<answer >8</answer\n>",
    ],
)
def test_the_last_answer_counts(completion):
    assert score(Task("interop_sum", "?", "8"), completion)


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "8",
        "<answer>8",
        "8</answer>",
        "</answer>8<answer>",
        "<answer>8</answer><answer>9</answer>",
        "<answer>8</answer><answer></answer>",
        "<answer>8</answer> or <answer>9</answer></answer>",
        "<answer x>8</answer>",
        "< answer>8</answer>",
        "<an\u017fwer>8</an\u017fwer>",
    ],
)
def test_a_completion_whose_last_answer_is_another_or_missing_is_wrong(completion):
    assert not score(Task("interop_sum", "?", "8"), completion)


def test_the_interop_swarm_has_these_tasks_and_needs_no_library():
    manifest = load_manifest("interop")
    assert {spec.dataset: spec.config for spec in manifest.tasks} == GOOD
    assert set(GOOD) == interop.DATASETS
    assert manifest.reasoning_gym == ""


def test_items_are_built_and_scored_without_reasoning_gym():
    code = "import sys; sys.modules['reasoning_gym'] = None\nfrom sapo_node.tasks import build_task, score\n"
    for dataset, config in GOOD.items():
        code += f"task = build_task({dataset!r}, {config}, 7)\n"
        code += "assert score(task, '<answer>' + task.answer + '</answer>')\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


async def test_the_sandbox_builds_and_scores_them_and_refuses_another_configuration(sandbox):
    tasks = [build_task(dataset, config, 2**31) for dataset, config in GOOD.items()]
    requests = [
        ScoreRequest(task.dataset, GOOD[task.dataset], 2**31, (f"<answer>{task.answer}</answer>", "<answer>?</answer>"))
        for task in tasks
    ]
    results = [Scored(task.prompt, task_digest(task.prompt, task.answer), (1, 0)) for task in tasks]
    bad = ScoreRequest("interop_sum", {"max": True}, 1, ("<answer>1</answer>",))
    assert await sandbox.score([*requests, bad]) == [*results, None]


@pytest.mark.slow
def test_two_nodes_of_the_interop_swarm_verify_each_other(tmp_path):
    with RunningProcess(tmp_path / "a", "--swarm", "interop") as first:
        address = first.until_event("started")["addresses"][0]
        with RunningProcess(tmp_path / "b", "--swarm", "interop", "--bootstrap", address) as second:
            for node in (first, second):
                node.until(lambda event: event.get("counts", {}).get("verified groups", 0) > 0)
                assert not node.events[-1]["counts"].get("question or answer differs")
