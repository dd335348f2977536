"""A real vLLM on this machine's CPUs samples rounds of `smollm2-easy`, is stopped and killed, and comes back with other
limits and other weights.

`scripts/vllm-environment .venv-vllm` installs it, which `make slow` does; VLLM_VENV names another folder.
"""

import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import Generated, GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.learner.catalogue import place_of
from sapo_node.learner.server.checks import differences
from sapo_node.learner.server.generation import TOLERANCE
from sapo_node.learner.service import Service
from sapo_node.tasks.build import build_task
from sapo_protocol import load_manifest

logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

VENV = Path(os.environ.get("VLLM_VENV", Path(__file__).parents[3] / ".venv-vllm"))
MODEL = place_of("smollm2")
RANK, COMPLETIONS, MAX_TOKENS = 16, 2, 16
START_SECONDS = 900
OPTIONS = [
    *("--dtype", "float32", "--enable-lora", "--max-loras", "2", "--logprobs-mode", "processed_logprobs"),
    *("--enforce-eager", "--max-num-seqs", "8"),
]
ROOM = ["--max-lora-rank", str(RANK), "--max-model-len", "1024"]


@pytest.fixture(scope="module")
def vllm():
    if not (VENV / ".installed").exists():
        pytest.skip(f"{VENV} has no vLLM; `scripts/vllm-environment {VENV}` installs it, or says why it cannot")
    if not MODEL.is_dir():
        pytest.skip("smollm2 is not on this machine; `sapo-node model fetch smollm2` gets it")
    return VENV / "bin" / "vllm"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def serving(vllm, port, model, log, *options):
    """A vLLM that answers; its process group ends with the context."""
    environment = os.environ | {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [vllm, "serve", model, "--host", "127.0.0.1", "--port", str(port), *OPTIONS, *options]
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(map(str, command)), env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not healthy(port):
            assert process.poll() is None, f"vLLM ended: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"vLLM has not started: {log.read_text()[-3000:]}"
            time.sleep(1)
        yield process
    finally:
        end(process, signal.SIGKILL)


def healthy(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def end(process, how):
    """Send a signal to vLLM. SIGKILL goes to all of its processes, as `kill -9` of a container does."""
    if how == signal.SIGKILL:
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        process.wait(60)
    else:
        process.send_signal(how)


class Node:
    """A learner in this process, which plays rounds of `smollm2-easy`."""

    def __init__(self, root, port):
        self.service = Service(
            LearnerOptions(
                checkpoints=str(root / "checkpoints"),
                model=str(MODEL),
                lora=RANK,
                dtype="float32",
                server=f"http://127.0.0.1:{port}",
                groups=2,
                completions=COMPLETIONS,
                max_tokens=MAX_TOKENS,
                learning_rate=4e-4,
            )
        )
        self.compared = []

    def play(self, number, *, examples=1, max_tokens=MAX_TOKENS):
        """Sample a round, and take a step on it. Return the notice."""
        prompts = prompts_of_round(number, examples)
        request = GenerateRequest(prompts, COMPLETIONS, max_tokens, seed=number)
        started = time.monotonic()
        generated = from_json(Generated, self.service.answer({"generate": to_json(request)}))
        seconds = time.monotonic() - started
        assert [len(group) for group in generated.groups] == [COMPLETIONS, COMPLETIONS]
        self.compared.append(self.difference(prompts, generated))
        logger.info("round %d: %.1f s, %.5f nats; %s", number, seconds, self.compared[-1], generated.notice)
        groups = tuple(
            TrainGroup("local", prompt.text, 1.0, (1.0, -1.0), group, str(place), prompt.examples)
            for place, (prompt, group) in enumerate(zip(prompts, generated.groups, strict=True))
        )
        self.service.answer({"train": to_json(TrainRequest(self.service._trainer.step + 1, groups))})
        return generated.notice

    def difference(self, prompts, generated):
        """The mean difference, in nats, of the log-probabilities of all completions from those of this node."""
        policy = self.service._trainer.policy
        tokens = [tuple(policy.prompt_tokens(prompt)) for prompt in prompts]
        return float(differences(policy, tokens, generated.groups).mean())


def prompts_of_round(number, examples):
    tasks = load_manifest("smollm2-easy").tasks[:2]
    built = [[build_task(spec.dataset, spec.config, 1000 * number + seed) for seed in range(3)] for spec in tasks]
    return tuple(
        Prompt(task.prompt, tuple(Example(each.prompt, "<answer>1</answer>") for each in others[:examples]))
        for task, *others in built
    )


@contextmanager
def soon(process, how):
    """Send the signal while the context waits for a reply."""
    timer = threading.Timer(4, end, (process, how))
    timer.start()
    yield
    timer.join()


@torch.no_grad()
def other_weights(folder):
    """Change each weight by 2 % of the spread of its matrix."""
    rng, path = torch.Generator().manual_seed(0), folder / "model.safetensors"
    weights = load_file(path)
    for name, value in weights.items():
        if value.dim() == 2:
            noise = torch.randn(value.shape, generator=rng) * value.float().std()
            weights[name] = (value.float() + 0.02 * noise).to(value.dtype)
    save_file(weights, path, metadata={"format": "pt"})


def test_rounds_are_sampled_by_vllm_while_it_lives(vllm, tmp_path):
    port, log = free_port(), tmp_path / "vllm.log"
    node = Node(tmp_path, port)
    with serving(vllm, port, MODEL, log, *ROOM) as process:
        assert "it samples with vLLM" in node.play(1)
        assert [node.play(number) for number in (2, 3)] == [None, None]
        assert max(node.compared) < TOLERANCE["float32"]
        with soon(process, signal.SIGKILL):
            assert "The node samples by itself" in node.play(4, max_tokens=200)
        assert process.poll() is not None

    with serving(vllm, port, MODEL, log, "--max-lora-rank", "8", "--max-model-len", "128"):
        refused = node.play(5, examples=0)
        assert "LoRA rank 16 is greater than max_lora_rank" in refused
        assert "vLLM needs --enable-lora, --max-lora-rank 16 or more" in refused
        assert node.play(6, examples=0) is None
        short = node.play(7, examples=2, max_tokens=100)
        assert "it takes 128 tokens, and a prompt of" in short
        assert "with 100 new ones takes" in short

    served = tmp_path / "served-model"
    shutil.copytree(MODEL, served)
    other_weights(served)
    with serving(vllm, port, served, log, *ROOM):
        assert "which is another model than" in node.play(8)
        # Now the folders are equal, and only what vLLM has in memory differs.
        shutil.copyfile(MODEL / "model.safetensors", served / "model.safetensors")
        assert "it has other weights" in node.play(9)

    with serving(vllm, port, MODEL, log, *ROOM) as process:
        assert "it samples with vLLM" in node.play(10)
        with soon(process, signal.SIGTERM):
            assert "The node samples by itself" in node.play(11, max_tokens=200)
