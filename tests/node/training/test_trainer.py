"""Atomic training: nothing stored is lost, nothing is trained on twice, whoever dies."""

import os
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from books import book_of, offer
from sapo_node.groups.codec import to_json
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import GroupReport, Refusal, RequestError, Sampled
from sapo_node.groups.record import LOCAL, LocalGroup, VerifiedGroup
from sapo_node.groups.stats import Interval
from sapo_node.processes.frames import write_frame
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.filters import Offered
from sapo_node.sampling.sampler import Sampler, WeightedGroup
from sapo_node.sampling.weights import PassRates
from sapo_node.training.batch_log import external_id, local_id, stored_batch, trained_per_peer
from sapo_node.training.trainer import MAX_FAILURES, Trainer
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError
from sapo_protocol.limits import MAX_COMPLETION_BYTES, MAX_COMPLETIONS
from swarm_parts import Oracle

COMPLETIONS = tuple(Sampled(f"answer {number}", "stop", (number,)) for number in range(2))
LOCAL_GROUP = LocalGroup("products", "What?", bytes(32), COMPLETIONS, Levels((1, 0)), (0.7, -0.7))


def external(counter=0, peer="peer"):
    completions = tuple(Sampled(f"theirs {number}", "stop") for number in range(2))
    return VerifiedGroup(peer, 5, counter, 0, "products", "What else?", completions, Levels((1, 0)))


def weighted(counter=0, peer="peer"):
    return WeightedGroup(external(counter, peer), 0.5, (0.7, -0.7))


class Mortal(Oracle):
    """A policy that dies now and then, and comes back with the weights of its last checkpoint."""

    saved = 0
    deaths = ()
    seen = 0
    lacks = False
    """Whether it lacks the best weights."""

    async def train(self, request):
        if self.lacks and request.restart is not None:
            raise RequestError("they are gone")
        self.seen += 1
        if self.seen in self.deaths:
            self.step = self.saved
            raise WorkerFailed("died")
        return await super().train(request)

    async def checkpoint(self):
        self.saved = self.step
        return self.step


@pytest.fixture
def book(database):
    return book_of(database)


@pytest.fixture
def policy(manifest):
    return Mortal(manifest, random.Random(0))


@pytest.fixture
def trainer(database, book, policy):
    return Trainer(database, book, policy, objective="positive-only", checkpoint_every=3)


async def test_a_round_trains_local_groups_on_their_own_tokens_and_external_ones_on_text(trainer, policy):
    await trainer.train([LOCAL_GROUP], [weighted()])
    ((step, (local, other)),) = policy.trained
    assert step == 1
    assert [each.tokens for each in local.completions] == [(0,), (1,)]
    assert [each.tokens for each in other.completions] == [None, None]
    assert (local.weight, other.weight) == (1.0, 0.5)


@pytest.fixture
def nowhere():
    with Path(os.devnull).open("wb") as file:
        yield file


async def test_a_batch_of_the_longest_texts_that_are_drawn_can_be_stored_and_sent(trainer, database, nowhere):
    worst = Sampled("\x01" * MAX_COMPLETION_BYTES, "stop")
    offered = [
        Offered(replace(external(counter), completions=(worst,) * MAX_COMPLETIONS, levels=Levels((1, 0) * 8)))
        for counter in range(32)
    ]
    sampler = Sampler(Ledger(database), random.Random(0), PassRates(), "trust")
    draw = sampler.draw(offered, 16, epoch=5, strangers=1.0)
    await trainer.train([LOCAL_GROUP], [*draw.groups, *draw.stand_ins])
    batch = stored_batch(database, 1)
    assert len(batch.request.groups) == 1 + len(draw.groups) + len(draw.stand_ins)
    write_frame(nowhere.fileno(), to_json(batch.request))


async def test_what_is_trained_on_leaves_the_pool_for_good(trainer, book):
    offer(book, [external()])
    await trainer.train([LOCAL_GROUP], [weighted()])
    assert book.offered() == []


def standing_in(counter, of):
    return WeightedGroup(external(counter), 0.5, (0.7, -0.7), stands_in=external(of))


class Emptying(Mortal):
    """A policy of whose filters the groups that have a place leave nothing."""

    async def train(self, request):
        report = await super().train(request)
        stand_ins = {group.id: GroupReport(10) for group in request.groups if group.stands_in}
        emptied = {name: GroupReport() if name != local_id(0) else each for name, each in report.groups.items()}
        return replace(report, groups={**emptied, **stand_ins})


async def test_a_stand_in_that_is_not_needed_stays_in_the_pool_and_leaves_the_batch(trainer, book, database):
    offer(book, [external(0), external(1)])
    report = await trainer.train([LOCAL_GROUP], [weighted(0), standing_in(1, of=0)])
    assert external_id(external(1)) not in report.groups
    assert book.offered() == [external(1)]
    assert set(stored_batch(database, 1).members) == {local_id(0), external_id(external(0))}


