"""Steps that are taken back leave the weights of a node that never trained on the accused groups, whatever dies."""

import random
from dataclasses import replace

import pytest
import trio

from sapo_node.app.state import SCHEMA
from sapo_node.groups.book import Book, newest
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import RequestError, Sampled
from sapo_node.groups.record import LOCAL, LocalGroup, State, VerifiedGroup
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import external_id, trained_per_peer
from sapo_node.training.take_back import MAX_ROWS, PHRASE_CHARACTERS, TAKEN_BACK, taken_back
from sapo_node.training.trainer import MAX_FAILURES, Trainer
from sapo_protocol import load_manifest
from swarm_parts import Oracle

OWN = LocalGroup("products", "What?", bytes(32), (Sampled("a", "stop", (1,)),) * 2, Levels((1, 0)), (0.7, -0.7))
EVERY = 3


def group_of(peer, counter):
    completions = tuple(Sampled(f"theirs {number}", "stop") for number in range(2))
    return VerifiedGroup(peer, 5, counter, 0, "products", "What else?", completions, Levels((1, 0)))


def weighted(peer, counter):
    return WeightedGroup(group_of(peer, counter), 0.5, (0.7, -0.7))


def is_poison(_, peer):
    return peer == "poisoner"


class Remembering(Oracle):
    """A policy whose weights are the ids that it was trained on, in order, and whose checkpoints are kept apart."""

    def __init__(self, manifest):
        super().__init__(manifest, random.Random(0))
        self.weights = []
        self.disk = {0: []}
        """The weights of each checkpoint that a new process finds."""
        self.dies = []
        """Where the learner dies next, in this order."""
        self.refuses = ""
        self.corrupt = set()
        """Checkpoints that a new process cannot read."""

    async def train(self, request):
        self.die("train")
        report = await super().train(request)
        self.weights = [*self.weights, tuple(group.id for group in request.groups)]
        return report

    async def checkpoint(self):
        self.disk = {step: self.disk[step] for step in sorted({*self.disk, self.step})[-3:] if step in self.disk}
        self.disk[self.step] = self.weights
        return self.step

    async def restore(self, step):
        self.die("before")
        if self.refuses:
            raise RequestError(self.refuses)
        self.disk = {each: weights for each, weights in self.disk.items() if each <= step}
        if step < self.step:
            self.step, self.weights = step, self.disk[step]
        self.die("after")

    def die(self, moment):
        if self.dies[:1] == [moment]:
            self.dies.pop(0)
            self.come_back()
            raise WorkerFailed("died")

    def come_back(self):
        self.disk = {step: weights for step, weights in self.disk.items() if step not in self.corrupt}
        self.step = max(self.disk)
        self.weights = self.disk[self.step]


@pytest.fixture
def policy(manifest):
    return Remembering(manifest)


@pytest.fixture
def trainer(database, policy):
    return trainer_of(database, policy)


def trainer_of(database, policy, kind=Book):
    book = kind(database, load_manifest("starter"), rng=random.Random(0))
    return Trainer(database, book, policy, objective="positive-only", checkpoint_every=EVERY, now=lambda: 7.0)


async def play(trainer, steps, *, poison=True):
    """One group of an honest peer in each step, and two of a poisoner in each step that is a multiple of 2."""
    for step in steps:
        poisoned = [weighted("poisoner", 2 * step + each) for each in range(2)] if poison and step % 2 == 0 else []
        await trainer.train([OWN], [weighted("honest", step), *poisoned])


async def clean(manifest, steps):
    """The weights and the counts of a node that never had the accused groups."""
    database, policy = Database(None, SCHEMA), Remembering(manifest)
    await play(trainer_of(database, policy), range(1, steps + 1), poison=False)
    return policy.weights, trained_per_peer(database)


def counts_of(database):
    return {peer: counts for peer, counts in trained_per_peer(database).items() if counts != (0, 0)}


