"""What confinement costs: scoring a batch of 100 in the sandbox against scoring it in this process."""

import statistics
import time

import pytest
import trio

from sapo_node.tasks import build_task, score, task_digest
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol.manifest import load_manifest

ROUNDS = 15


def batch_of_100(manifest: str) -> list[ScoreRequest]:
    specs = load_manifest(manifest).tasks
    requests = []
    for seed in range(100):
        spec = specs[seed % len(specs)]
        answer = build_task(spec.dataset, spec.config, seed).answer
        texts = tuple(f"Let me think about it.\n<answer>{answer}</answer>" for _ in range(8))
        requests.append(ScoreRequest(spec.dataset, spec.config, seed, texts))
    return requests


def score_here(batch: list[ScoreRequest]) -> None:
    for item in batch:
        task = build_task(item.dataset, item.config, item.seed)
        task_digest(task.prompt, task.answer)
        for text in item.completions:
            score(task, text)


@pytest.mark.bench
@pytest.mark.parametrize("manifest", ["starter", "paper-nine"])
async def test_sandbox_against_in_process(
    nursery: trio.Nursery, manifest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = Sandbox(load_manifest(manifest).tasks)
    await nursery.start(sandbox.run)
    batch = batch_of_100(manifest)
    score_here(batch)
    await sandbox.score(batch)
    inside, outside = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        score_here(batch)
        middle = time.perf_counter()
        results = await sandbox.score(batch)
        outside.append(middle - start)
        inside.append(time.perf_counter() - middle)
        assert None not in results
    sandboxed, plain = statistics.median(inside), statistics.median(outside)
    with capsys.disabled():
        print(
            f"\nsandbox/in-process, {manifest}, batch of 100: {sandboxed / plain:.1f}x"
            f" ({1e3 * sandboxed:.0f} ms / {1e3 * plain:.1f} ms)"
        )
