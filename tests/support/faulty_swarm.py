"""A training swarm of three that meets one fault in each of its lives, in processes of their own.

A life is a process: it starts three nodes on virtual time from their files, and one fault ends it or disturbs it. The
faults of the disk come from `disk_faults.c`, which is preloaded. After each life the files are checked.

    python tests/support/faulty_swarm.py 200 results     plays 200 faults and writes results/faults.json
"""

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.files import to_json
from sapo_node.app.config import Config
from sapo_node.app.exchange import pull, resend
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA
from sapo_node.groups.messages import GroupReport
from sapo_node.groups.record import State
from sapo_node.net.in_memory import MemoryHub
from sapo_node.processes.worker import WorkerFailed
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.storage.location import StateLocation
from sapo_node.tasks import build_task
from sapo_node.training.batch_log import BatchLog
from sapo_protocol import LocalError, load_manifest, open_message
from swarm_parts import KnowingScorer, Oracle, trained_groups

KINDS = ("kill", "power cut", "disk full", "disk full in the WAL", "slow disk")
"""Faults of the disk, in the order of `disk_faults.c`."""
FAULTS = (*KINDS, "clock jump")
NODES, ROUNDS = 3, 3
LISTENING_ROUNDS = 150
"""Rounds of two seconds in which a node listens to the end, after a power cut and a jump of its clock."""
MANIFEST = replace(load_manifest("starter"), genesis=0, epoch_seconds=60, max_rounds=200)
CONFIG = Config(external=4, checkpoint_every=2, eval_every=0)
JUMPS = (-3_600, -90, -10, 10, 90)
"""Seconds by which the clock of one node jumps."""
LAST_WRITE = 600
"""A fault comes at this write of a life at the latest: a life without a fault makes more."""
REMEMBERED = 16
"""Epochs for which a node remembers what it published."""
FAILED, STOPPED = 70, 71
"""Exit codes of a life: an error that is none of ours, and an error of ours."""


def trained_of(groups):
    """The external groups of a request that are trained on. Filters leave nothing of every third, and then its stand-in
    is needed.
    """

    def is_emptied(name):
        _, _, counter, k = name.split("/")
        return (int(counter) + int(k)) % 3 == 0

    return [group.id for group in trained_groups(groups, is_emptied) if group.source == "external"]


class SavingOracle(Oracle):
    """An oracle whose weights are the list of external groups that it was trained on, with checkpoints on disk."""

    def __post_init__(self):
        self.folder = Path()
        self.learnt = []

    def load(self, folder):
        self.folder = folder
        self.step, self.learnt = checkpoint_in(folder)

    async def train(self, request):
        report = await super().train(request)
        trained = trained_of(request.groups)
        self.learnt += trained
        return replace(report, groups={**report.groups, **{name: GroupReport(10) for name in trained}})

    async def checkpoint(self):
        unfinished = self.folder / "unfinished"
        try:
            with unfinished.open("w") as file:
                json.dump([self.step, self.learnt], file)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self.folder / f"step-{self.step:08d}")
        except OSError as error:
            self.load(self.folder)
            raise WorkerFailed("the checkpoint cannot be written") from error
        for old in sorted(self.folder.glob("step-*"))[:-2]:
            old.unlink()
        return self.step


def checkpoint_in(folder):
    """The step and the external groups of the newest checkpoint."""
    newest = max(folder.glob("step-*"), default=None)
    return json.loads(newest.read_text()) if newest else (0, [])


class JumpingClock:
    """Unix time that jumps once."""

    def __init__(self, start, jump):
        self.start, self.jump = start, jump

    def now(self):
        passed = trio.current_time()
        return self.start + passed + (self.jump if passed > ROUNDS else 0)

    def steady(self):
        return self.start + trio.current_time()


