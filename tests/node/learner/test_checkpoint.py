"""Checkpoints: bit-exact resume, fallback, and what a failed write leaves behind."""

import json
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import checkpoint, tensor_folder
from sapo_node.learner.checkpoint import CheckpointError, Snapshot
from sapo_node.learner.generate import generate
from sapo_node.learner.trainer import Trainer
from tiny_models import policy_of

torch.set_num_threads(1)

QUESTION = "What is 2 + 2?"
FILES = ("weights.safetensors", "optimizer.safetensors")
OPTIONS = LearnerOptions(checkpoints="", groups=1, completions=4)


def new_trainer(options=OPTIONS):
    return Trainer(policy_of(options), options)


def train(trainer, steps):
    for step in steps:
        [sampled] = generate(trainer.policy, GenerateRequest((Prompt(QUESTION),), 4, 80, step), 1024)
        group = TrainGroup("local", QUESTION, 1.0, advantages([step % 2, 1, 0, 0]), sampled)
        trainer.train(TrainRequest(step, (group,)))


def weights(trainer):
    return [value.detach().clone() for value in trainer.parameters]


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def damage(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)


@pytest.mark.parametrize("ways", [{}, {"lora": 4, "dtype": "bfloat16", "warmup": 1, "decay_rounds": 2}], ids=str)
def test_a_resumed_run_is_the_straight_run_bit_for_bit(tmp_path, ways):
    options = LearnerOptions(checkpoints="", groups=1, completions=4, **ways)
    straight = new_trainer(options)
    train(straight, range(1, 5))
    first = new_trainer(options)
    train(first, range(1, 3))
    checkpoint.save(first, tmp_path)
    resumed = new_trainer(options)
    assert checkpoint.restore(resumed, tmp_path) is None
    assert resumed.step == 2
    train(resumed, range(3, 5))
    assert equal(weights(straight), weights(resumed))
    assert equal(straight.average.values(), resumed.average.values())


@pytest.mark.parametrize(("before", "after"), [(160, 320), (320, 160)])
def test_a_step_is_as_long_as_before_if_the_operator_changed_max_tokens(tmp_path, before, after):
    """The loss is divided by it, and Adam remembers the gradients of before. None of them is clipped here."""
    options = LearnerOptions(checkpoints="", groups=1, completions=4, max_tokens=before)
    straight = new_trainer(options)
    train(straight, range(1, 4))
    checkpoint.save(straight, tmp_path)
    changed = new_trainer(replace(options, max_tokens=after))
    assert checkpoint.restore(changed, tmp_path) is None
    for trainer in (straight, changed):
        train(trainer, [4])
    for left, right in zip(weights(straight), weights(changed), strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=0)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads what is mapped as Linux tells it")
def test_a_checkpoint_is_mapped_while_it_is_copied_into_the_trainer_and_not_held(two):
    newest = tensor_folder.found(two[0], "step")[0]
    trainer = new_trainer()
    tensors = tensor_folder.read(trainer.policy, newest, FILES)
    assert mapped(newest) == list(FILES)
    Snapshot(2, *tensors).put_into(trainer)
    del tensors
    assert mapped(newest) == []


def mapped(folder):
    maps = Path("/proc/self/maps").read_text()
    return [name for name in FILES if str(folder / name) in maps]


def test_a_checkpoint_goes_on_in_another_dtype(tmp_path):
    trainer = new_trainer(LearnerOptions(checkpoints="", groups=1, completions=4, dtype="bfloat16"))
    train(trainer, [1])
    checkpoint.save(trainer, tmp_path)
    resumed = new_trainer()
    assert checkpoint.restore(resumed, tmp_path) is None
    assert equal(weights(trainer), weights(resumed))


