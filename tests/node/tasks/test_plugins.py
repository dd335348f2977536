"""A task that another package brings: the one of docs/extend/adding-a-task.md, installed as that page says."""

import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sapo_node.tasks import TaskError, build_task, plugins, score
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, parse_manifest

PAGE = (Path(__file__).parents[3] / "docs/extend/adding-a-task.md").read_text("utf-8")
MODULE, TRAINER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PACKAGE, MANIFEST = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
VERIFICATION = Path(__file__).parents[3] / "spec/verification.md"
NAME, CONFIG = "postfix.programs", {"max": 9}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Where the package of the page is installed."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    (source / "sapo_postfix.py").write_text(MODULE)
    (source / "pyproject.toml").write_text(PACKAGE)
    install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", target, source]
    subprocess.run([sys.executable, "-m", *map(str, install)], check=True, timeout=120)
    return target


@pytest.fixture
def installed(package, monkeypatch):
    """The package can be imported, by this process and by a sandbox that it starts."""
    monkeypatch.syspath_prepend(package)
    plugins.forget()
    yield
    plugins.forget()
    sys.modules.pop("sapo_postfix", None)


def earned(answer, seed=7):
    task = build_task(NAME, CONFIG, seed)
    return score(task, f"<answer>{answer}</answer>")


async def test_a_swarm_of_its_tasks_is_joined_by_the_same_version_and_its_programs_run_in_the_sandbox(
    installed, nursery
):
    manifest = parse_manifest(MANIFEST, source="the page")
    sandbox = Sandbox(manifest.tasks)
    await nursery.start(sandbox.run)
    task = build_task(NAME, CONFIG, 7)
    _, factor, _, term, _ = task.answer.split()
    right = f"<answer>{term} {factor} x * +</answer>"
    texts = (right, f"<answer>{task.answer}</answer>", "<answer>x x +</answer>", "no")
    (scored,) = await sandbox.score([ScoreRequest(NAME, CONFIG, 7, texts)])
    assert scored.prompt == task.prompt
    assert scored.levels == (1, 1, 0, 0)
    await require_catalogue(manifest, sandbox)
    later = replace(manifest, tasks=tuple(replace(task, scorer=2) for task in manifest.tasks))
    with pytest.raises(LocalError, match="by version 2, and version 1 is installed"):
        await require_catalogue(later, sandbox)
    for levels in (1, 255):  # a manifest may give levels to a task whose scorer says true or false
        await require_catalogue(replace(manifest, tasks=(replace(manifest.tasks[0], levels=levels),)), sandbox)
    broken = replace(manifest, tasks=tuple(replace(task, config={"max": 0}) for task in manifest.tasks))
    with pytest.raises(LocalError, match="cannot be built"):
        await require_catalogue(broken, sandbox)


def test_a_configuration_that_it_does_not_take_is_refused_with_its_own_words(installed):
    with pytest.raises(TaskError, match="give exactly max"):
        build_task(NAME, {"max": 0}, 7)


def test_the_reward_function_for_a_trainer_gives_shares(installed):
    page = {}
    exec(TRAINER, page)
    tasks = [build_task(NAME, CONFIG, seed) for seed in (1, 2)]
    term = tasks[1].answer.split()[3]
    texts = [f"<answer>{tasks[0].answer}</answer>", f"<answer>x {term} +</answer>"]
    rewards = page["share_right"](prompts=["", ""], completions=texts, completion_ids=[], seed=[1, 2])
    assert rewards == [1.0, 1 / 3]


def test_a_program_of_too_many_steps_earns_nothing_although_its_values_are_right(installed):
    task = build_task(NAME, {"max": 1_000}, 7)
    padded = task.answer + " 0 +" * 14
    assert plugins.of(NAME).earns(task.prompt, task.answer, padded) is False
    assert plugins.of(NAME).earns(task.prompt, task.answer, padded[: -len(" 0 +")]) == 1


async def test_without_the_package_a_node_says_what_it_lacks(sandbox):
    with pytest.raises(LocalError, match=r"postfix\.programs, which another package defines"):
        await require_catalogue(parse_manifest(MANIFEST, source="the page"), sandbox)


def test_an_item_is_the_same_whenever_it_is_built(installed):
    items = [build_task(NAME, CONFIG, seed) for seed in range(50)]
    plugins.forget()
    assert items == [build_task(NAME, CONFIG, seed) for seed in range(50)]
    assert len({each.prompt for each in items}) > 10


