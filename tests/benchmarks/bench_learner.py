"""`make bench-learner`: full rounds of this learner beside TRL's GRPOTrainer, in turn, each in a process of its own.

The continuous batching of transformers takes part too. It only generates, and is compared by its tokens for each second
of generation.

`make bench-learner MODEL=smollm2` compares them on SmolLM2 instead of the seed policy, after `sapo-node model fetch
smollm2`, and `make bench-learner MODEL=smollm2 DEVICE=cuda` on a GPU. GROUPS=64 and TOKENS=512 give rounds another
size, and ROUNDS=2 another number of them.

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

import batching_worker
import learner_worker as worker
import torch

from sapo_node.learner.device import pick_dtype

RESULTS = Path("results")
WARM_UP = 1
GROUPS = 8
ROUNDS = {("seed", "cpu"): 5, ("smollm2", "cpu"): 2, ("seed", "cuda"): 5, ("smollm2", "cuda"): 5}
REWARDS = {"seed": ("task", "one-in-each-group"), "smollm2": ("one-in-each-group",)}
"""By the tasks' own scorers, under which most groups are flat, and with one winner in every group, so that none is."""
LEARNERS = {"ours": worker, "trl": worker, "transformers": batching_worker}
"""By name, what runs in its process."""
CLOCKS = {"cpu": "CPU-seconds of one thread", "cuda": "seconds"}
PHASES = ("generate", "score", "forward_backward", "optimizer", "other")


class Worker:
    """A learner's process, which takes a round when told to."""

    def __init__(self, learner, setting, scratch):
        command = [sys.executable, LEARNERS[learner].__file__, learner, json.dumps(asdict(setting))]
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
    """Return each learner's figures over the same questions, its rounds alternating with the others'."""
    workers = {learner: Worker(learner, setting, scratch) for learner in LEARNERS}
    loaded = {learner: worker.told() for learner, worker in workers.items()}
    for learner, told in loaded.items():
        if "refused" in told:
            print(f"{learner} cannot run {setting.model} on {setting.device}: {told['refused']}")
    taking = [learner for learner in LEARNERS if "refused" not in loaded[learner]]
    rounds = {learner: [] for learner in taking}
    for number in range(setting.rounds):
        for learner in taking if number % 2 else reversed(taking):
            rounds[learner].append(workers[learner].round())
    peak = {learner: workers[learner].end()["peak_mib"] for learner in taking}
    return [
        {
            "rewards": setting.rewards,
            "learner": learner,
            **summary(rounds[learner][WARM_UP:]),
            "loaded_mib": round(loaded[learner].pop("peak_mib")),
            "peak_mib": round(peak[learner]),
            **loaded[learner],
        }
        for learner in taking
    ]


def summary(rounds):
    def mean(values):
        return sum(values) / len(rounds)

    seconds, tokens = mean(each["seconds"] for each in rounds), mean(each["tokens"] for each in rounds)
    phases = {name: mean(each["phases"][name] for each in rounds) for name in PHASES}
    return {
        "seconds": round(seconds, 4),
        "wall_seconds": round(mean(each["wall"] for each in rounds), 4),
        "tokens": round(tokens, 1),
        "longest": round(mean(each["longest"] for each in rounds), 1),
        "flat_groups": round(mean(each["flat"] for each in rounds), 2),
        "tokens_per_second": round(tokens / seconds, 2),
        "generated_per_second": round(tokens / phases["generate"], 2),
        "phases": {name: round(value, 4) for name, value in phases.items()},
        "seconds_of_each_round": [round(each["seconds"], 4) for each in rounds],
    }


def show(setting, results):
    size = f"{setting.groups} x {worker.COMPLETIONS} completions of {setting.options.max_tokens} tokens"
    clock, rounds = CLOCKS[setting.device], setting.rounds - WARM_UP
    print(f"\n{setting.model}, {size} at most, on {setting.device}: {clock}, mean of {rounds} rounds\n")
    heads = ("rewards", "learner", "round", *PHASES, "tokens", "tokens/s", "generated/s", "peak MiB")
    rows = [heads, *map(row, results)]
    widths = [max(len(cells[place]) for cells in rows) for place in range(len(heads))]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)))
    print()
    for rewards in dict.fromkeys(each["rewards"] for each in results):
        compare({each["learner"]: each for each in results if each["rewards"] == rewards})


def row(figures):
    """Return the cells of a learner; those of training are empty where it only generates."""
    phases, trains = figures["phases"], figures["phases"]["forward_backward"] > 0
    return (
        figures["rewards"],
        figures["learner"],
        f"{figures['seconds']:.3f}" if trains else "",
        *(f"{phases[name]:.3f}" if trains or name == "generate" else "" for name in PHASES),
        f"{figures['tokens']:.0f}",
        f"{figures['tokens_per_second']:.1f}" if trains else "",
        f"{figures['generated_per_second']:.1f}",
        str(figures["peak_mib"]),
    )


def compare(learners):
    """Tell what a second and the memory of ours are worth beside those of the others with the same rewards."""
    ours, trl = learners["ours"], learners["trl"]
    ratio = ours["tokens_per_second"] / trl["tokens_per_second"]
    memory = ours["peak_mib"] / trl["peak_mib"]
    print(f"{ours['rewards']}: {ratio:.2f}x TRL's tokens per second in {memory:.2f}x its peak memory")
    for name, other in learners.items():
        if name != "ours":
            ratio = ours["generated_per_second"] / other["generated_per_second"]
            print(f"{ours['rewards']}: {ratio:.2f}x the tokens of {name} per second of generation")


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
            "dtype": str(pick_dtype(setting.options.dtype, torch.device(device))).removeprefix("torch."),
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
