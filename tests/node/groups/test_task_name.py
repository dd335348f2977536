"""Tasks of one dataset in several configurations have names of their own, and share nothing that is kept by task."""

import random
from dataclasses import replace

import pytest

from context import context_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.prompt import task_name
from sapo_node.training.evaluation import measure
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.catalogue import build_examples
from sapo_node.verification.verifier import Verifier
from sapo_protocol import TaskSpec, load_manifest, shipped_manifests
from swarm_parts import KnowingScorer, OpenScorer, Oracle

EASY, HARD = {"min_digits": 1, "max_digits": 1}, {"min_digits": 4, "max_digits": 4}
NAMES = {"products 1", "products 2", "chain_sum"}


@pytest.fixture
def twice():
    """A manifest with easy and hard products."""
    tasks = (TaskSpec("products", EASY, 1), TaskSpec("chain_sum", {}, 1), TaskSpec("products", HARD, 1))
    return replace(load_manifest("starter"), tasks=tasks)


@pytest.mark.parametrize("swarm", shipped_manifests())
def test_a_task_of_which_the_dataset_is_listed_once_has_the_name_of_the_dataset(swarm):
    manifest = load_manifest(swarm)
    names = [task_name(manifest, spec.dataset, spec.config) for spec in manifest.tasks]
    assert names == [spec.dataset for spec in manifest.tasks]


def test_tasks_of_one_dataset_are_numbered_in_the_order_of_the_manifest(twice):
    names = [task_name(twice, spec.dataset, spec.config) for spec in twice.tasks]
    assert names == ["products 1", "chain_sum", "products 2"]


def test_a_task_that_is_listed_twice_is_one_task(twice):
    again = replace(twice, tasks=(twice.tasks[0], *twice.tasks[:2]))
    assert task_name(again, "products", EASY) == "products"


async def test_each_configuration_of_a_dataset_has_its_own_examples(twice):
    examples = await build_examples(twice, OpenScorer(), 2)
    easy, hard = (examples.prompt(name, "?").examples for name in ("products 1", "products 2"))
    assert len(easy) == len(hard) == 2
    assert max(len(each.prompt) for each in easy) < min(len(each.prompt) for each in hard)


async def test_each_configuration_of_a_dataset_is_evaluated_by_itself(twice):
    oracle = Oracle(twice, random.Random(1), skill=1.0)
    found = await measure(twice, oracle, KnowingScorer(oracle.answers), prompts=2, samples=1, max_tokens=9)
    assert found.right == dict.fromkeys(NAMES, (1, 1))
    assert found.truncated.keys() == NAMES


async def test_groups_of_a_peer_name_the_configuration_of_their_task(twice, author, database):
    of_twice = replace(author, manifest=twice)
    groups, bodies, _ = zip(*(right_and_wrong(of_twice, k) for k in range(16)), strict=True)
    verifier = Verifier(context_of(twice, random.Random(1)), OpenScorer(), Ledger(database))
    verified = await verifier.verify(rollout(of_twice, groups, bodies))
    assert {group.dataset for group in verified.values()} == NAMES
