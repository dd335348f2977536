"""The packaged seed policy: small, made by the recipe in this tree, weak, and its builder repeatable."""

import hashlib
import json
from dataclasses import asdict, replace

import pytest
import torch

from research.seed import build, measure
from research.seed.recipe import Lessons, Recipe
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.model import load
from sapo_protocol import load_manifest

pytestmark = pytest.mark.slow


torch.set_num_threads(1)

SPECS = load_manifest("starter").tasks
CONFIGS = {spec.dataset: spec.config for spec in SPECS}
TINY = replace(
    Recipe(), hidden=8, layers=1, heads=2, feed_forward=8, teach_steps=4, bury_steps=4, batch=32, vocabulary=320
)


def test_the_package_holds_at_most_four_megabytes():
    assert sum(path.stat().st_size for path in POLICY_DIR.iterdir()) <= 4_000_000


def test_the_packaged_policy_was_made_by_this_recipe_for_these_tasks():
    meta = json.loads((POLICY_DIR / "meta.json").read_text())
    recipe = Recipe()
    assert meta["recipe"] == json.loads(json.dumps(asdict(recipe)))
    assert meta["tasks"] == {name: dict(config) for name, config in CONFIGS.items()}
    assert meta["lessons"] == Lessons(recipe, CONFIGS).digest()


@pytest.fixture(scope="module")
def policy():
    return load(LearnerOptions(checkpoints=""))


def test_the_packaged_policy_is_weak(policy):
    rate = measure.pass_rate(policy, measure.heldout(SPECS, 40), seed=1)
    assert rate.overall < 0.10


def test_the_packaged_policy_is_good_once_it_is_careful(policy):
    assert measure.ceiling(policy, measure.heldout(SPECS, 20), seed=1).overall > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_local_grpo_triples_the_pass_rate(seed):
    records = measure.local_grpo(
        "seed",
        SPECS,
        seed=seed,
        rounds=60,
        every=60,
        prompts=50,
        learning_rate=LearnerOptions(checkpoints="").learning_rate,
        progress=lambda _: None,
    )
    assert records[-1]["pass_at_1"] >= 3 * records[0]["pass_at_1"]


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def build_tiny(folder):
    build.build(folder, CONFIGS, TINY, lambda _: None)
    return digests(folder)


def test_an_interrupted_build_ends_in_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SAVE_EVERY", 3)
    straight = build_tiny(tmp_path / "straight")

    class Interrupted(Exception):
        pass

    def stop_in_the_second_phase(line):
        if "burying" in line:
            raise Interrupted

    monkeypatch.setattr(build, "REPORT_EVERY", 1)
    with pytest.raises(Interrupted):
        build.build(tmp_path / "resumed", CONFIGS, TINY, stop_in_the_second_phase)
    assert (tmp_path / "resumed" / "unfinished").is_dir()
    assert build_tiny(tmp_path / "resumed") == straight


def test_a_built_policy_loads_and_answers(tmp_path):
    build_tiny(tmp_path)
    policy = load(LearnerOptions(checkpoints="", model=str(tmp_path)))
    assert measure.pass_rate(policy, measure.heldout(SPECS, 1), seed=1).overall == 0.0