@pytest.mark.parametrize("steps", [2, 3, 4, 5])
async def test_the_accused_groups_of_all_steps_so_far_leave_weights_and_counts(
    trainer, policy, database, manifest, steps
):
    await play(trainer, range(1, steps + 1))
    taken = await trainer.take_back(is_poison, "completions said", "hail the swarm")
    assert (policy.weights, counts_of(database)) == await clean(manifest, steps)
    assert (taken.restored, taken.replayed, taken.groups, taken.peers) == (0, steps, 2 * (steps // 2), 1)


async def test_other_tasks_run_between_the_groups_that_an_alarm_asks_about(trainer, nursery):
    await play(trainer, range(1, 5))
    turns, asked = 0, []

    async def gossip():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    def accused(*_):
        asked.append(turns)
        return False

    nursery.start_soon(gossip)
    await trainer.take_back(accused, "completions said")
    assert len(asked) == 8
    assert asked[-1] >= len(asked) - 1
    nursery.cancel_scope.cancel()


async def test_the_newest_checkpoint_before_the_first_accused_group_is_restored(trainer, policy):
    await play(trainer, range(1, 9))  # checkpoints of steps 3 and 6
    target = external_id(group_of("poisoner", 16))
    taken = await trainer.take_back(lambda group, _: group.id == target, "a text of its own")
    assert (taken.restored, taken.replayed, taken.groups) == (6, 8, 1)
    assert target not in policy.weights[-1]
    assert external_id(group_of("poisoner", 17)) in policy.weights[-1]


async def test_steps_before_the_older_checkpoint_stay_and_those_after_it_are_taken_back(trainer, policy):
    await play(trainer, range(1, 9))
    taken = await trainer.take_back(is_poison, "why")
    assert taken.restored == 3
    assert [len(groups) for groups in policy.weights] == [2, 4, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("accused", [lambda *_: False, lambda _, peer: peer == LOCAL], ids=["nobody", "own groups"])
async def test_nothing_happens_where_no_external_group_is_accused(trainer, policy, database, accused):
    await play(trainer, range(1, 5))
    before = list(policy.trained)
    assert await trainer.take_back(accused, "why") is None
    assert policy.trained == before
    assert taken_back(database) == []


async def test_the_node_goes_on_with_the_next_step_and_can_take_back_again(trainer, policy, manifest):
    await play(trainer, range(1, 6))
    await trainer.take_back(is_poison, "why")
    await play(trainer, range(6, 9))
    await trainer.take_back(is_poison, "why")
    assert policy.weights == (await clean(manifest, 8))[0]


async def test_a_batch_that_killed_the_learner_is_tried_again_without_the_accused_group(trainer, policy, manifest):
    policy.dies = ["train"] * MAX_FAILURES
    await play(trainer, [2])
    assert policy.weights == [()]
    await trainer.take_back(is_poison, "why")
    assert [len(groups) for groups in policy.weights] == [2]


@pytest.mark.parametrize(
    "dies", [["before"], ["after"], ["before", "after"], ["train"], ["before"] * 3 + ["train"] * 2], ids=str
)
async def test_a_learner_that_dies_in_between_changes_nothing_of_the_end(trainer, policy, database, manifest, dies):
    await play(trainer, range(1, 6))
    policy.dies = list(dies)
    await trainer.take_back(is_poison, "why")
    assert policy.dies == []
    assert (policy.weights, counts_of(database)) == await clean(manifest, 5)


async def test_a_learner_that_comes_back_from_a_checkpoint_before_the_restored_one_replays_from_there(trainer, policy):
    await play(trainer, range(1, 9))  # checkpoints of steps 3 and 6
    policy.dies, policy.corrupt = ["before"], {6}
    taken = await trainer.take_back(lambda group, _: group.id == external_id(group_of("poisoner", 16)), "why")
    assert (taken.restored, taken.failure) == (6, "")
    assert [len(groups) for groups in policy.weights] == [2, 4, 2, 4, 2, 4, 2, 3]


class Killed(Exception):
    """Ends the node's process."""


class Killing(Remembering):
    """Ends the node's process when the learner is asked for a certain thing."""

    moment = ""

    async def restore(self, step):
        self.end("before restoring")
        await super().restore(step)
        self.end("after restoring")

    async def train(self, request):
        self.end(f"before step {request.step}")
        report = await super().train(request)
        self.end(f"after step {request.step}")
        return report

    def end(self, moment):
        if self.moment == moment:
            self.moment = ""
            raise Killed


@pytest.mark.parametrize(
    "moment", ["before restoring", "after restoring", "before step 1", "after step 2", "before step 4", "after step 5"]
)
async def test_a_node_that_is_killed_in_between_ends_where_an_undisturbed_one_does(database, manifest, moment):
    policy = Killing(manifest)
    await play(trainer_of(database, policy), range(1, 6))
    policy.moment = moment
    with pytest.raises(Killed):
        await trainer_of(database, policy).take_back(is_poison, "why")
    policy.come_back()  # the learner ends with the node
    await trainer_of(database, policy).recover()
    assert (policy.weights, counts_of(database)) == await clean(manifest, 5)
    [taken] = taken_back(database)
    assert taken.seconds is not None


async def test_a_transaction_that_fails_leaves_the_decision_and_the_next_start_carries_it_out(
    database, policy, manifest
):
    class Failing(Book):
        def take_back(self, numbers, why, *, counted):
            super().take_back(numbers, why, counted=counted)
            raise Killed

    await play(trainer_of(database, policy), range(1, 6))
    with pytest.raises(Killed):
        await trainer_of(database, policy, Failing).take_back(is_poison, "why")
    policy.come_back()
    await trainer_of(database, policy).recover()
    assert (policy.weights, counts_of(database)) == await clean(manifest, 5)


async def test_where_the_checkpoint_cannot_be_restored_nothing_changes_and_the_node_says_why(
    trainer, policy, database, caplog
):
    await play(trainer, range(1, 6))
    weights, counts = policy.weights, trained_per_peer(database)
    batches = database.rows("SELECT * FROM batches")
    policy.refuses = "checkpoint step-00000000 is incomplete"
    taken = await trainer.take_back(is_poison, "why")
    assert taken.failure == policy.refuses
    assert (policy.weights, trained_per_peer(database)) == (weights, counts)
    assert database.rows("SELECT * FROM batches") == batches
    assert "could not take back 4 groups of 1 peer (why): checkpoint step-00000000 is incomplete" in caplog.text
    await play(trainer, [6])
    assert len(policy.weights) == 6


async def test_after_a_checkpoint_that_cannot_be_restored_the_other_one_serves(trainer, policy, database):
    await play(trainer, range(1, 9))
    policy.refuses = "checkpoint step-00000003 is incomplete"
    assert (await trainer.take_back(is_poison, "why")).failure
    policy.refuses = ""
    taken = await trainer.take_back(is_poison, "why")
    assert (taken.restored, taken.failure, taken.groups) == (6, "", 2)


async def test_a_restore_that_always_kills_the_learner_is_given_up(trainer, policy):
    await play(trainer, range(1, 6))
    policy.dies = ["before"] * MAX_FAILURES
    taken = await trainer.take_back(is_poison, "why")
    assert taken.failure == f"the learner failed {MAX_FAILURES} times"
    await play(trainer, [6])
    assert policy.step == 6


async def test_steps_whose_batches_are_gone_are_not_taken_back(trainer, policy, database, caplog):
    await play(trainer, range(1, 3))
    database.execute("DELETE FROM batches WHERE step = 1")
    assert await trainer.take_back(is_poison, "why") is None
    assert "can no longer be taken back" in caplog.text
    assert policy.step == 2


async def test_the_book_says_which_groups_were_taken_back_and_why(database, trainer):
    await play(trainer, [1, 2])
    await trainer.take_back(is_poison, "why")
    gone = {each.key: each.state for each in newest(database, 20) if each.why == f"{TAKEN_BACK}: why"}
    assert gone == {group_of("poisoner", counter).key: State.LEFT_OUT for counter in (4, 5)}


async def test_the_operator_is_told_in_one_line(trainer, caplog):
    await play(trainer, range(1, 6))
    taken = await trainer.take_back(is_poison, "completions said", "hail\nthe swarm")
    line = str(replace(taken, seconds=3.14))
    assert line == (
        r"took back 4 groups of 1 peer since round 0: completions said 'hail\nthe swarm'; replayed 5 rounds in 3.1 s"
    )
    assert str(taken) in caplog.text


async def test_the_record_is_bounded(trainer, database):
    await trainer.train([OWN], [weighted("poisoner", 0)])
    for counter in range(1, MAX_ROWS + 3):
        await trainer.train([], [weighted("poisoner", counter)])
        await trainer.take_back(is_poison, "why", "x" * 1000)
    rows = taken_back(database)
    assert len(rows) == MAX_ROWS
    assert {len(each.phrase) for each in rows} == {PHRASE_CHARACTERS}
