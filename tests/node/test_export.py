"""What a node has learnt, as a folder that anybody loads."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sapo_node.advantage import advantages
from sapo_node.learner import checkpoint
from sapo_node.learner.export import export
from sapo_node.learner.generate import generate
from sapo_node.learner.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_protocol import LocalError

QUESTION = "What is 2 + 2?"


def learnt(folder, steps=2, **ways):
    """A policy after a few steps, its checkpoint in the folder; and the options that name both."""
    options = LearnerOptions(checkpoints=str(folder), groups=1, completions=4, learning_rate=0.01, **ways)
    trainer = Trainer(load(options), options)
    for step in range(1, steps + 1):
        [sampled] = generate(trainer.policy, GenerateRequest((QUESTION,), 4, 80, step), 1024)
        trainer.train(TrainRequest(step, (TrainGroup("local", QUESTION, 1.0, advantages([1, 1, 0, 0]), sampled),)))
    checkpoint.save(trainer, folder)
    return trainer, options


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """All weights, after two steps."""
    return learnt(tmp_path_factory.mktemp("plain") / "checkpoints")


@pytest.fixture
def options(plain, tmp_path):
    """Of the same, with a copy of its checkpoint."""
    shutil.copytree(plain[1].checkpoints, tmp_path / "checkpoints")
    return replace(plain[1], checkpoints=str(tmp_path / "checkpoints"))


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits


@pytest.mark.parametrize("lora", [0, 4], ids=["all weights", "adapters"])
def test_the_folder_loads_as_any_other_and_answers_as_the_node_does(tmp_path, plain, lora):
    trainer, options = learnt(tmp_path / "checkpoints", lora=lora) if lora else plain
    assert export(options, tmp_path / "out") == 2
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokens = torch.tensor([trainer.policy.prompt(QUESTION)])
    torch.testing.assert_close(logits(model, tokens), logits(trainer.policy.model, tokens), atol=1e-4, rtol=1e-4)
    untaught = load(replace(options, lora=0)).model
    assert not torch.allclose(logits(model, tokens), logits(untaught, tokens), atol=1e-3)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("2 + 2")["input_ids"]


def test_nothing_changes_where_the_checkpoints_lie(tmp_path, options):
    (tmp_path / "checkpoints" / ".unfinished-step-00000003").mkdir()
    before = sorted(path.name for path in (tmp_path / "checkpoints").rglob("*"))
    export(options, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "checkpoints").rglob("*")) == before


def test_a_damaged_checkpoint_is_passed_over(tmp_path, options):
    newest = tmp_path / "checkpoints" / "step-00000009"
    shutil.copytree(tmp_path / "checkpoints" / "step-00000002", newest)
    (newest / "weights.safetensors").write_bytes(b"nothing")
    assert export(options, tmp_path / "out") == 2
    assert newest.exists()


def test_a_node_without_a_checkpoint_says_when_there_will_be_one(tmp_path):
    with pytest.raises(LocalError, match="every ten rounds"):
        export(LearnerOptions(checkpoints=str(tmp_path / "none")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(LocalError, match="already"):
        export(LearnerOptions(checkpoints=str(tmp_path)), tmp_path / "out")


def test_the_program_says_the_step_or_what_is_wrong_in_one_line(tmp_path, options):
    command = [sys.executable, "-m", "sapo_node.learner.export", json.dumps(asdict(options)), str(tmp_path / "out")]
    first, again = (subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2))
    assert json.loads(first.stdout) == {"step": 2}
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1].endswith("name a folder that is not")
