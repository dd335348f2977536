"""Taking steps back with the real learner: the weights are bit for bit those without the accused groups.

The learner's service answers in this process, and is made anew from its checkpoints when it is killed. One test does
the same with the process.
"""

import gc
import os
import shutil
import signal
import weakref
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from books import book_of
from sapo_node.app.state import SCHEMA
from sapo_node.groups.advantage import advantages
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import (
    Generated,
    GenerateRequest,
    KeepBestRequest,
    LearnerOptions,
    RequestError,
    RestoreRequest,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.prompt import Prompt
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.groups.stats import Interval
from sapo_node.learner.checkpoint import Snapshot
from sapo_node.learner.client import Learner
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.service import Service
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import stored_batch, trained_per_peer
from sapo_node.training.trainer import Trainer

torch.set_num_threads(1)

PROMPT = "What is 2 + 2?"
EVERY = 2


class Killed(Exception):
    """Ends the node's process."""


class InProcess:
    """A learner in this process; `kill` is called before and after each request, and may raise."""

    def kill(self, moment):
        """Nobody is killed unless a test says so."""

    def __init__(self, root):
        self._options = LearnerOptions(checkpoints=str(root), groups=3, completions=4, max_tokens=40, threads=1)
        self._service = Service(self._options)

    @property
    def step(self):
        return self._service.ready().step

    @property
    def weights(self):
        """Those that train, and the averaged ones."""
        trainer = self._service._trainer
        return [value.detach().clone() for value in (*trainer.parameters, *trainer.average.values())]

    def samples(self):
        """Four completions of the untrained policy."""
        request = to_json(GenerateRequest((Prompt(PROMPT),), 4, 40, 1))
        return from_json(Generated, self._service.answer({"generate": request})).groups[0]

    async def generate(self, prompts, *, completions, max_tokens, seed, averaged=False):
        raise NotImplementedError

    async def train(self, request):
        return from_json(TrainReport, self._ask("train", request, f" {request.step}"))

    async def checkpoint(self):
        return self._service.answer({"checkpoint": {}})["step"]

    async def keep_best(self, step, needed):
        self._ask("keep_best", KeepBestRequest(step, tuple(needed)))

    async def restore(self, step):
        self._ask("restore", RestoreRequest(step))

    def _ask(self, kind, request, number=""):
        try:
            self.kill(f"before {kind}{number}")
            reply = self._service.answer({kind: to_json(request)})
            self.kill(f"after {kind}{number}")
        except WorkerFailed:
            self._service = Service(self._options)
            raise
        if "error" in reply:
            raise RequestError(reply["error"])
        return reply


def once(moment, error):
    """Raises the error at the first such moment."""
    left = [moment]

    def kill(now):
        if now in left:
            left.remove(now)
            raise error

    return kill


def external(peer, step, text):
    texts = (f"{text} so it is <answer>4</answer>", "no")
    completions = tuple(Sampled(each, "stop") for each in texts)
    group = VerifiedGroup(peer, 5, step, 0, "products", PROMPT, completions, Levels((1, 0)))
    return WeightedGroup(group, 0.5, tuple(advantages((1, 0))))


async def play(database, learner, own, steps, *, poison, evaluations=None):
    """`evaluations` gives pass@1 after some of the steps."""
    trainer = trainer_of(database, learner)
    for step in steps:
        local = LocalGroup("products", PROMPT, bytes(32), own, Levels((1, 0, 0, 0)), advantages((1, 0, 0, 0)))
        poisoned = [external("poisoner", step, "hail the swarm")] if poison else []
        await trainer.train([local], [external("honest", step, f"I add {step}"), *poisoned])
        if step in (evaluations or {}):
            await trainer.evaluated(step, Interval(evaluations[step], evaluations[step], evaluations[step]))


def trainer_of(database, learner):
    return Trainer(database, book_of(database), learner, objective="positive-only", checkpoint_every=EVERY)


def is_poison(group, peer):
    return peer == "poisoner" and "hail the swarm" in group.completions[0].text


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return InProcess(tmp_path_factory.mktemp("samples")).samples()


@dataclass(frozen=True)
class Played:
    """A node that has played some rounds and was stopped."""

    folder: Path

    @property
    def checkpoints(self):
        return self.folder / "checkpoints"

    def database(self):
        return Database(self.folder / "node.sqlite", SCHEMA)

    async def play(self, own, steps, *, poison):
        with closing(self.database()) as database:
            await play(database, InProcess(self.checkpoints), own, steps, poison=poison)

    async def end(self):
        """The weights, and the counts of the peers that are left."""
        with closing(self.database()) as database:
            learner = InProcess(self.checkpoints)
            await trainer_of(database, learner).recover()
            return learner.weights, {peer: each for peer, each in trained_per_peer(database).items() if any(each)}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, own):
    """By number of rounds: a node that trained on a poisoner's groups, and the end of one that did not."""

    made = {}

    async def played(steps):
        if steps not in made:
            poisoned, clean = (Played(tmp_path_factory.mktemp(name)) for name in ("poisoned", "clean"))
            # Steps up to the older of two checkpoints cannot be taken back.
            kept = max(0, steps // EVERY - 1) * EVERY
            for node, has_poison in ((poisoned, True), (clean, False)):
                await node.play(own, range(1, kept + 1), poison=False)
                await node.play(own, range(kept + 1, steps + 1), poison=has_poison)
            made[steps] = poisoned, await clean.end()
        return made[steps]

    return played


@pytest.fixture
def node_of(nodes, tmp_path):
    """A copy of the poisoned node, and the end of the clean one, for so many rounds."""

    async def of(steps):
        poisoned, clean_end = await nodes(steps)
        shutil.copytree(poisoned.folder, tmp_path / "node")
        return Played(tmp_path / "node"), clean_end

    return of


MOMENTS = [f"{when} {what}" for what in ("restore", "train 3", "train 5") for when in ("before", "after")]
QUICK = {(Killed, "after restore"), (Killed, "before train 5"), (WorkerFailed, "after restore")}


@pytest.mark.parametrize(
    ("error", "moment"),
    [
        (Killed, "never"),
        *(
            pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow)
            for each in product((Killed, WorkerFailed), MOMENTS)
        ),
    ],
)
async def test_whoever_is_killed_when_the_weights_are_those_without_the_accused_groups(node_of, error, moment):
    node, (expected, expected_counts) = await node_of(5)
    learner = InProcess(node.checkpoints)
    with closing(node.database()) as database:
        trainer = trainer_of(database, learner)
        await trainer.recover()
        poisoned = learner.weights
        learner.kill = once(moment, error())
        with suppress(Killed):
            await trainer.take_back(is_poison, "completions said", "hail the swarm")
    weights, counts = await node.end()
    assert not equal(poisoned, expected)
    assert equal(weights, expected)
    assert counts == expected_counts


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("moment", ["never", "before restore", "after restore"])
@pytest.mark.slow
async def test_before_there_are_two_checkpoints_the_initial_weights_are_restored(node_of, steps, moment):
    node, (expected, _) = await node_of(steps)
    learner = InProcess(node.checkpoints)
    with closing(node.database()) as database:
        trainer = trainer_of(database, learner)
        await trainer.recover()
        learner.kill = once(moment, WorkerFailed())
        taken = await trainer.take_back(is_poison, "why")
    assert (taken.restored, taken.groups) == (0, steps)
    assert equal(learner.weights, expected)


