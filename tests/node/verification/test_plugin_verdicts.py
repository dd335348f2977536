"""What a task of another package gets wrong costs as little as it can, and the verdict is the same on every node."""

import logging
from dataclasses import replace

import pytest
import trio

import evil_plugin
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import TaskSpec

GOOD = """
SCORER_VERSION = 1
def item(config, seed): return f"question {seed}", "7"
def earns(question, answer, given): return given == answer
"""


def deciding_by(body: str) -> str:
    return f"{GOOD}def earns(question, answer, given): {body}\n"


def building_by(body: str) -> str:
    return f"{GOOD}def item(config, seed): {body}\n"


MODULES = {
    "an_error_for_words": deciding_by("return int(given) == int(answer)"),
    "an_exit_for_words": deciding_by("return given.isdigit() or exit()"),
    "no_memory_for_words": deciding_by("return given.isdigit() or bytearray(4 << 30)"),
    "a_late_import_for_words": deciding_by("import sqlite3; return given == answer"),
    "a_file_for_words": deciding_by("return given.isdigit() or bool(open('/etc/hosts').read())"),
    "a_long_question": building_by("return 'x' * 40_000, '7'"),
    "a_long_example": f"{GOOD}def example(question, answer): return 'x' * 5_000 + '<answer>7</answer>'\n",
    "half_an_example": GOOD + r"def example(question, answer): return '\ud800<answer>7</answer>'" + "\n",
    "a_colourful_error": building_by(r"raise RuntimeError('\x1b[31mred\n' * 1_000)"),
    "an_error_without_words": building_by("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})"),
}


def answers(dataset: str, *given: str) -> ScoreRequest:
    return ScoreRequest(f"odd.{dataset}", {}, 1, tuple(f"<answer>{each}</answer>" for each in given))


ALONE = ("a_long_question", "a_long_example", "half_an_example")
"""Tasks beside which a batch has an honest one."""
BATCHES = {
    **{name: [answers(name, "7", "seven")] for name in MODULES},
    **{name: [answers("an_error_for_words", "7"), replace(answers(name), example=True)] for name in ALONE},
}


class Lines(logging.Handler):
    """What a logger says."""

    def __init__(self):
        super().__init__()
        self._said = []

    def emit(self, record):
        self._said.append(record.getMessage())

    def taken(self):
        said, self._said = self._said, []
        return said


async def results_of(batches):
    """The results of each batch, and what the log says of it."""
    sandbox = Sandbox(TaskSpec(f"odd.{name}", {}, 1) for name in MODULES)
    log, logger = Lines(), logging.getLogger("sapo_node")
    logger.addHandler(log)
    found = {}
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        for name, batch in batches.items():
            found[name] = await sandbox.score(batch), log.taken()
        assert sandbox.restarts == 0
        nursery.cancel_scope.cancel()
    logger.removeHandler(log)
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All these packages are installed side by side, and one sandbox gets each batch."""
    folder = tmp_path_factory.mktemp("packages")
    evil_plugin.install_each(folder, MODULES, family="odd")
    with pytest.MonkeyPatch.context() as patch:
        for path in folder.iterdir():
            patch.syspath_prepend(path)
        return trio.run(results_of, BATCHES)


def test_an_answer_for_which_earns_raises_earns_nothing_and_the_others_keep_their_levels(results):
    (scored,), said = results["an_error_for_words"]
    assert scored.levels == (1, 0)
    assert not said


@pytest.mark.parametrize("name", ["an_exit_for_words", "no_memory_for_words"])
def test_an_earns_that_ends_the_child_or_its_memory_gives_no_verdict(name, results):
    assert results[name][0] == [None]


@pytest.mark.parametrize("name", ["a_late_import_for_words", "a_file_for_words"])
def test_an_earns_that_needs_what_the_sandbox_refuses_gives_no_verdict_because_it_has_one_elsewhere(name, results):
    assert results[name][0] == [None]


@pytest.mark.parametrize("name", ALONE)
def test_an_item_beyond_a_limit_fails_alone(name, results):
    (honest, scored), (line,) = results[name]
    assert honest.levels == (1,)
    assert scored is None
    assert f"1 of 2 tasks failed in the sandbox; the first, of odd.{name}: its " in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("an_exit_for_words", "SystemExit"),
        ("no_memory_for_words", "MemoryError"),
        ("a_late_import_for_words", "ModuleNotFoundError: No module named"),
        ("a_file_for_words", "PermissionError"),
        ("a_colourful_error", r"RuntimeError: \x1b[31mred \x1b[31mred"),
        ("an_error_without_words", "Mute"),
    ],
)
def test_the_log_says_in_one_short_printable_line_why_a_task_failed(name, words, results):
    scored, (line,) = results[name]
    assert scored == [None]
    assert line.startswith(f"1 of 1 tasks failed in the sandbox; the first, of odd.{name}: {words}")
    assert line.isprintable()
    assert len(line) < 1_200