class Member:
    """One node of a life, on its files, and what it said."""

    def __init__(self, number, folder, hub, life, audit):
        folder.mkdir(parents=True, exist_ok=True)
        is_new = not (folder / "node.sqlite").exists()
        if not (folder / "lock").exists():  # a touch would be noticed as a copied state
            (folder / "lock").touch()
        self.audit = audit
        self.rounds = life["rounds"]
        self.database = Database(folder / "node.sqlite", SCHEMA)
        self.policy = SavingOracle(MANIFEST, random.Random(f"{life['seed']}/{number}"), seconds=2.0)
        self.policy.load(folder)
        clock = JumpingClock(life["start"], life["jump"] if number == 1 else 0)
        rng = random.Random(f"{life['seed']}/{number}")
        self.node = build_node(
            CONFIG,
            SwarmContext(MANIFEST, clock, identity(number), rng),
            counters=Counters(
                self.database, MANIFEST, now=clock.now(), key_is_new=is_new, rng=rng, location=StateLocation(folder)
            ),
            database=self.database,
            scorer=KnowingScorer(self.policy.answers),
            policy=self.policy,
            on_fatal=self._stop,
        )
        self.network = hub.join(
            self.node.swarm.identity,
            self.node.channels,
            requests=self.node.requests(lambda: self.network.peers()),  # noqa: PLW0108 - there is none yet
            admit=self.node.admits,
            notify=lambda _: None,
        )

    def _stop(self, error):
        raise error

    def _say(self, **what):
        os.write(self.audit, f"{json.dumps({'node': self.node.peer_id, **what})}\n".encode())

    async def publish(self, topic, message):
        opened = open_message(message, MANIFEST)
        self._say(published=[opened.header.epoch, opened.header.counter, opened.opened.envelope_id.hex()])
        await self.network.publish(topic, message)

    async def play(self):
        await resend(self.node, self.publish)
        await run_node(
            self.node,
            self.publish,
            rounds=self.rounds,
            on_round=lambda report: self._say(played=report.step, external=report.external),
        )


def identity(number):
    return Identity(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


async def play(folder, life, audit):
    """One life of all three nodes."""
    hub = MemoryHub(seed=life["seed"])
    members = [Member(number, folder / str(number), hub, life, audit) for number in range(1, NODES + 1)]
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.network.run)
            nursery.start_soon(pull, member.node, member.network)
        async with trio.open_nursery() as playing:
            for member in members:
                playing.start_soon(member.play)
        nursery.cancel_scope.cancel()
    for member in members:
        member.database.close()


def leaves(error):
    """The single errors of a group."""
    return (
        [leaf for each in error.exceptions for leaf in leaves(each)]
        if isinstance(error, BaseExceptionGroup)
        else [error]
    )


