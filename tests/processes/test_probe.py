"""`sapo-node init --dry-run`, as its users run it, on real models."""

import json

import pytest

from processes import sapo_node
from tiny_models import write_model


@pytest.mark.slow
def test_the_model_in_the_package_can_learn_from_its_swarm(tmp_path):
    done = sapo_node("init", "--dry-run", "--prompts", 2, "--state", tmp_path / "state", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of 6 tasks can be learnt" in done.stdout
    assert "sapo-node start --state" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_model_without_skill_is_told_what_may_help_and_keeps_its_folder_as_it_is(tmp_path):
    model = write_model(tmp_path / "tiny", "llama")
    files = sorted(model.iterdir())
    asked = ("--dry-run", "--model", model, "--state", "state", "--prompts", 1, "--max-tokens", 8, "--json")
    done = sapo_node("init", *asked, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    tasks = found["probe"]["tasks"].values()
    assert found["probe"]["learnable"] == []
    assert {task["verdict"] for task in tasks} == {"too hard"}
    assert min(task["cut"] for task in tasks) > 0.5  # a random model may end early by chance
    assert any("--max-tokens" in each for each in found["advice"])
    assert found["probe"]["round"]["generate_seconds"] > 0
    assert found["probe"]["round"]["train_seconds"] > 0
    assert sorted(model.iterdir()) == files
    assert list(tmp_path.iterdir()) == [model]
