"""`make bench-learner`: full rounds of this learner beside TRL's GRPOTrainer, in turn, each in a process of its own.

`make bench-learner MODEL=smollm2` compares them on SmolLM2 instead of the seed policy, after `sapo-node fetch smollm2`,
and `make bench-learner MODEL=smollm2 DEVICE=cuda` on a GPU. GROUPS=64 and TOKENS=512 give rounds another size, and
ROUNDS=2 another number of them.

On a CPU they are compared by CPU-seconds of one thread, which other work on the machine disturbs less than the clock on
the wall.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import learner_worker as worker
import torch

WORKER = Path(worker.__file__)
RESULTS = Path("results")
WARM_UP = 1
GROUPS = 8
ROUNDS = {("seed", "cpu"): 5, ("smollm2", "cpu"): 2, ("seed", "cuda"): 5, ("smollm2", "cuda"): 5}
REWARDS = {"seed": ("task", "one-in-each-group"), "smollm2": ("one-in-each-group",)}
"""By the tasks' own scorers, under which most groups are flat, and with one winner in every group, so that none is."""
LEARNERS = ("ours", "trl")
CLOCKS = {"cpu": "CPU-seconds of one thread", "cuda": "seconds"}
PHASES = ("generate", "score", "forward_backward", "optimizer", "other")


class Worker:
    """A learner's process, which takes a round when told to."""

    def __init__(self, learner, setting, scratch):
        command = [sys.executable, str(WORKER), learner, json.dumps(asdict(setting))]
        environment = os.environ | {"PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=scratch, env=environment
        )

    def told(self):
        """Return the next figures. Raises RuntimeError where the process ended instead."""
        for line in self._process.stdout:
            if line.startswith(worker.MARK):
                return json.loads(line.removeprefix(worker.MARK))
        raise RuntimeError(f"a worker ended early, with {self._process.wait()}")

    def round(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.told()

    def end(self):
        last = self.told()
        self._process.stdin.close()
        self._process.wait()
        return last


def measure(setting, scratch):
    """Return each learner's figures over the same questions, its rounds alternating with the other's."""
    workers = {learner: Worker(learner, setting, scratch) for learner in LEARNERS}
    loaded = {learner: worker.told()["peak_mib"] for learner, worker in workers.items()}
    rounds = {learner: [] for learner in LEARNERS}
    for number in range(setting.rounds):
        for learner in LEARNERS if number % 2 else reversed(LEARNERS):
            rounds[learner].append(workers[learner].round())
    peak = {learner: worker.end()["peak_mib"] for learner, worker in workers.items()}
    return [
        {
            "rewards": setting.rewards,
            "learner": learner,
            **summary(rounds[learner][WARM_UP:]),
            "loaded_mib": round(loaded[learner]),
            "peak_mib": round(peak[learner]),
        }
        for learner in LEARNERS
    ]


def summary(rounds):
    def mean(values):
        return sum(values) / len(rounds)

    seconds, tokens = mean(each["seconds"] for each in rounds), mean(each["tokens"] for each in rounds)
    return {
        "seconds": round(seconds, 4),
        "wall_seconds": round(mean(each["wall"] for each in rounds), 4),
        "tokens": round(tokens, 1),
        "longest": round(mean(each["longest"] for each in rounds), 1),
        "flat_groups": round(mean(each["flat"] for each in rounds), 2),
        "tokens_per_second": round(tokens / seconds),
        "phases": {name: round(mean(each["phases"][name] for each in rounds), 4) for name in PHASES},
        "seconds_of_each_round": [round(each["seconds"], 4) for each in rounds],
    }


def show(setting, results):
    size = f"{setting.groups} x {worker.COMPLETIONS} completions of {setting.options.max_tokens} tokens"
    clock, rounds = CLOCKS[setting.device], setting.rounds - WARM_UP
    print(f"\n{setting.model}, {size} at most, on {setting.device}: {clock}, mean of {rounds} rounds\n")
    heads = ("rewards", "learner", "round", *PHASES, "tokens", "tokens/s", "peak MiB")
    rows = [
        (
            each["rewards"],
            each["learner"],
            f"{each['seconds']:.3f}",
            *(f"{each['phases'][name]:.3f}" for name in PHASES),
            f"{each['tokens']:.0f}",
            str(each["tokens_per_second"]),
            str(each["peak_mib"]),
        )
        for each in results
    ]
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    for row in [heads, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    print()
    for ours, trl in zip(results[::2], results[1::2], strict=True):
        ratio = ours["tokens_per_second"] / trl["tokens_per_second"]
        memory = ours["peak_mib"] / trl["peak_mib"]
        print(f"{ours['rewards']}: {ratio:.2f}x TRL's tokens per second in {memory:.2f}x its peak memory")


def main(model, device, groups, tokens, rounds):
    counted = int(rounds or ROUNDS[model, device])
    shape = (counted + WARM_UP, device, int(groups or GROUPS), int(tokens) if tokens else None)
    settings = [worker.Setting(model, rewards, *shape) for rewards in REWARDS[model]]
    with tempfile.TemporaryDirectory() as scratch:
        results = [figures for setting in settings for figures in measure(setting, scratch)]
    setting = settings[0]
    trl = worker.trl_settings(setting).to_dict()
    given = {"MODEL": model, "DEVICE": device, "GROUPS": groups, "TOKENS": tokens, "ROUNDS": rounds}
    named = [f"{name}={value}" for name, value in given.items() if value not in ("", "seed", "cpu")]
    kept = ("loss_type", "beta", "epsilon", "epsilon_high", "temperature", "scale_rewards", "num_iterations", "optim")
    kept += ("gradient_checkpointing", "bf16", "per_device_train_batch_size", "gradient_accumulation_steps")
    report = {
        "command": " ".join(["make bench-learner", *named]),
        "versions": {name: version(name) for name in ("torch", "transformers", "trl", "accelerate")},
        "python": platform.python_version(),
        "config": {
            "groups": setting.groups,
            "completions": worker.COMPLETIONS,
            "max_tokens": setting.options.max_tokens,
            "threads": 1,
            "rounds": counted,
            "warm_up": WARM_UP,
            "model": model,
            "dtype": setting.options.dtype,
            "device": device if device == "cpu" else torch.cuda.get_device_name(),
            "clock": CLOCKS[device],
            "trl": {name: trl[name] for name in kept},
        },
        "results": results,
    }
    endings = [f"_{each.partition('=')[2]}" for each in named]
    result = RESULTS / f"bench_learner{''.join(endings)}.json"
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps(report, indent=1) + "\n")
    show(setting, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