def live(library, folder, life):
    """Play a life in this process. Does not return."""
    audit = os.open(folder / "audit", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    code = 0
    try:
        kind = KINDS.index(life["fault"]) + 1 if life["fault"] in KINDS else 0
        library.arm(str(folder / "state").encode(), kind, life["at"], life["times"], life["seed"])
        trio.run(play, folder / "state", life, audit, clock=trio.testing.MockClock(autojump_threshold=0))
    except BaseException as error:  # noqa: BLE001 - whatever ends a life is told
        code = STOPPED if all(isinstance(each, LocalError) for each in leaves(error)) else FAILED
        sys.stderr.write(f"{[f'{type(each).__name__}: {each}' for each in leaves(error)]}\n")
    sys.stderr.flush()
    os._exit(code)


def serve():
    """Read a life per line, play it in a fork, and answer how it ended."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    library.arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_ulong]
    for task in MANIFEST.tasks:  # imports what every life needs
        build_task(task.dataset, task.config, 0)
    for line in sys.stdin:
        folder, life = json.loads(line)
        pid = os.fork()
        if not pid:
            live(library, Path(folder), life)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


@dataclass
class Known:
    """What a node has acknowledged in its lives so far."""

    published: dict = field(default_factory=dict)
    seen: set = field(default_factory=set)
    steps: int = 0
    external: int = 0


class FaultySwarm:
    """One swarm through many lives. Use as a context manager."""

    def __init__(self, folder, library, seed):
        self._folder = folder
        self._rng = random.Random(seed)
        self._start = 600.0
        self._known = defaultdict(Known)
        self._read = 0
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._log.close()

    def life(self, fault, rounds=ROUNDS):
        """Play one life with a fault, or with none, and check what it left. Returns how it ended."""
        rng = self._rng
        life = {
            "fault": fault,
            "rounds": rounds,
            "seed": rng.getrandbits(31),
            "at": rng.randrange(1, LAST_WRITE),
            "times": rng.choice((1, 3, 30, 10**6)),
            "jump": rng.choice(JUMPS) if fault == "clock jump" else 0,
            "start": self._start,
        }
        self._process.stdin.write(json.dumps([str(self._folder), life]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        lasts = 20.0 * rounds
        taken = int((self._start + max(0, life["jump"]) + lasts) // MANIFEST.epoch_seconds) - 1
        self._start += lasts
        if fault == "power cut":  # the machine starts anew, so the nodes listen for two epochs
            for lock in self._folder.glob("state/*/lock"):
                lock.chmod(lock.stat().st_mode ^ 0o040)
        assert code in {0, STOPPED, -signal.SIGKILL}, f"a life ended by {code}: {life}"
        try:
            self._check(fault, taken)
        except AssertionError as error:
            error.add_note(f"after the life {life}, which ended by {code}")
            raise
        return {0: "went on", STOPPED: "stopped", -signal.SIGKILL: "killed"}[code]

    def external(self):
        """How many external groups each node has trained on."""
        return [known.external for known in self._known.values()]

    def _check(self, fault, taken):
        self._read_audit()
        for number in range(1, NODES + 1):
            folder = self._folder / "state" / str(number)
            if (folder / "node.sqlite").exists():
                known = self._known[identity(number).peer_id]
                with closing(Database(folder / "node.sqlite", (), read_only=True)) as database:
                    database.check()
                    _check_training(database, folder, known)
                    _check_messages(database, known, fault, taken)
                    assert not database.rows("SELECT peer FROM ledger WHERE standing = 'banned'")

    def _read_audit(self):
        lines = (self._folder / "audit").read_bytes().splitlines()
        for line in lines[self._read :]:
            said = json.loads(line)
            known = self._known[said["node"]]
            if "published" in said:
                epoch, counter, envelope_id = said["published"]
                assert known.published.setdefault((epoch, counter), envelope_id) == envelope_id, "published twice"
            else:
                known.steps = said["played"]
                known.external += said["external"]
        self._read = len(lines)


def _check_training(database, folder, known):
    """Steps follow each other, no external group is trained twice, and no acknowledged round is lost."""
    step, learnt = checkpoint_in(folder)
    batches = list(BatchLog(database).batches())
    steps = [each.request.step for each in batches]
    missing = {*range(min(steps, default=0), max(steps, default=0))} - {*steps}
    assert all(each <= step for each in missing), f"batches {steps} after checkpoint {step}"
    groups, stand_ins = list(learnt), set()
    for each in batches:
        if each.request.step > step:
            stored = each.request.groups
            groups += trained_of(stored)
            stand_ins |= {group.id for group in stored if group.stands_in}
    twice = [group for group, count in Counter(groups).items() if count > 1]
    assert not twice, f"trained twice: {twice}"
    rows = database.rows("SELECT peer, epoch, counter, k FROM groups WHERE state = ?", State.VERIFIED)
    offered = {"/".join(map(str, row)) for row in rows}
    # A stand-in stays on offer until the step that needs it has been trained.
    assert not offered & set(groups) - stand_ins, "what was trained on is on offer again"
    newest = max([step, *steps])
    assert newest >= known.steps, f"round {known.steps} is lost: {newest}"
    known.steps = newest


def _check_messages(database, known, fault, taken):
    """Published messages are stored, and accepted messages from epoch `taken` on stay accepted."""
    stored = {
        (epoch, counter): envelope_id.hex()
        for envelope_id, epoch, counter in database.rows("SELECT envelope_id, epoch, counter FROM signed")
    }
    lost = {place for place in known.published if place not in stored}
    [(epoch,)] = database.rows("SELECT coalesce(max(epoch), 0) FROM counters")
    assert not {place for place in lost if place[0] > epoch - REMEMBERED}, "a published message is not stored"
    seen = set(database.rows("SELECT issuer, epoch, counter, envelope_id FROM seen"))
    if fault != "power cut":
        assert {each for each in known.seen if each[1] >= taken} <= seen, "an accepted message is forgotten"
    known.seen = seen


def compiled(folder):
    """The library of `disk_faults.c`."""
    library = Path(folder) / "disk_faults.so"
    source = Path(__file__).with_name("disk_faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def drawn(seed):
    """Twenty faults."""
    rng = random.Random(seed)
    return [rng.choice(FAULTS) for _ in range(20)]


def play_faults(folder, faults, seed):
    """Play one life with each fault, and then lives without. Returns how lives ended, by fault."""
    ended = defaultdict(Counter)
    state = Path(folder) / f"swarm-{seed}"
    state.mkdir()
    with FaultySwarm(state, compiled(folder), seed) as swarm:
        swarm.life(None)
        for fault in faults:
            ended[fault][swarm.life(fault)] += 1
        swarm.life(None, LISTENING_ROUNDS)
        before = swarm.external()
        assert swarm.life(None) == "went on"
        exchanged = [now > then for now, then in zip(swarm.external(), before, strict=True)]
        assert all(exchanged), f"nothing is exchanged: {exchanged}"
    return ended


def main(points, output):
    """Play `points` faults, twenty a swarm, and write how the lives ended."""
    started, ended = time.monotonic(), {fault: Counter() for fault in FAULTS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(points // 20):
            for fault, counts in play_faults(folder, drawn(seed), seed).items():
                ended[fault] += counts
    found = {
        "command": f"make faults FAULTS={points}",
        "points": points,
        "seconds": round(time.monotonic() - started),
        "faults": {fault: dict(counts) for fault, counts in ended.items()},
    }
    (Path(output) / "faults.json").write_text(to_json(found))


if __name__ == "__main__":
    serve() if len(sys.argv) == 1 else main(int(sys.argv[1]), sys.argv[2])
