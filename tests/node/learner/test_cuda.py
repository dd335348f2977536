"""The learner on a GPU: as exact as on a CPU. Skipped where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import on_device
from tiny_models import write_model

GPU = Path("/dev/nvidiactl").exists()
pytestmark = pytest.mark.skipif(not GPU, reason="this machine has no NVIDIA GPU")


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """What `on_device` says of the seed policy and of a tiny Llama, both in float32."""
    folder = write_model(tmp_path_factory.mktemp("models") / "llama", "llama")
    visible = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, on_device.__file__, "cuda", str(folder)]
    done = subprocess.run(command, env=visible, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_tokens_are_sampled_on_a_gpu_with_the_probability_that_training_sees(rounds):
    assert max(each["from_training"] for each in rounds) < 1e-4


def test_the_gradient_on_a_gpu_is_that_of_the_cpu(rounds):
    assert max(each["gradient"] for each in rounds) < 1e-4


def test_the_same_seed_gives_the_same_completions_on_a_gpu(rounds):
    assert all(each["again"] and each["completions"] == 32 for each in rounds)