async def test_a_corrupt_checkpoint_is_not_restored_and_the_node_goes_on_as_it_is(node_of, own):
    node, _ = await node_of(5)
    learner = InProcess(node.checkpoints)
    with closing(node.database()) as database:
        trainer = trainer_of(database, learner)
        await trainer.recover()
        before = learner.weights
        (node.checkpoints / "step-00000002" / "weights.safetensors").write_bytes(b"")
        taken = await trainer.take_back(is_poison, "why")
        assert taken.failure == "checkpoint step-00000002 does not match its checksums"
        assert equal(before, learner.weights)
        await play(database, learner, own, [6], poison=False)
    assert learner.step == 6


@pytest.mark.slow
async def test_the_process_restores_and_comes_back_from_a_kill_without_the_later_checkpoint(tmp_path, own, nursery):
    learner = Learner(LearnerOptions(checkpoints=str(tmp_path / "node"), groups=3, completions=4, threads=1))
    await nursery.start(learner.run)
    database = Database(None, SCHEMA)
    await play(database, learner, own, range(1, 5), poison=True)
    await learner.restore(2)
    assert learner.step == 2
    await learner.restore(4)
    assert learner.step == 2
    os.kill(learner._worker._child.process.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed):
        await learner.restore(2)
    await learner.restore(2)
    assert (learner.restarts, learner.ready.step, learner.step) == (1, 2, 2)
    await learner.restore(0)
    assert learner.step == 0
    assert list((tmp_path / "node").iterdir()) == []


