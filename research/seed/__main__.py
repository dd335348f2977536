"""`python -m research.seed`: build the seed policy, and measure it."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch

from research.seed import measure
from research.seed.build import build
from research.seed.recipe import Recipe
from sapo_adversary.simulator.learning import one_core
from sapo_node.cli.commands.options import PATH
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.model import load
from sapo_protocol import load_manifest

SWARM = "starter"


@click.group()
def seed() -> None:
    """Build and measure the seed policy, the small model with which a node starts."""


@seed.command("build")
@click.option("--out", type=PATH, default=POLICY_DIR, show_default=True)
def build_command(out: Path) -> None:
    """Teach a new seed policy from generated tasks; 10 to 20 minutes on one core.

    The same command gives the same bytes on the same platform. An interrupted build goes on where it stopped.
    """
    started = time.monotonic()
    configs = {spec.dataset: spec.config for spec in load_manifest(SWARM).tasks}
    # The order in which sums are taken must not depend on the machine's cores.
    with one_core():
        build(out, configs, Recipe(), lambda line: click.echo(f"{time.monotonic() - started:6.0f} s  {line}"))
    click.echo(f"wrote {out}, {sum(path.stat().st_size for path in out.iterdir()):,} bytes")


@seed.command("measure")
@click.option("--model", default="seed", show_default=True, help="`seed`, or a model folder.")
@click.option("--seeds", default=3, show_default=True, help="Independent runs, with seeds 1 to this number.")
@click.option("--rounds", default=60, show_default=True, help="Rounds of local GRPO, 8 groups of 8 each.")
@click.option("--every", default=10, show_default=True, help="Rounds between measurements.")
@click.option("--prompts", default=50, show_default=True, help="Held-out questions of each dataset.")
@click.option("--learning-rate", default=1e-4, show_default=True, help="Adam's learning rate.")
@click.option("--threads", default=1, show_default=True, help="CPU threads of torch.")
@click.option("--out", type=PATH, help="Write the record as JSON to this file.")
def measure_command(
    *,
    model: str,
    seeds: int,
    rounds: int,
    every: int,
    prompts: int,
    learning_rate: float,
    threads: int,
    out: Path | None,
) -> None:
    """Measure start, ceiling and local learning of a policy on held-out questions."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    specs = load_manifest(SWARM).tasks
    policy = load(LearnerOptions(checkpoints="", model=model))
    tasks = measure.heldout(specs, 4 * prompts)
    start = measure.pass_rate(policy, tasks, seed=0)
    best = measure.ceiling(policy, tasks, seed=0)
    click.echo(f"start pass@1 {start.overall:.3f}, with a careful opening {best.overall:.3f}")
    runs: list[dict[str, Any]] = []
    record = {
        "command": f"python -m research.seed measure --seeds {seeds} --rounds {rounds} --every {every} "
        f"--prompts {prompts} --learning-rate {learning_rate:g} --threads {threads}",
        "model": policy.fingerprint,
        "start": asdict(start),
        "ceiling": asdict(best),
        "runs": runs,
    }
    for number in range(1, seeds + 1):
        runs.append(
            {
                "seed": number,
                "records": measure.local_grpo(
                    model,
                    specs,
                    seed=number,
                    rounds=rounds,
                    every=every,
                    prompts=prompts,
                    learning_rate=learning_rate,
                    progress=click.echo,
                ),
            }
        )
        if out is not None:
            out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    seed()
