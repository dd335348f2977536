"""What the node costs beside its bare parts. Every figure is a ratio of two things timed in turn, in one run."""

import statistics
import time

import pytest
import trio

from processes import RunningProcess, write_swarm
from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.client import Learner

pytestmark = pytest.mark.bench


async def lateness(seconds, interval=0.05):
    """How late a timer of the main process fires, in milliseconds: (median, 99th percentile)."""
    late = []
    end = trio.current_time() + seconds
    while (due := trio.current_time() + interval) < end:
        await trio.sleep_until(due)
        late.append((trio.current_time() - due) * 1e3)
    late.sort()
    return statistics.median(late), late[int(len(late) * 0.99)]


async def test_the_heartbeat_while_the_learner_trains_against_idle(tmp_path):
    learner = Learner(LearnerOptions(checkpoints=str(tmp_path)))
    prompts = ["State the final answer to the following arithmetic problem: 60 + 93 ="] * 8
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        idle = await lateness(10)

        async def busy():
            while True:
                await learner.generate([Prompt(each) for each in prompts], completions=8, max_tokens=80, seed=1)

        nursery.start_soon(busy)
        training = await lateness(10)
        nursery.cancel_scope.cancel()
    print(
        f"\nlateness of the main process's timers while the learner works / idle: median {training[0] / idle[0]:.1f}x "
        f"({training[0]:.2f} ms / {idle[0]:.2f} ms), 99 % {training[1] / idle[1]:.1f}x "
        f"({training[1]:.2f} ms / {idle[1]:.2f} ms)"
    )


def test_where_the_seconds_of_a_round_go(tmp_path):
    swarm = write_swarm(tmp_path / "bench.toml")
    with RunningProcess(tmp_path / "a", "--swarm", swarm) as first:
        started = first.until_event("started")
        trusted = tmp_path / "node.toml"
        trusted.write_text(f'trusted = ["{started["peer_id"]}"]\n')
        arguments = ("--swarm", swarm, "--bootstrap", started["addresses"][0], "--config", trusted)
        with RunningProcess(tmp_path / "b", *arguments) as second:
            second.until_round(10)
            before, phases, external = time.perf_counter(), [], 0
            for _ in range(40):
                event = second.until_round(1)
                phases.append(event["seconds"])
                external += event["external"]
            wall = time.perf_counter() - before
    spent = {phase: sum(each[phase] for each in phases) for phase in phases[0]}
    spent["wait"] = wall - sum(spent.values())
    shares = ", ".join(f"{phase} {seconds / wall:.0%}" for phase, seconds in spent.items())
    print(f"\na round takes {wall / 40:.2f} s beside another node ({external / 40:.1f} external groups): {shares}")