async def test_a_stand_in_that_was_trained_on_leaves_the_pool_and_counts(manifest, book, database):
    offer(book, [external(0), external(1)])
    policy = Emptying(manifest, random.Random(0))
    trainer = Trainer(database, book, policy, objective="positive-only", checkpoint_every=3)
    report = await trainer.train([LOCAL_GROUP], [weighted(0), standing_in(1, of=0)])
    assert report.groups[external_id(external(1))].tokens == 10
    assert book.offered() == []
    assert trained_per_peer(database) == {LOCAL: (1, 10), "peer": (1, 10)}


async def test_a_stand_in_of_a_batch_that_a_crash_interrupted_leaves_the_pool_with_the_replay(manifest, book, database):
    offer(book, [external(0), external(1)])
    policy = Emptying(manifest, random.Random(0))
    Trainer(database, book, policy, objective="positive-only", checkpoint_every=3)._commit(
        [LOCAL_GROUP], [weighted(0), standing_in(1, of=0)]
    )
    assert book.offered() == [external(1)]
    again = Trainer(database, book, policy, objective="positive-only", checkpoint_every=3)
    assert await again.recover() == 1
    assert book.offered() == []


def test_the_stand_in_of_an_accused_group_takes_its_place(trainer):
    trainer._commit([LOCAL_GROUP], [weighted(0), standing_in(1, of=0)])
    batch = stored_batch(trainer._database, 1)
    kept = batch.without({(1, external_id(external(0))): "peer"})
    assert [group.id for group in kept.request.placed] == [local_id(0), external_id(external(1))]


async def test_a_death_in_mid_batch_replays_all_since_the_checkpoint_and_goes_on(trainer, policy, database):
    policy.deaths = (5,)
    for counter in range(6):
        await trainer.train([LOCAL_GROUP], [weighted(counter)])
    # steps 1-3, checkpoint, 4, death at 5, replay of 4, then 5 and 6
    assert [step for step, _ in policy.trained] == [1, 2, 3, 4, 4, 5, 6]
    assert trained_per_peer(database) == {LOCAL: (6, 60), "peer": (6, 60)}


async def test_a_killed_node_replays_what_it_had_stored(trainer, policy, database, book):
    policy.deaths = (2,)
    await trainer.train([LOCAL_GROUP], [])
    trainer._commit([LOCAL_GROUP], [weighted()])  # stored, never dispatched: the node is killed here
    reborn = Mortal(policy.manifest, random.Random(0))
    again = Trainer(database, book, reborn, objective="positive-only", checkpoint_every=3)
    assert await again.recover() == 2
    assert [step for step, _ in reborn.trained] == [1, 2]


async def test_a_killed_node_trains_again_on_what_its_round_replayed(trainer, policy, database, book):
    await trainer.train([LOCAL_GROUP], [])
    success = replace(LOCAL_GROUP, completions=COMPLETIONS[:1], levels=Levels((1,)), advantages=(0.7,))
    trainer._commit([replace(LOCAL_GROUP, counter=1)], [], [success])  # stored, never dispatched: the node is killed
    again = Trainer(database, book, policy, objective="positive-only", checkpoint_every=3)
    assert await again.recover() == 1
    _, (_, (local, replayed)) = policy.trained
    assert (local.id, local.source, local.completions) == (local_id(0), "local", COMPLETIONS)
    assert (replayed.id, replayed.source, replayed.completions) == (local_id(0, "replay"), "replay", COMPLETIONS[:1])
    assert trained_per_peer(database) == {LOCAL: (3, 30)}


async def test_recovering_with_nothing_to_do_trains_nothing(trainer, policy):
    assert await trainer.recover() == 0
    assert policy.trained == []


async def test_batches_that_the_checkpoint_before_could_need_are_kept(trainer, database):
    for _ in range(9):
        await trainer.train([LOCAL_GROUP], [])
    assert [step for (step,) in database.rows("SELECT step FROM batches")] == [7, 8, 9]


async def test_a_fall_back_to_the_checkpoint_before_can_be_replayed(trainer, database, book, policy):
    for _ in range(7):
        await trainer.train([LOCAL_GROUP], [])
    older = Mortal(policy.manifest, random.Random(0), step=3)  # checkpoint 6 was corrupt
    again = Trainer(database, book, older, objective="positive-only", checkpoint_every=3)
    assert await again.recover() == 4
    assert [step for step, _ in older.trained] == [4, 5, 6, 7]