def test_a_module_that_changes_its_configuration_builds_the_same_items_from_it(installed, monkeypatch):
    monkeypatch.setattr(plugins.of(NAME), "item", lambda config, seed: (f"{config.pop('max', 0)} {seed}", "x"))
    assert [build_task(NAME, CONFIG, seed).prompt for seed in range(3)] == ["9 0", "9 1", "9 2"]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "x",
        "x x",
        "+",
        "x 3 *",
        "x ** 2",
        "__import__('os')",
        "x 9 * " + "x * " * 5,
        "x " * 33,
        "9 " * 40,
        "x 1234567 *",
        "x 3 /",
    ],
)
def test_what_is_no_program_or_another_earns_nothing(installed, answer):
    assert not earned(answer)


@pytest.fixture
def reaches_the_scorer(installed, monkeypatch):
    """Whether a scorer that rewards everything is asked about an answer with a character."""
    task = build_task(NAME, CONFIG, 7)
    monkeypatch.setattr(sys.modules["sapo_postfix"], "earns", lambda *_: True)
    return lambda character: score(task, f"<answer>a{character}b</answer>")


def test_a_character_that_the_unicode_tables_of_this_python_lack_reaches_the_scorer(reaches_the_scorer):
    assert reaches_the_scorer("\U0001fae8")  # Unicode 15: Python 3.11 has 14
    assert reaches_the_scorer("\U0003fffd")


def test_the_forbidden_characters_are_those_of_the_standard(reaches_the_scorer):
    rule = VERIFICATION.read_text("utf-8").split("**ANS-1**")[1].split("- **")[0]
    ranges = re.findall(r"U\+([0-9A-F]{4})(?: to U\+([0-9A-F]{4}))?", rule)
    forbidden = {code for first, last in ranges for code in range(int(first, 16), int(last or first, 16) + 1)}
    forbidden = forbidden - set(b"\t\n\r") | set(range(0xD800, 0xE000))
    near = [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xFFF0, 0x1_0010), 0x10FFFF]
    assert {code for code in near if not reaches_the_scorer(chr(code))} == forbidden


def test_a_scorer_is_asked_about_an_answer_and_then_about_it_without_each_wrapper(installed, monkeypatch):
    task, asked = build_task(NAME, CONFIG, 7), []
    monkeypatch.setattr(sys.modules["sapo_postfix"], "earns", lambda *given: bool(asked.append(given[-1])))
    assert not score(task, "<answer>**The answer is x.**</answer>")
    assert asked == ["**The answer is x.**", "The answer is x.", "x.", "x"]


@pytest.mark.parametrize(
    "verdict", [1, 1.0, np.float64(0.5), None, "no", (False, "wrong"), np.array([True]), re.match("", "")], ids=repr
)
def test_a_scorer_that_returns_something_other_than_a_verdict_is_named(installed, monkeypatch, verdict):
    task = build_task(NAME, CONFIG, 7)
    monkeypatch.setattr(sys.modules["sapo_postfix"], "earns", lambda *_: verdict)
    with pytest.raises(TaskError, match=rf"function earns of postfix\.programs .* of {type(verdict).__name__}$"):
        score(task, f"<answer>{task.answer}</answer>")


@pytest.mark.parametrize("verdict", [True, False, np.True_, np.False_])
def test_a_scorer_may_return_a_boolean_of_numpy(installed, monkeypatch, verdict):
    task = build_task(NAME, CONFIG, 7)
    monkeypatch.setattr(sys.modules["sapo_postfix"], "earns", lambda *_: verdict)
    assert score(task, f"<answer>{task.answer}</answer>") == bool(verdict)


@pytest.mark.parametrize(("share", "level"), [(0, 0), (Fraction(1, 5), 0), (Fraction(1, 4), 1), (Fraction(1), 4)])
def test_a_share_earns_the_level_at_or_below_it(installed, monkeypatch, share, level):
    task = build_task(NAME, CONFIG, 7)
    monkeypatch.setattr(sys.modules["sapo_postfix"], "earns", lambda *_: Fraction(share))
    assert score(task, f"<answer>{task.answer}</answer>", levels=4) == level


@pytest.mark.parametrize("share", [Fraction(-1, 10**5000), Fraction(10**5000 + 1, 10**5000)], ids=["below", "above"])
def test_a_share_outside_0_to_1_is_refused(installed, monkeypatch, share):
    task = build_task(NAME, CONFIG, 7)
    monkeypatch.setattr(sys.modules["sapo_postfix"], "earns", lambda *_: share)
    with pytest.raises(TaskError, match=r"earns of postfix\.programs must return a Fraction from 0 to 1"):
        score(task, f"<answer>{task.answer}</answer>", levels=4)
