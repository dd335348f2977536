"""Pool and batches in a real file against lists: no group is lost, none is trained on twice, and none that was taken
back is left, whoever is killed when.

What the learner's weights are is told here by the steps they went through, in order. A kill of the node closes the
file without a commit; a death of the learner brings back the weights of its last checkpoint.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from books import book_of, offer
from sapo_node.groups import book
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import GroupReport, RequestError, Sampled, TrainReport
from sapo_node.groups.record import LOCAL, LocalGroup, VerifiedGroup
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.database import Database
from sapo_node.training import batch_log, trainer
from sapo_node.training.batch_log import trained_per_peer
from sapo_node.training.take_back import taken_back
from sapo_node.training.trainer import Trainer
from sapo_node.trust.constants import MAX_AGE
from swarm_parts import trained_groups

SCHEMA = (book.SCHEMA, batch_log.SCHEMA)
PEERS = ("one", "two")
PER_PEER, IN_ALL, FAILURES = 3, 5, 3
EVERY = 3
TOKENS = 10
MEMORY = Path("/dev/shm")
"""A kill loses nothing that was written, so the file needs no disk, and the syncs no time."""


def is_emptied(prompt: str) -> bool:
    """Whether the filters of the learner leave nothing of a group: of every third of others."""
    peer, number = prompt.split()
    return peer != "own" and int(number) % 3 == 0


class Killed(Exception):
    """Ends the node's process."""


class Learner:
    """A policy whose weights are the list of its steps, and which dies when it is told to."""

    def __init__(self):
        self.weights: list[tuple[str, ...]] = []
        self.checkpoints: list[list[tuple[str, ...]]] = []
        self.deaths = 0
        self.node_dies: str | None = None
        self.failed: list[int] = []

    @property
    def step(self) -> int:
        return len(self.weights)

    async def generate(self, prompts, *, completions, max_tokens, seed):
        raise NotImplementedError

    async def train(self, request):
        step = request.step
        assert step == self.step + 1
        self.end_at("before")
        if self.deaths:
            self.deaths -= 1
            self.failed.append(step)
            self.come_back()
            raise WorkerFailed("died")
        prompts = {group.id: group.prompt for group in request.groups}
        trained = trained_groups(request.groups, lambda name: is_emptied(prompts[name]))
        self.weights.append(tuple(group.prompt for group in trained))
        self.end_at("after")
        tokens = {group.id: 0 if is_emptied(group.prompt) else TOKENS for group in trained}
        return TrainReport(step, {name: GroupReport(count) for name, count in tokens.items()}, 1e-4)

    async def checkpoint(self):
        if not self.checkpoints or len(self.checkpoints[-1]) < self.step:
            self.checkpoints = [*self.checkpoints[-1:], list(self.weights)]
        self.end_at("saved")
        return self.step

    async def restore(self, step):
        self.end_at("before")
        if self.deaths:
            self.deaths -= 1
            self.come_back()
            raise WorkerFailed("died")
        if step < self.step:
            if step not in {0, *map(len, self.checkpoints)}:
                raise RequestError("no such checkpoint")
            self.checkpoints = [each for each in self.checkpoints if len(each) <= step]
            self.weights = list(self.checkpoints[-1]) if step else []
        self.end_at("after")

    def come_back(self, *, newest_is_damaged: bool = False) -> None:
        """From the newest checkpoint, or from the one before."""
        if newest_is_damaged and len(self.checkpoints) == 2:
            self.checkpoints.pop()
        self.weights = list(self.checkpoints[-1]) if self.checkpoints else []

    def end_at(self, moment: str) -> None:
        if self.node_dies == moment:
            self.node_dies = None
            raise Killed


def finished(coroutine):
    """What a coroutine returns."""

    async def run():
        return await coroutine

    return trio.run(run)


class TrainerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.learner = Learner()
        self.waiting: list[VerifiedGroup] = []
        self.batches: list[tuple[str, ...]] = []
        """The questions of every batch ever committed, in order."""
        self.peers: list[tuple[str, ...]] = []
        self.stand_ins: dict[int, list[tuple[VerifiedGroup, VerifiedGroup]]] = {}
        """By step, the stand-ins of a batch that was given up, each with the group that it stands in for. They stay in
        the batch: without the accused groups it is tried again.
        """
        self.made = 0
        self.epoch = MAX_AGE

    @initialize()
    def the_node_starts(self):
        self.database = Database(Path(self.folder.name) / "node.sqlite", SCHEMA)
        self.book = book_of(self.database)
        self.trainer = Trainer(
            self.database, self.book, self.learner, objective="positive-only", checkpoint_every=EVERY
        )

    @rule(arrived=st.lists(st.tuples(st.sampled_from(PEERS), st.integers(0, MAX_AGE)), max_size=4))
    def groups_are_verified(self, arrived):
        """Peer and age of each: the oldest of the same peer make room, then the oldest of all."""
        groups = [self.verified(peer, self.epoch - age) for peer, age in arrived]
        offer(self.book, groups)
        for group in groups:
            self.waiting = [*self.waiting, group]
            of_peer = [each for each in self.waiting if each.peer == group.peer]
            self.waiting = [each for each in self.waiting if each not in of_peer[:-PER_PEER]]
        self.waiting = self.waiting[-IN_ALL:]

    @rule(group=st.data())
    def one_is_verified_again(self, group):
        if self.waiting:
            offer(self.book, [replace(group.draw(st.sampled_from(self.waiting)), prompt="another")])

    @rule(later=st.integers(1, 3))
    def an_epoch_begins(self, later):
        self.epoch += later
        self.book.advance(self.epoch)
        self.waiting = [group for group in self.waiting if self.epoch - group.epoch <= MAX_AGE]

    @rule(peer=st.sampled_from(PEERS))
    def a_peer_is_forgotten(self, peer):
        self.book.forget(peer)
        self.waiting = [group for group in self.waiting if group.peer != peer]

    @rule(local=st.integers(0, 2), external=st.integers(0, 3), deaths=st.sampled_from([0, 0, 0, 0, 1, 4]))
    def a_round_is_trained(self, local, external, deaths):
        self.learner.deaths = deaths
        finished(self.round(local, external))
        self.what_was_given_up_is_gone()
        assert self.learner.step == len(self.batches)

    @rule(
        local=st.integers(0, 2),
        external=st.integers(0, 3),
        moment=st.sampled_from(["before", "after", "saved"]),
        loses_a_checkpoint=st.booleans(),
        deaths=st.integers(0, 1),
    )
    def the_node_is_killed_in_a_round(self, local, external, moment, loses_a_checkpoint, deaths):
        self.learner.node_dies = moment
        try:
            finished(self.round(local, external))
            is_killed = False
        except Killed:
            is_killed = True
        assert is_killed or moment == "saved"
        self.learner.node_dies = None
        self.restart(loses_a_checkpoint, deaths)
        self.what_was_given_up_is_gone()

    @rule(loses_a_checkpoint=st.booleans(), deaths=st.integers(0, 2))
    def the_node_is_killed_between_rounds(self, loses_a_checkpoint, deaths):
        self.restart(loses_a_checkpoint, deaths)

    @rule(
        peer=st.sampled_from(PEERS),
        moment=st.sampled_from([None, "before", "after"]),
        deaths=st.integers(0, FAILURES - 1),
    )
    def steps_are_taken_back(self, peer, moment, deaths):
        """Those that trained on a peer's groups, as far back as a checkpoint allows. The node may be killed in it."""
        stored = [step for (step,) in self.database.rows("SELECT step FROM batches")]
        failed, already = list(self.learner.failed), len(taken_back(self.database))
        self.learner.deaths, self.learner.node_dies = deaths, moment
        try:
            finished(self.trainer.take_back(lambda _, of: of == peer, "why"))
        except Killed:
            self.restart(loses_a_checkpoint=False, deaths=0)
        self.learner.deaths, self.learner.node_dies = 0, None
        if len(taken_back(self.database)) == already:
            return
        taken = taken_back(self.database)[0]
        if taken.failure:
            assert taken.restored not in {0, *map(len, self.learner.checkpoints)}
            return
        assert taken.seconds is not None
        accused = [step for step in stored if step > taken.restored and peer in self.peers_in(step)]
        assert accused
        for step in accused:
            self.leave_out(peer, step)
        # What killed the learner may have been an accused group: the rest of the batch is tried again.
        self.learner.failed[: len(failed)] = [step for step in failed if step not in accused]

    @rule()
    def a_checkpoint_is_written(self):
        finished(self.trainer.checkpoint())

    @invariant()
    def weights_went_through_every_batch_once_and_in_order(self):
        for step, (went_through, batch) in enumerate(zip(self.learner.weights, self.batches, strict=True), 1):
            assert went_through == (() if self.is_given_up(step) else batch)

    @invariant()
    def what_waits_was_not_trained_on(self):
        if hasattr(self, "book"):
            stored = sorted(group.prompt for group in self.book.offered())
            assert stored == sorted(group.prompt for group in self.waiting)
            assert sum(self.book.per_peer().values()) == len(stored)
            assert not set(stored) & {prompt for batch in self.batches for prompt in batch}

    @invariant()
    def each_group_is_counted_once(self):
        if hasattr(self, "database") and not any(map(self.is_given_up, self.learner.failed)):
            counted = [
                peer
                for batch, peers in zip(self.batches, self.peers, strict=True)
                for prompt, peer in zip(batch, peers, strict=True)
                if not is_emptied(prompt)
            ]
            expected = {peer: (counted.count(peer), TOKENS * counted.count(peer)) for peer in counted}
            trained = {peer: counts for peer, counts in trained_per_peer(self.database).items() if any(counts)}
            assert trained == expected

    def teardown(self):
        if hasattr(self, "database"):
            self.database.close()
        self.folder.cleanup()

    def is_given_up(self, step: int) -> bool:
        return self.learner.failed.count(step) >= FAILURES

    def verified(self, peer: str, epoch: int) -> VerifiedGroup:
        self.made += 1
        texts = tuple(Sampled(text, "stop") for text in ("right", "wrong"))
        return VerifiedGroup(peer, epoch, self.made, 0, "products", f"{peer} {self.made}", texts, Levels((1, 0)))

    def round(self, local: int, external: int):
        """The coroutine that trains on so many own groups and so many of those that wait, with stand-ins."""
        completions = (Sampled("right", "stop", (1,)), Sampled("wrong", "stop", (2,)))
        advantages = (0.7, -0.7)
        own = []
        for _ in range(local):
            self.made += 1
            own.append(LocalGroup("products", f"own {self.made}", bytes(32), completions, Levels((1, 0)), advantages))
        drawn, self.spare = self.waiting[:external], self.waiting[external : 2 * external]
        self.pairs = [(stand_in, group) for group, stand_in in zip(drawn, self.spare, strict=False)]
        needed = [stand_in for stand_in, group in self.pairs if is_emptied(group.prompt)]
        trained = [*drawn, *needed]
        self.waiting = [group for group in self.waiting if group not in trained]
        self.batches.append((*(group.prompt for group in own), *(group.prompt for group in trained)))
        self.peers.append((*(LOCAL for _ in own), *(group.peer for group in trained)))
        offered = [WeightedGroup(group, 0.5, advantages) for group in drawn]
        stand_ins = [WeightedGroup(stand_in, 0.5, advantages, stands_in=group) for stand_in, group in self.pairs]
        return self.trainer.train(own, [*offered, *stand_ins])

    def peers_in(self, step: int) -> set[str]:
        """The peers of a stored batch."""
        return {*self.peers[step - 1], *(stand_in.peer for stand_in, _ in self.stand_ins.get(step, []))}

    def leave_out(self, peer: str, step: int) -> None:
        """Take a peer's groups out of a batch. A stand-in takes the place of one that is gone, or emptied."""
        pairs = self.stand_ins.pop(step, [])
        stored = dict(zip(self.batches[step - 1], self.peers[step - 1], strict=True))
        kept = {prompt: of for prompt, of in stored.items() if of != peer}
        for stand_in, group in pairs:
            kept.pop(stand_in.prompt, None)  # the stand-ins are the last of a batch, in the order of their groups
            if stand_in.peer != peer and (group.prompt not in kept or is_emptied(group.prompt)):
                kept[stand_in.prompt] = stand_in.peer
        self.batches[step - 1], self.peers[step - 1] = tuple(kept), tuple(kept.values())

    def what_was_given_up_is_gone(self) -> None:
        """With its stand-ins: one of them may have killed the learner."""
        step = len(self.batches)
        if self.is_given_up(step):
            self.waiting = [group for group in self.waiting if group not in self.spare]
            self.stand_ins[step] = self.pairs

    def restart(self, loses_a_checkpoint, deaths) -> None:
        self.database.close()
        self.learner.come_back(newest_is_damaged=loses_a_checkpoint)
        self.the_node_starts()
        self.learner.deaths = deaths
        finished(self.trainer.recover())
        self.learner.deaths = 0


def test_no_group_is_lost_and_none_is_trained_on_twice_whoever_is_killed(monkeypatch):
    """With bounds small enough to be met."""
    monkeypatch.setattr(trainer, "MAX_FAILURES", FAILURES)
    monkeypatch.setattr(book, "MAX_PER_PEER", PER_PEER)
    monkeypatch.setattr(book, "MAX_GROUPS", IN_ALL)
    run_state_machine_as_test(TrainerMachine, settings=settings())


def test_a_second_damaged_checkpoint_costs_no_batch():
    machine = TrainerMachine()
    machine.the_node_starts()
    try:
        for _ in range(2 * EVERY):
            finished(machine.round(1, 0))
        machine.restart(loses_a_checkpoint=True, deaths=0)
        for _ in range(EVERY):
            finished(machine.round(1, 0))
        machine.restart(loses_a_checkpoint=True, deaths=0)
        assert machine.learner.weights == machine.batches
    finally:
        machine.teardown()