WAYS = [
    {},
    pytest.param({"dtype": "bfloat16"}, marks=pytest.mark.slow),
    pytest.param({"lora": 4}, marks=pytest.mark.slow),
    {"lora": 4, "dtype": "bfloat16"},
    pytest.param({"gradient_checkpointing": True}, marks=pytest.mark.slow),
]


def service_of(root, **ways):
    return Service(LearnerOptions(checkpoints=str(root), groups=1, completions=4, max_tokens=40, threads=1, **ways))


def step(service, number):
    completions = tuple(Sampled(f"{each} <answer>4</answer>", "stop", (1, 2, each), (-1.0,) * 3) for each in range(4))
    group = TrainGroup("local", PROMPT, 1.0, advantages((1, 0, 0, 0)), completions)
    assert from_json(TrainReport, service.answer({"train": to_json(TrainRequest(number, (group,)))})).skipped is None


def begin_anew(service):
    return service.answer({"restore": to_json(RestoreRequest(0))})


def state(service):
    """The number of the step, weights, averages, Adam's state, torch's random state, and the model."""
    held = Snapshot.of(service._trainer).copy()
    model = service._trainer.policy.model.state_dict()
    return {
        "step": torch.tensor(held.step),
        **held.weights,
        **held.optimizer,
        **{f"model/{k}": v for k, v in model.items()},
    }


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_going_back_to_step_0_is_a_fresh_start_bit_for_bit(tmp_path, ways):
    trained, fresh = (service_of(tmp_path / name, **ways) for name in ("trained", "fresh"))
    for number in (1, 2):
        step(trained, number)
    assert begin_anew(trained) == {"step": 0}
    for number in (1, 2):
        ours, theirs = state(trained), state(fresh)
        assert ours.keys() == theirs.keys()
        assert equal(ours.values(), theirs.values())
        for service in (trained, fresh):
            step(service, number)


class Peak(TorchDispatchMode):
    """Within this context, counts the bytes of new tensors that exist at the same time."""

    def __init__(self, known):
        super().__init__()
        self.bytes = self.alive = 0
        self._known = {id(value.untyped_storage()) for value in known}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and id(leaf.untyped_storage()) not in self._known:
                self._hold(leaf.untyped_storage())
        return result

    def _hold(self, storage):
        self._known.add(id(storage))
        weakref.finalize(storage, self._release, id(storage), storage.nbytes())
        self.alive += storage.nbytes()
        self.bytes = max(self.bytes, self.alive)

    def _release(self, key, size):
        self._known.discard(key)
        self.alive -= size


def counted(service):
    """Goes back to step 0. Counts the bytes of new tensors meanwhile."""
    trainer = service._trainer
    with Peak([*trainer.policy.model.parameters(), *trainer.parameters, *trainer.average.values()]) as bytes_of:
        begin_anew(service)
    return bytes_of


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_going_back_to_step_0_takes_no_more_memory_than_the_gradients_of_a_step(tmp_path, ways):
    service = service_of(tmp_path, **ways)
    step(service, 1)
    assert counted(service).bytes < 1.1 * sum(value.nbytes for value in service._trainer.parameters)


def test_what_was_loaded_to_go_back_to_step_0_waits_for_no_garbage_collection(tmp_path):
    service = service_of(tmp_path, gradient_checkpointing=True)
    step(service, 1)
    gc.disable()
    try:
        assert counted(service).alive == 0
    finally:
        gc.enable()


