"""Tasks are rebuilt the same everywhere, whatever else the process has done, and bad requests are refused."""

import decimal
import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from sapo_node.tasks import DATASETS, TaskError, build_task, score, task_digest
from sapo_node.tasks.scorers.logic import correct_answer
from sapo_protocol.manifest import load_manifest


def tasks_of(*names: str) -> list[Any]:
    return [
        pytest.param(task.dataset, task.config, id=f"{name}-{task.dataset}")
        for name in names
        for task in load_manifest(name).tasks
    ]


BORROWED = tasks_of("starter", "paper-nine", "smollm2-easy")
"""Tasks of reasoning-gym."""
CATALOGUE = BORROWED + tasks_of("interop")

BUILT = """
import sys
import sapo_node.verification.sandbox.zygote
from sapo_node.tasks import build_task, task_digest
from sapo_protocol.manifest import load_manifest
for name in ("starter", "paper-nine", "smollm2-easy", "interop"):
    for spec in load_manifest(name).tasks:
        for seed in (0, 1, 12345, 2**31, 2**32 - 1):
            task = build_task(spec.dataset, spec.config, seed)
            print(spec.dataset, seed, task_digest(task.prompt, task.answer).hex())
print(*sys.modules)
"""


@functools.cache
def built(hash_seed: str) -> tuple[list[str], set[str]]:
    """What a process builds that imports what a sandbox does, and the modules that it has then."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    *items, modules = subprocess.check_output([sys.executable, "-c", BUILT], env=environment, text=True).splitlines()
    return items, set(modules.split())


def test_the_manifests_use_datasets_of_the_catalogue() -> None:
    assert {param.values[0] for param in BORROWED} <= DATASETS.keys()


def test_the_paper_manifest_has_its_nine_tasks() -> None:
    assert len({task.dataset for task in load_manifest("paper-nine").tasks}) == 9


@pytest.mark.parametrize(("dataset", "config"), BORROWED)
def test_an_item_is_that_of_reasoning_gym_itself(dataset: str, config: Mapping[str, Any]) -> None:
    import reasoning_gym

    if dataset == "propositional_logic":
        pytest.skip("many of its items have no correct answer, and the next one that has is taken")
    for seed in (0, 7, 2**31 + 5, 2**32 - 1):
        item = reasoning_gym.create_dataset(dataset, seed=seed, size=1, **config)[0]
        task = build_task(dataset, config, seed)
        assert task.prompt.removesuffix(" Each quotient is floored.") == item["question"]
        assert task.answer == item["answer"]


def test_a_logic_item_is_the_next_of_the_library_that_has_a_correct_answer() -> None:
    import reasoning_gym

    defaults = DATASETS["propositional_logic"].defaults
    for seed in (0, 7, 2**31 + 5):
        task = build_task("propositional_logic", {}, seed)
        following = reasoning_gym.create_dataset("propositional_logic", seed=seed, size=64, **defaults)
        prompts = [item["question"] for item in following]
        assert all(correct_answer(each) is None for each in prompts[: prompts.index(task.prompt)])
        assert score(task, f"<answer>{task.answer}</answer>") == 1


@pytest.mark.parametrize(("dataset", "config"), CATALOGUE)
def test_seeds_of_the_whole_range_have_items_with_answers(dataset: str, config: Mapping[str, Any]) -> None:
    for seed in range(0, 2**32, 2**32 // 40):
        task = build_task(dataset, config, seed)
        assert task.prompt
        assert task.answer


def test_the_sandbox_imports_little_of_reasoning_gym_and_no_trio() -> None:
    _, modules = built("0")
    assert not {"trio", "sympy", "matplotlib", "numpy", "reasoning_gym"} & modules


def test_who_imports_reasoning_gym_after_a_task_was_built_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    build_task("chain_sum", {}, 1)
    import reasoning_gym

    assert reasoning_gym.create_dataset("zebra_puzzles", seed=0, size=1)[0]["question"]


def test_two_processes_with_different_hash_seeds_build_the_same_tasks() -> None:
    items, _ = built("0")
    assert built("12345")[0] == items
    assert len(items) == 24 * 5


def test_an_item_that_divides_by_zero_is_replaced_by_the_next_one() -> None:
    config = load_manifest("paper-nine").tasks[2].config
    seed = 6886
    assert build_task("decimal_arithmetic", config, seed) == build_task("decimal_arithmetic", config, seed + 1)


def test_a_division_of_basic_arithmetic_says_how_it_is_rounded() -> None:
    tasks = [build_task("basic_arithmetic", {}, seed) for seed in range(200)]
    assert all(task.prompt.endswith(". Each quotient is floored.") == ("/" in task.prompt) for task in tasks)
    assert {"/" in task.prompt for task in tasks} == {True, False}


def test_base_conversion_never_asks_for_zero_which_has_no_digits() -> None:
    assert all(build_task("base_conversion", {"max_value": 2}, seed).answer for seed in range(100))


def test_building_leaves_the_decimal_context_and_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = decimal.getcontext().prec
    build_task("decimal_arithmetic", {"precision": 5}, 1)
    for seed in range(20):
        build_task("bf", {}, seed)
    assert decimal.getcontext().prec == before
    assert capsys.readouterr().out == ""


def test_the_callers_decimal_context_changes_no_item() -> None:
    plain = build_task("decimal_arithmetic", {}, 3)
    with decimal.localcontext(decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)):
        assert build_task("decimal_arithmetic", {}, 3) == plain


@pytest.mark.parametrize(
    ("dataset", "config"),
    [
        ("puzzle24", {}),
        ("no such dataset", {}),
        ("chain_sum", {"min_terms": 0}),
        ("chain_sum", {"min_terms": "two"}),
        ("chain_sum", {"no_such_key": 1}),
        ("chain_sum", {"seed": 1}),
        ("chain_sum", {"size": 10**9}),
        ("spell_backward", {"data_file": "../../../../etc/passwd"}),
        ("calendar_arithmetic", {"tasks": ["tell_the_future"]}),
        ("calendar_arithmetic", {"tasks": 5}),
        ("fraction_simplification", {"styles": ["no such style"]}),
        ("products", {"min_digits": b"bytes"}),
    ],
)
def test_a_bad_dataset_or_configuration_is_refused(dataset: str, config: Mapping[str, Any]) -> None:
    with pytest.raises(TaskError):
        build_task(dataset, config, 1)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_outside_its_range_is_refused(seed: int) -> None:
    with pytest.raises(TaskError):
        build_task("chain_sum", {}, seed)


def test_the_digest_is_that_of_the_cbor_array_of_question_and_answer() -> None:
    assert task_digest("a", "grün") == hashlib.sha256(b"\x82\x61a\x65gr\xc3\xbcn").digest()
