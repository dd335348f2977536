"""Plays the experiment `three-nodes` with TRL: every member is a `sapo-node start --feed` and a GRPOTrainer beside it.

    python tests/benchmarks/trl_swarm.py results        # writes results/three_nodes_trl.json and its picture

Real processes, real libp2p on loopback, and real time. The arms, the seeds, the learning rate and the held-out prompts
are those of the experiment's file. A finished run is kept in `results/runs`, and the same command continues. Rounds are
told by the node; tokens and CPU-seconds are those of the process of the trainer.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

from sapo_adversary.experiments.experiment import load_experiment
from sapo_adversary.experiments.plots import draw
from sapo_adversary.experiments.summary import summarise
from sapo_adversary.files import to_json
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.learners import learner_for, set_up
from sapo_node.client import Feed, newest
from sapo_node.learner.folder import POLICY_DIR
from sapo_protocol import load_manifest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from processes import RunningProcess, write_swarm  # noqa: E402 - they are found through the line above

NAME = "three_nodes_trl"
GROUPS, COMPLETIONS = 8, 8
ROUND_SECONDS = 10.0  # of the simulation: how many rounds the experiment's seconds are
PACKAGES = ("sapo-node", "torch", "transformers", "trl", "accelerate")


class MeasuredFeed(Feed):
    """A feed that counts the tokens of each round."""

    def __init__(self, file):
        super().__init__(file)
        self.generated, self.cpu, self.trained = [], [], {"local": 0, "external": 0}

    def next_batch(self, sample):
        def counted(asked):
            groups = sample(asked)
            tokens = sum(len(each.tokens) for group in groups for each in group)
            self.generated.append(tokens + (self.generated[-1] if self.generated else 0))
            return groups

        return super().next_batch(counted)

    def report(self, batch, groups, **figures):
        for group in batch.groups:
            self.trained[group.source] += groups[group.id].tokens
        self.cpu.append(round(time.process_time(), 1))
        super().report(batch, groups, **figures)


def be_member(file, folder, seed, steps, learning_rate, max_tokens):  # noqa: PLR0917 - its command line
    """Train as one member, in a process of its own."""
    from trl import GRPOConfig

    from sapo_node.trl import train

    settings = GRPOConfig(
        output_dir=str(folder / "trl"),
        seed=int(seed),
        max_steps=int(steps),
        learning_rate=float(learning_rate),
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        num_generations=COMPLETIONS,
        per_device_train_batch_size=GROUPS * COMPLETIONS,
        gradient_accumulation_steps=1,
        max_completion_length=int(max_tokens),
        loss_type="dr_grpo",
        save_steps=10,
        save_total_limit=3,
    )
    feed = MeasuredFeed(file)
    train("seed", feed, settings)
    measured = {"generated": feed.generated, "trained": feed.trained, "cpu": feed.cpu}
    (folder / "measured.json").write_text(json.dumps(measured))


def play(simulation, folder):
    """Play one run. Returns the record that `summarise` reads: nodes, and CPU-seconds of each round."""
    [spec] = simulation.nodes
    steps = int(simulation.seconds / ROUND_SECONDS)
    folder.mkdir(parents=True)
    swarm = write_swarm(folder / "swarm.toml")
    options = ("--swarm", swarm, "--no-train", "--feed", "--dashboard", "off", "--max-tokens", spec.max_tokens)
    options += ("--local", spec.local, "--external", spec.external)
    with ExitStack() as stack:
        nodes, known = [], ()
        for place in range(spec.count):
            node = stack.enter_context(RunningProcess(folder / str(place), *options, *known))
            address = node.until_event("started")["addresses"][0]
            known = known or ("--bootstrap", address) if spec.external else ()
            nodes.append(node)
        members = [
            _member(node.folder, simulation.seed * spec.count + place, steps, spec) for place, node in enumerate(nodes)
        ]
        failed = [member for member in members if member.wait()]
        rounds = [_rounds(node, steps) for node in nodes]
    if failed:
        raise RuntimeError(f"a trainer ended early: see {folder}")
    return _record(simulation, nodes, rounds)


def _member(folder, seed, steps, spec):
    [file] = (folder / "state").rglob("feed.json")
    command = [sys.executable, __file__, "member", file, folder, seed, steps, spec.learning_rate, spec.max_tokens]
    log = (folder / "trainer.log").open("w")
    environment = {**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*map(str, command)], stdout=log, stderr=log, env=environment)


def _rounds(node, steps):
    """The rounds that the node has told of."""
    node.until(lambda event: event["event"] == "round" and event["step"] == steps)
    return [event for event in node.events if event["event"] == "round"]


def _record(simulation, nodes, rounds):
    measured = [json.loads((node.folder / "measured.json").read_text()) for node in nodes]
    last = [newest(node.folder / "trl")[1] for node in nodes]
    return {
        "scenario": {"nodes": [{"role": "", "count": len(nodes)}]},
        "nodes": [
            {
                "peer": node.folder.name,
                "rounds": {
                    **{name: [each[name] for each in told] for name in ("reward", "informative", "local", "external")},
                    "generated_tokens": counted["generated"],
                },
                "heldout": [heldout(model, place, simulation) for model in (POLICY_DIR, checkpoint)],
                "trained": {
                    "own": {"tokens": counted["trained"]["local"]},
                    "peers": {"tokens": counted["trained"]["external"]},
                },
            }
            for place, (node, told, counted, checkpoint) in enumerate(zip(nodes, rounds, measured, last, strict=True))
        ],
        "timing": {"cpu_seconds": [counted["cpu"] for counted in measured]},
    }


def heldout(model, place, simulation):
    """Held-out pass@1 of a model folder, as the simulator measures it."""
    measured = replace(simulation, nodes=tuple(replace(spec, model=str(model)) for spec in simulation.nodes))
    scorer = SharedScorer()
    with set_up(measured):
        learner = learner_for(measured, load_manifest(simulation.swarm), place, ROOT, scorer)
        per_task = learner.examine(scorer, simulation.final_questions)
    at = 0 if model == POLICY_DIR else int(simulation.seconds / ROUND_SECONDS)
    return {"round": at, "pass_at_1": fmean(per_task.values()), "per_task": per_task}


def main(output):
    experiment = load_experiment("three-nodes")
    records = output / "runs"
    for simulation in experiment.all_simulations():
        record = _file(records, simulation)
        if not record.exists():
            played = play(simulation, output / "scratch" / f"{record.stem}-{time.time():.0f}")
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(to_json(played))
            print(record.stem, flush=True)
    found = {
        arm: [json.loads(_file(records, each).read_text()) for each in experiment.simulations(arm)]
        for arm in experiment.arms
    }
    title = experiment.title.replace("3 nodes", "3 nodes with TRL")
    summary = {
        **summarise(replace(experiment, title=title), found),
        "command": "python tests/benchmarks/trl_swarm.py results",
        "versions": {package: version(package) for package in PACKAGES},
    }
    (output / f"{NAME}.json").write_text(to_json(summary))
    draw(summary, output / f"{NAME}.svg")


def _file(records, simulation):
    """Where the record of a run is kept."""
    return records / f"trl-{simulation.name.replace('/', '-')}-{simulation.seed}.json"


if __name__ == "__main__":
    if sys.argv[1] == "member":
        be_member(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
    else:
        main(Path(sys.argv[1]).resolve())
