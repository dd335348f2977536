"""A node that looks ahead plays counters whose groups are likely to be informative, and loses no round by it."""

import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.simulator.lookahead import COUNTERS, LookingAhead
from sapo_node.app.state import SCHEMA
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup
from sapo_node.sampling.external import saved_pass_rates
from sapo_node.sampling.memory import Memory
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.trust.constants import UNTRUSTED_COUNTERS
from sapo_protocol import assign, load_manifest

MANIFEST = replace(load_manifest("starter"), genesis=0, max_rounds=60)
LATE = MANIFEST.epoch_seconds - 1
"""A time at which a node may choose among all of the next counters."""
IDENTITY = Identity(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TASKS = sorted(spec.dataset for spec in MANIFEST.tasks)
NEVER, HALF = (0,) * 8, (0, 1) * 4


class Fixed(random.Random):
    """Draws the same number each time."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def random(self):
        return self.number


def looking_ahead(levels, *, draw=1.0):
    """The counters of a node with one group a round, after a group with these levels of each task."""
    database = Database(None, SCHEMA)
    rates = saved_pass_rates(database)
    for task, each in levels.items():
        completions = (Sampled("x", "stop", (1,)),) * len(each)
        rates.observe([LocalGroup(task, "?", b"", completions, Levels(each), local_advantages(Levels(each)))])
    Memory(database, {"pass rates": rates}).save(1)
    return LookingAhead(database, MANIFEST, IDENTITY, 1, now=0, rng=Fixed(draw))


def task_of(counter):
    return assign(MANIFEST, IDENTITY.public_key, 0, counter, 0).spec.dataset


OTHER = next(task_of(counter) for counter in range(COUNTERS) if task_of(counter) != task_of(0))
"""A task that the next counter has not."""


def preferring(task, **options):
    return looking_ahead({each: HALF if each == task else NEVER for each in TASKS}, **options)


@pytest.mark.parametrize("task", sorted({task_of(counter) for counter in range(COUNTERS)}))
def test_the_next_round_is_the_first_one_of_the_task_that_is_solved_at_times(task):
    first = next(counter for counter in range(COUNTERS) if task_of(counter) == task)
    assert preferring(task).reserve(LATE).counter == first


def test_a_task_that_the_node_has_not_had_comes_first():
    new = task_of(3)
    counters = looking_ahead({each: HALF for each in TASKS if each != new})
    assert task_of(counters.reserve(LATE).counter) == new


def test_a_round_that_explores_takes_the_next_counter():
    assert preferring(OTHER, draw=0.0).reserve(LATE).counter == 0


def test_counters_that_were_skipped_are_not_used_later():
    counters = preferring(OTHER)
    used = [counters.reserve(LATE).counter for _ in range(5)]
    assert used == sorted(set(used))
    assert used[-1] > 5


@pytest.mark.parametrize("rounds", [1, 7, 29, 30])
def test_a_node_that_plays_at_an_even_pace_loses_no_round_that_peers_take(rounds):
    counters = preferring(TASKS[0])
    used = [counters.reserve(MANIFEST.epoch_seconds * number / rounds).counter for number in range(rounds)]
    assert max(used) < MANIFEST.max_rounds * UNTRUSTED_COUNTERS