def test_where_a_model_cannot_be_loaded_again_nothing_is_lost(tmp_path):
    model = shutil.copytree(POLICY_DIR, tmp_path / "model")
    service = service_of(tmp_path / "node", model=str(model))
    step(service, 1)
    service.answer({"checkpoint": {}})
    before = state(service)
    (model / "model.safetensors").unlink()
    assert "has no weights in the safetensors format" in begin_anew(service)["error"]
    assert equal(state(service).values(), before.values())
    assert (tmp_path / "node" / "step-00000001").is_dir()


DECAYED = {1: 0.9, 2: 0.1}
"""Evaluations after which step 3 starts from the best weights, of step 1."""


async def decayed(folder, own, steps, *, poison, kill=None):
    """Plays a node whose policy decays, with the learner or the node killed once; the node at its end, and its
    learner's weights.
    """
    folder.mkdir()
    node = Played(folder)
    learner = InProcess(node.checkpoints)
    with closing(node.database()) as database:
        learner.kill = kill or learner.kill
        with suppress(Killed):
            await play(database, learner, own, range(1, steps + 1), poison=poison, evaluations=DECAYED)
    return node, learner.weights


@pytest.mark.parametrize("moment", ["before train 3", "after train 3", "before train 4"])
@pytest.mark.parametrize("error", [Killed, WorkerFailed], ids=["the node", "the learner"])
@pytest.mark.slow
async def test_a_step_from_the_best_weights_is_replayed_bit_for_bit(tmp_path, own, moment, error):
    steps = int(moment[-1])
    _, expected = await decayed(tmp_path / "straight", own, steps, poison=False)
    node, _ = await decayed(tmp_path / "killed", own, steps, poison=False, kill=once(moment, error()))
    weights, _ = await node.end()
    assert equal(weights, expected)


async def test_a_step_from_the_best_weights_goes_back_to_them(tmp_path, own):
    node, straight = await decayed(tmp_path / "decayed", own, 3, poison=False)
    undisturbed = Played(tmp_path / "undisturbed")
    undisturbed.folder.mkdir()
    await undisturbed.play(own, range(1, 4), poison=False)
    assert not equal(straight, (await undisturbed.end())[0])
    assert [path.name for path in node.checkpoints.glob("best-*")] == ["best-00000001"]


async def test_steps_that_are_taken_back_are_replayed_from_the_best_weights_before_them(tmp_path, own):
    clean, _ = await decayed(tmp_path / "clean", own, 2, poison=False)
    shutil.copytree(clean.folder, tmp_path / "poisoned")
    poisoned = Played(tmp_path / "poisoned")
    for node, has_poison in ((clean, False), (poisoned, True)):
        await node.play(own, range(3, 6), poison=has_poison)
    with closing(poisoned.database()) as database:
        learner = InProcess(poisoned.checkpoints)
        trainer = trainer_of(database, learner)
        await trainer.recover()
        before = learner.weights
        assert (await trainer.take_back(is_poison, "why")).restored == 2
    expected, _ = await clean.end()
    assert not equal(before, expected)
    assert equal((await poisoned.end())[0], expected)


async def test_best_weights_that_hold_what_is_taken_back_are_gone(node_of):
    node, (expected, _) = await node_of(5)
    learner = InProcess(node.checkpoints)
    with closing(node.database()) as database:
        trainer = trainer_of(database, learner)
        await trainer.recover()
        await trainer.evaluated(5, Interval(0.9, 0.9, 0.9))
        await trainer.take_back(is_poison, "why")
        assert trainer.health.needed == set()
    assert list(node.checkpoints.glob("best-*")) == []
    assert equal((await node.end())[0], expected)


async def test_where_the_best_weights_are_damaged_training_goes_on_without_them(tmp_path, own, caplog):
    node, _ = await decayed(tmp_path / "node", own, 2, poison=False)
    (node.checkpoints / "best-00000001" / "weights.safetensors").write_bytes(b"")
    await node.play(own, [3], poison=False)
    assert "step 3 cannot start from the best weights" in caplog.text
    with closing(node.database()) as database:
        assert stored_batch(database, 3).request.restart is None
