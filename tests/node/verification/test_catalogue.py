"""A swarm is joined only by a node that builds and scores its tasks as the others do."""

from dataclasses import replace

import pytest
import trio

from sapo_node.tasks import DATASETS
from sapo_node.verification import catalogue
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox import sandbox as sandbox_module
from sapo_protocol import LocalError, load_manifest, shipped_manifests

INTEROP, STARTER = load_manifest("interop"), load_manifest("starter")


async def test_every_shipped_swarm_can_be_joined(sandbox):
    for name in shipped_manifests():
        await require_catalogue(load_manifest(name), sandbox)


def swarm_of(*datasets):
    """A swarm of datasets with their default configuration."""
    return replace(STARTER, tasks=tuple(replace(STARTER.tasks[0], dataset=each, config={}) for each in datasets))


[ARC] = swarm_of("arc_agi").tasks


async def join(manifest):
    """Check a swarm with a sandbox of its own: the shared one has the datasets of shipped swarms alone."""
    own = sandbox_module.Sandbox(manifest.tasks)
    async with trio.open_nursery() as nursery:
        await nursery.start(own.run)
        await require_catalogue(manifest, own)
        nursery.cancel_scope.cancel()


async def test_datasets_that_import_modules_or_read_a_file_for_their_items_can_be_built_in_the_sandbox():
    importing = swarm_of("needle_haystack", "coin_flip", "pool_matrix")  # simple_equations is in a shipped swarm
    reading = replace(ARC, config={"shuffle_example_order": False})
    await join(replace(importing, tasks=(*importing.tasks, reading)))


@pytest.mark.slow
@pytest.mark.parametrize("some", [sorted(DATASETS)[::2], sorted(DATASETS)[1::2]], ids=["odd", "even"])
async def test_every_dataset_can_be_in_a_swarm_that_a_node_joins(some):
    await join(swarm_of(*some))


async def test_a_swarm_without_a_version_of_reasoning_gym_may_have_no_dataset_of_it(sandbox):
    borrowed = replace(INTEROP, tasks=INTEROP.tasks + STARTER.tasks[:1])
    await require_catalogue(replace(borrowed, reasoning_gym=sandbox.reasoning_gym), sandbox)
    with pytest.raises(LocalError, match="only reasoning-gym could have: products; set reasoning_gym"):
        await require_catalogue(borrowed, sandbox)


async def test_a_swarm_on_another_version_of_reasoning_gym_is_refused(sandbox):
    with pytest.raises(LocalError, match=r"pip install reasoning-gym==0\.0\.1"):
        await require_catalogue(replace(STARTER, reasoning_gym="0.0.1"), sandbox)


async def test_a_swarm_that_scores_by_a_version_that_is_not_here_is_refused(sandbox):
    """Else this node would take every honest peer for a liar."""
    later = replace(STARTER, tasks=(replace(STARTER.tasks[0], scorer=3),))
    with pytest.raises(LocalError, match="scores products by version 3"):
        await require_catalogue(later, sandbox)


async def test_a_swarm_with_a_task_of_two_turns_is_refused(sandbox):
    talk = replace(STARTER, tasks=(*STARTER.tasks, replace(STARTER.tasks[0], turns=2)))
    with pytest.raises(LocalError, match="swarm 'starter' has a task of 2 turns, and this version plays"):
        await require_catalogue(talk, sandbox)


async def test_an_item_that_no_time_was_left_for_is_not_another_item(sandbox):
    class Busy:
        plugins, broken_plugins, reasoning_gym = sandbox.plugins, sandbox.broken_plugins, sandbox.reasoning_gym

        async def score(self, requests):
            first, *others = await sandbox.score(requests)
            return [None, *others] if others else [first]

    await require_catalogue(swarm_of("lcm"), Busy())


async def test_a_library_that_builds_other_items_is_refused(sandbox, monkeypatch):
    await require_catalogue(swarm_of("lcm"), sandbox)
    monkeypatch.setattr(catalogue, "known_hashes", lambda: {"lcm": ["00000000"] * 16})
    with pytest.raises(LocalError, match="builds other items of lcm than its peers"):
        await require_catalogue(swarm_of("lcm"), sandbox)


async def test_a_task_that_takes_too_long_is_named_and_not_the_first_one(sandbox, monkeypatch):
    monkeypatch.setattr(sandbox_module, "ITEM_SECONDS", 0.2)
    endless = replace(
        STARTER.tasks[1], dataset="chain_sum", config={"min_digits": 50_000_000, "max_digits": 50_000_000}
    )
    with pytest.raises(LocalError, match="task 2 of swarm 'starter', chain_sum with"):
        await require_catalogue(replace(STARTER, tasks=(STARTER.tasks[0], endless)), sandbox)


async def test_a_task_that_cannot_be_built_is_named(sandbox):
    broken = replace(INTEROP, tasks=(*INTEROP.tasks, replace(INTEROP.tasks[0], config={"max": 0})))
    with pytest.raises(LocalError, match="task 4 of swarm 'interop', interop_sum with"):
        await require_catalogue(broken, sandbox)