async def test_a_batch_that_always_kills_the_learner_is_given_up(trainer, policy):
    policy.deaths = tuple(range(1, MAX_FAILURES + 1))
    await trainer.train([LOCAL_GROUP], [])
    assert policy.trained == [(1, ())]


async def test_steps_whose_batches_are_gone_are_left_empty_and_the_node_goes_on(trainer, policy, database):
    for _ in range(3):
        await trainer.train([LOCAL_GROUP], [])
    policy.step = 0  # all checkpoints lost
    database.execute("DELETE FROM batches WHERE step < 3")
    await trainer.recover()
    assert [len(groups) for _, groups in policy.trained[3:]] == [0, 0, 1]


async def test_each_group_of_a_batch_is_reported_by_its_id(trainer):
    report = await trainer.train([LOCAL_GROUP, LOCAL_GROUP], [weighted(7)])
    assert {name: group.tokens for name, group in report.groups.items()} == {
        local_id(0): 10,
        local_id(1): 10,
        external_id(external(7)): 10,
    }


async def test_a_batch_that_is_given_up_has_a_report_of_each_of_its_groups(trainer, policy):
    policy.deaths = tuple(range(1, MAX_FAILURES + 1))
    report = await trainer.train([LOCAL_GROUP], [weighted()])
    assert report.groups == dict.fromkeys(
        (local_id(0), external_id(external())), GroupReport(refused=Refusal.KILLED_LEARNER)
    )


def held_out(point):
    return Interval(point, point, point)


async def test_an_alarm_is_stored_with_the_batches_after_it(trainer, policy, database):
    for point in (0.9, 0.1):
        await trainer.train([LOCAL_GROUP], [])
        await trainer.evaluated(policy.step, held_out(point))
    for _ in range(2):
        await trainer.train([LOCAL_GROUP], [])
    assert [(each.rate_scale, each.restart) for each in policy.requests] == [
        (1.0, None),
        (1.0, None),
        (0.5, 1),
        (0.5, None),
    ]
    assert [stored_batch(database, step).request for step in (1, 2, 3, 4)] == policy.requests


async def test_a_killed_node_goes_back_to_the_best_weights_in_the_step_that_it_had_stored(
    trainer, policy, database, book
):
    for point in (0.9, 0.1):
        await trainer.train([LOCAL_GROUP], [])
        await trainer.evaluated(policy.step, held_out(point))
    trainer._commit([LOCAL_GROUP], [])  # stored, never dispatched: the node is killed here
    reborn = Mortal(policy.manifest, random.Random(0))
    again = Trainer(database, book, reborn, objective="positive-only", checkpoint_every=3)
    await again.recover()
    await again.train([LOCAL_GROUP], [])
    assert [each.restart for each in reborn.requests] == [None, None, 1, None]


async def test_the_best_weights_are_kept_and_those_that_a_replay_may_need(trainer, policy):
    points = {1: 0.5, 2: 0.4, 3: 0.9, 4: 0.1}
    for step, point in points.items():
        await trainer.train([LOCAL_GROUP], [])
        await trainer.evaluated(step, held_out(point))
    await trainer.train([LOCAL_GROUP], [])
    await trainer.evaluated(5, held_out(0.95))
    # Step 3 started from those of step 1, and step 5 from those of step 3.
    assert policy.best == [1, 3, 5]


async def test_weights_that_cannot_be_kept_are_not_the_best(trainer, policy):
    async def refuse(step, needed):
        raise RequestError("no space")

    policy.keep_best = refuse
    await trainer.train([LOCAL_GROUP], [])
    with pytest.raises(LocalError, match="its weights are the best so far and cannot be kept: no space"):
        await trainer.evaluated(1, held_out(0.9))
    assert trainer.health.is_best(held_out(0.1))


async def test_a_checkpoint_in_which_the_learner_died_is_written_after_the_next_round(trainer, policy, database):
    write, written = policy.checkpoint, []

    async def dies_in_step_3():
        if policy.step == 3:
            raise WorkerFailed("the learner died")
        written.append(policy.step)
        return await write()

    policy.checkpoint = dies_in_step_3
    for step in range(1, 8):
        with pytest.raises(WorkerFailed) if step == 3 else nullcontext():
            await trainer.train([LOCAL_GROUP], [])
    assert written == [4, 6]


async def test_a_policy_that_lacks_the_best_weights_trains_from_the_last_ones(trainer, policy, database):
    await trainer.train([LOCAL_GROUP], [])
    await trainer.evaluated(1, held_out(0.9))
    await trainer.evaluated(1, held_out(0.1))
    policy.lacks = True
    await trainer.train([LOCAL_GROUP], [])
    assert [each.restart for each in policy.requests] == [None, None]
    assert stored_batch(database, 2).request.rate_scale == 0.5
