"""What a task of another package gets wrong costs as little as it can, and the verdict is the same on every node."""

from pathlib import Path

import pytest
import trio

import evil_plugin
from sapo_node.verification.sandbox import Sandbox, ScoreRequest

GOOD = """
SCORER_VERSION = 1
def item(config, seed): return f"question {seed}", "7"
def earns(question, answer, given): return given == answer
"""


def deciding_by(body: str) -> str:
    return f"{GOOD}def earns(question, answer, given): {body}\n"


MODULES = {
    "an_error_for_words": deciding_by("return int(given) == int(answer)"),
    "an_exit_for_words": deciding_by("return given.isdigit() or exit()"),
    "no_memory_for_words": deciding_by("return given.isdigit() or bytearray(4 << 30)"),
}


def answers(dataset: str, *given: str) -> ScoreRequest:
    return ScoreRequest(f"odd.{dataset}", {}, 1, tuple(f"<answer>{each}</answer>" for each in given))


BATCHES = {name: [answers(name, "7", "seven")] for name in MODULES}


async def results_of(batches):
    sandbox = Sandbox()
    found = {}
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        for name, batch in batches.items():
            found[name] = await sandbox.score(batch)
        assert sandbox.restarts == 0
        nursery.cancel_scope.cancel()
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All these packages are installed side by side, and one sandbox gets each batch."""
    folder = tmp_path_factory.mktemp("packages")
    for name, text in MODULES.items():
        evil_plugin.install(folder / name, dataset=f"odd.{name}", module=f"odd_{name}")
        Path(folder / name / f"odd_{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        for path in folder.iterdir():
            patch.syspath_prepend(path)
        return trio.run(results_of, BATCHES)


def test_an_answer_for_which_earns_raises_earns_nothing_and_the_others_keep_their_rewards(results):
    (scored,) = results["an_error_for_words"]
    assert scored.rewards == (True, False)


@pytest.mark.parametrize("name", ["an_exit_for_words", "no_memory_for_words"])
def test_an_earns_that_ends_the_child_or_its_memory_gives_no_verdict(name, results):
    assert results[name] == [None]