def test_without_checkpoints_the_trainer_starts_at_step_0(tmp_path):
    trainer = new_trainer()
    assert checkpoint.restore(trainer, tmp_path / "new") is None
    assert trainer.step == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Checkpoints of steps 1 and 2, the weights of step 1, and the trainer at step 3."""
    root = tmp_path_factory.mktemp("written")
    trainer = new_trainer()
    train(trainer, [1])
    checkpoint.save(trainer, root)
    first = weights(trainer)
    train(trainer, [2])
    checkpoint.save(trainer, root)
    train(trainer, [3])
    return root, first, Snapshot.of(trainer).copy()


@pytest.fixture
def two(written, tmp_path):
    """Checkpoints of steps 1 and 2, and the weights of step 1."""
    root, first, _ = written
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    return tmp_path, first


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "meta.json"])
def test_a_corrupt_newest_checkpoint_falls_back_to_the_one_before_and_says_so(two, name):
    root, first = two
    damage(root / "step-00000002", name)
    trainer = new_trainer()
    report = checkpoint.restore(trainer, root)
    assert trainer.step == 1
    assert "fell back to step-00000001" in report
    assert equal(first, weights(trainer))


def test_a_missing_file_falls_back_as_well(two):
    root, _ = two
    (root / "step-00000002" / "optimizer.safetensors").unlink()
    trainer = new_trainer()
    checkpoint.restore(trainer, root)
    assert trainer.step == 1


def test_after_a_fallback_the_step_can_be_written_again(two):
    root, _ = two
    damage(root / "step-00000002", "weights.safetensors")
    trainer = new_trainer()
    checkpoint.restore(trainer, root)
    train(trainer, [2])
    checkpoint.save(trainer, root)
    again = new_trainer()
    assert checkpoint.restore(again, root) is None
    assert again.step == 2


def test_when_no_checkpoint_is_readable_the_learner_stops_rather_than_forgets(two):
    root, _ = two
    for folder in root.iterdir():
        damage(folder, "weights.safetensors")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="move that folder away"):
            checkpoint.restore(new_trainer(), root)


def change_meta(root, **changes):
    for folder in root.iterdir():
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps(meta | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "somebody/tiny (all weights)"}, r"belong to somebody/tiny \(all weights\), and you gave seed \(all"),
        ({}, r"belong to seed \(all weights\) before its files changed"),
    ],
)
@pytest.mark.parametrize("read", [checkpoint.restore, checkpoint.peek])
def test_a_checkpoint_of_another_model_is_refused_with_the_names_of_both(two, read, changes, words):
    root, _ = two
    change_meta(root, model="0" * 64, **changes)
    with pytest.raises(CheckpointError, match=words) as caught:
        read(new_trainer(), root)
    assert str(root) in str(caught.value)
    assert (root / "step-00000002").is_dir()


def with_adapters(**layers):
    return LearnerOptions(checkpoints="", groups=1, completions=4, lora=4, **layers)


def test_a_checkpoint_of_another_rank_says_both_ranks(two):
    root, _ = two
    asked = r"seed \(all weights\), and you gave seed \(adapters of rank 4 in all layers\)"
    with pytest.raises(CheckpointError, match=asked):
        checkpoint.restore(new_trainer(with_adapters()), root)


def test_a_checkpoint_with_adapters_in_other_layers_says_which_layers_both_have(tmp_path):
    checkpoint.save(new_trainer(with_adapters(lora_layers=1)), tmp_path)
    asked = r"\(adapters of rank 4 in the last 1 layers\), and you gave seed \(adapters of rank 4 in all layers\)"
    with pytest.raises(CheckpointError, match=asked):
        checkpoint.restore(new_trainer(with_adapters()), tmp_path)


def test_the_newest_two_are_kept(tmp_path):
    trainer = new_trainer()
    for step in (1, 2, 3):
        train(trainer, [step])
        checkpoint.save(trainer, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_an_unfinished_write_is_swept_away(two):
    root, _ = two
    shutil.copytree(root / "step-00000002", root / ".unfinished-step-00000003")
    trainer = new_trainer()
    assert checkpoint.restore(trainer, root) is None
    assert trainer.step == 2
    assert len(list(root.iterdir())) == 2


def test_a_full_disk_leaves_the_checkpoint_before_and_training_goes_on(tmp_path):
    writing = new_trainer()
    train(writing, [1])
    checkpoint.save(writing, tmp_path)
    train(writing, [2])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(CheckpointError, match="free some space") as caught:
            checkpoint.save(writing, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    train(writing, [3])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    trainer = new_trainer()
    checkpoint.restore(trainer, tmp_path)
    assert trainer.step == 1


@pytest.fixture
def at_three(written, two):
    """A trainer at step 3, checkpoints of steps 1 and 2, and the weights of step 1."""
    trainer = new_trainer()
    written[2].put_into(trainer)
    return trainer, *two


def test_going_back_restores_the_older_checkpoint_and_removes_the_newer_one(at_three):
    trainer, root, first = at_three
    checkpoint.go_back(trainer, root, 1)
    assert trainer.step == 1
    assert equal(first, weights(trainer))
    assert [path.name for path in root.iterdir()] == ["step-00000001"]


def test_after_going_back_a_run_repeats_bit_for_bit(at_three):
    trainer, root, _ = at_three
    before = weights(trainer)
    checkpoint.go_back(trainer, root, 1)
    train(trainer, [2, 3])
    assert equal(before, weights(trainer))


def test_going_back_to_a_corrupt_checkpoint_is_refused_and_nothing_is_lost(at_three):
    trainer, root, _ = at_three
    before = weights(trainer)
    damage(root / "step-00000001", "weights.safetensors")
    with pytest.raises(CheckpointError, match="checkpoint step-00000001 "):
        checkpoint.go_back(trainer, root, 1)
    assert trainer.step == 3
    assert equal(before, weights(trainer))
    assert (root / "step-00000002").is_dir()


def test_going_back_to_a_step_without_a_checkpoint_is_refused(at_three):
    trainer, root, _ = at_three
    with pytest.raises(CheckpointError, match="checkpoint step-00000007 is incomplete"):
        checkpoint.go_back(trainer, root, 7)
    assert trainer.step == 3


def test_where_the_newer_checkpoint_cannot_be_removed_the_trainer_does_not_go_back(at_three, monkeypatch):
    trainer, root, _ = at_three
    before = weights(trainer)

    def refuse(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(CheckpointError, match="not yours"):
        checkpoint.go_back(trainer, root, 1)
    assert trainer.step == 3
    assert equal(before, weights(trainer))


def test_a_start_after_a_removal_that_was_cut_short_finds_no_newer_checkpoint(at_three, monkeypatch):
    trainer, root, first = at_three
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    checkpoint.go_back(trainer, root, 1)
    monkeypatch.undo()
    again = new_trainer()
    assert checkpoint.restore(again, root) is None
    assert equal(first, weights(again))
    assert [path.name for path in root.iterdir()] == ["step-00000001"]


def test_when_all_are_removed_a_corrupt_one_that_was_set_aside_stops_no_start(two):
    root, _ = two
    damage(root / "step-00000002", "weights.safetensors")
    checkpoint.restore(new_trainer(), root)
    checkpoint.remove_after(root, 0)
    trainer = new_trainer()
    assert checkpoint.restore(trainer, root) is None
    assert trainer.step == 0


def test_the_newest_best_weights_are_found_beside_the_checkpoints(two):
    root, _ = two
    trainer = new_trainer()
    checkpoint.restore(trainer, root)
    checkpoint.save_best(trainer, root, needed=())
    again = new_trainer()
    assert checkpoint.peek_best(again, root) == 2
    assert equal(trainer.average.values(), again.average.values())
    assert equal(again.average.values(), weights(again))


def test_best_weights_that_are_no_longer_needed_are_removed(two):
    root, _ = two
    trainer = new_trainer()
    checkpoint.save_best(trainer, root, needed=())
    train(trainer, [1])
    checkpoint.save_best(trainer, root, needed=[0])
    train(trainer, [2])
    checkpoint.save_best(trainer, root, needed=[1])
    assert sorted(path.name for path in root.glob("best-*")) == ["best-00000001", "best-00000002"]


def test_damaged_best_weights_are_passed_over_and_cannot_be_loaded(two):
    root, _ = two
    trainer = new_trainer()
    checkpoint.save_best(trainer, root, needed=())
    train(trainer, [1])
    checkpoint.save_best(trainer, root, needed=[0])
    damage(root / "best-00000001", "weights.safetensors")
    assert checkpoint.peek_best(new_trainer(), root) == 0
    with pytest.raises(CheckpointError, match="best-00000001 does not match its checksums"):
        checkpoint.load_best(trainer, root, 1)


def test_best_weights_of_another_shape_are_not_used(two):
    root, _ = two
    trainer = new_trainer()
    name = next(iter(trainer.average))
    trainer.average[name] = torch.zeros(1)
    checkpoint.save_best(trainer, root, needed=())
    with pytest.raises(CheckpointError, match="best-00000000 does not fit"):
        checkpoint.load_best(new_trainer(), root, 0)


def test_going_back_removes_the_best_weights_of_later_steps(two):
    root, _ = two
    trainer = new_trainer()
    checkpoint.restore(trainer, root)
    checkpoint.save_best(trainer, root, needed=())
    checkpoint.go_back(trainer, root, 1)
    assert checkpoint.peek_best(new_trainer(), root) is None
