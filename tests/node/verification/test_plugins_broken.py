"""A package whose task is damaged or hostile ends in one clear error of ours, within seconds, and harms no other."""

from dataclasses import replace

import pytest
import trio

import evil_plugin
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, TaskSpec, load_manifest

GOOD = """
SCORER_VERSION = 1
def item(config, seed): return f"question {seed}", "answer"
def earns(question, answer, given): return given == answer
"""
MODULES = {
    "a_missing_import": "import no_such_module",
    "a_syntax_error": "def item(:",
    "an_endless_loop": "while True: pass",
    "an_endless_sleep": "import time; time.sleep(1_000)",
    "four_gigabytes": "x = bytearray(4 << 30)",
    "an_exit_that_claims_success": "import os; os._exit(0)",
    "an_exit": "import os; os._exit(3)",
    "a_polite_exit": "import sys; sys.exit('enough')",
    "an_abort": "import os; os.abort()",
    "an_error_of_many_lines_with_colours": r"raise RuntimeError('\x1b[31mred\n' * 1_000)",
    "no_version": GOOD.replace("SCORER_VERSION", "VERSION"),
    "version_true": GOOD.replace("= 1", "= True"),
    "no_item": GOOD.replace("def item", "def thing"),
    "an_earns_that_is_no_function": GOOD + "earns = 1",
    "numbers_for_texts": GOOD.replace('"answer"\n', "42\n"),
    "three_texts": GOOD.replace('"answer"\n', '"answer", "more"\n'),
    "nothing": GOOD.replace("return f", "f"),
    "an_error_while_building": GOOD.replace("return f", "1 / 0; return f"),
    "a_match_for_a_verdict": "import re" + GOOD.replace("return given == answer", "return re.match(answer, given)"),
    "half_a_character": GOOD.replace("question {seed}", r"\ud800"),
    "shouting": "print('x' * 1_000_000, flush=True)\nimport os; os.write(1, b'noise')" + GOOD,
    "a_thread_that_never_ends": "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"
    + GOOD,
}
SAID = {
    "a_missing_import": "its import failed with ModuleNotFoundError: No module named 'no_such_module'",
    "a_syntax_error": "its import failed with SyntaxError",
    "an_endless_loop": "its import does not end within 5 s",
    "an_endless_sleep": "its import does not end within 5 s",
    "four_gigabytes": "its import failed with MemoryError",
    "an_exit_that_claims_success": "its import ended the process with status 0",
    "an_exit": "its import ended the process with status 3",
    "a_polite_exit": "its import failed with SystemExit: enough",
    "an_abort": "its import ended the process with status -6",
    "an_error_of_many_lines_with_colours": r"its import failed with RuntimeError: \x1b[31mred",
    "no_version": "its SCORER_VERSION is not a whole number",
    "version_true": "its SCORER_VERSION is not a whole number",
    "no_item": "it has no function item",
    "an_earns_that_is_no_function": "it has no function earns",
    "twice": "two packages define it",
    "numbers_for_texts": "cannot be built",
    "three_texts": "cannot be built",
    "nothing": "cannot be built",
    "an_error_while_building": "cannot be built",
    "half_a_character": "cannot be built",
    "a_match_for_a_verdict": "cannot be built or scored, and the log says why",
}


async def what_joining_says(datasets):
    """Of each dataset what a node says that joins a swarm of it; empty where it joins."""
    starter = replace(load_manifest("starter"), tasks=load_manifest("starter").tasks[:1])
    said = {}
    # `chain_sum` is also the name of a package's task here, which has no dot.
    named = [TaskSpec(f"evil.{dataset}", {}, 1) for dataset in datasets]
    sandbox = Sandbox([*starter.tasks, *named, TaskSpec("chain_sum", {}, 1)])
    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            await nursery.start(sandbox.run)
        for dataset in datasets:
            tasks = (replace(starter.tasks[0], dataset=f"evil.{dataset}", config={}, scorer=1),)
            try:
                await require_catalogue(replace(starter, tasks=tasks), sandbox)
                said[dataset] = ""
            except LocalError as error:
                said[dataset] = str(error)
        await require_catalogue(starter, sandbox)
        nursery.cancel_scope.cancel()
    return said


@pytest.fixture(scope="module")
def joining(tmp_path_factory):
    """All these packages are installed side by side, and one sandbox is asked."""
    folder = tmp_path_factory.mktemp("packages")
    evil_plugin.install_each(folder, MODULES, family="evil")
    for name in ("one", "other"):
        evil_plugin.install(folder / name, dataset="evil.twice", module="evil_shouting", package=f"twice-{name}")
    # A task without a dot, named like one of ours: its import would end the sandbox, and with it all of these tests.
    evil_plugin.install(folder / "clash", dataset="chain_sum", module="evil_an_exit", package="clash")
    with pytest.MonkeyPatch.context() as patch:
        for path in folder.iterdir():
            patch.syspath_prepend(path)
        return trio.run(what_joining_says, [*MODULES, "twice"])


@pytest.mark.parametrize("name", SAID)
def test_a_broken_task_keeps_a_node_out_of_its_swarm_with_the_reason(name, joining):
    said = joining[name]
    assert SAID[name] in said
    assert f"evil.{name}" in said
    assert said.isprintable()
    assert len(said) < 600


@pytest.mark.parametrize("name", ["shouting", "a_thread_that_never_ends"])
def test_a_task_that_is_only_noisy_is_joined(name, joining):
    assert joining[name] == ""
