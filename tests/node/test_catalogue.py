"""A swarm is joined only by a node that builds and scores its tasks as the others do."""

from dataclasses import replace

import pytest

from sapo_node.verification.compatibility import require_catalogue
from sapo_node.verification.sandbox import Jail
from sapo_protocol import LocalError, load_manifest, shipped_manifests

INTEROP, STARTER = load_manifest("interop"), load_manifest("starter")


@pytest.fixture
async def jail(nursery):
    jail = Jail()
    await nursery.start(jail.run)
    return jail


async def test_every_shipped_swarm_can_be_joined(jail):
    for name in shipped_manifests():
        await require_catalogue(load_manifest(name), jail)


async def test_a_swarm_without_a_version_of_reasoning_gym_may_have_no_dataset_of_it(jail):
    borrowed = replace(INTEROP, tasks=INTEROP.tasks + STARTER.tasks[:1])
    await require_catalogue(replace(borrowed, reasoning_gym=jail.reasoning_gym), jail)
    with pytest.raises(LocalError, match="datasets products; set reasoning_gym"):
        await require_catalogue(borrowed, jail)


async def test_a_swarm_on_another_version_of_reasoning_gym_is_refused(jail):
    with pytest.raises(LocalError, match=r"pip install reasoning-gym==0\.0\.1"):
        await require_catalogue(replace(STARTER, reasoning_gym="0.0.1"), jail)


async def test_a_swarm_that_scores_by_a_version_that_is_not_here_is_refused(jail):
    """Else this node would take every honest peer for a liar."""
    later = replace(STARTER, tasks=(replace(STARTER.tasks[0], scorer=2),))
    with pytest.raises(LocalError, match="scores products by version 2"):
        await require_catalogue(later, jail)


async def test_a_task_that_cannot_be_built_is_named(jail):
    broken = replace(INTEROP, tasks=(*INTEROP.tasks, replace(INTEROP.tasks[0], config={"max": 0})))
    with pytest.raises(LocalError, match="task 4 of swarm 'interop', interop_sum with"):
        await require_catalogue(broken, jail)
