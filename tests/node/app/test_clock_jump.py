"""A clock that is wrong by a day for a moment costs no epoch; `doctor` repairs what a wrong clock left behind."""

import random
from contextlib import closing, suppress

import pytest

from context import KEY, context_of
from sapo_node.app.config import Config
from sapo_node.app.node import build_node
from sapo_node.app.state import SCHEMA, StateFolder, epochs_ahead, locked, return_to_clock
from sapo_node.gossip.verdict import Verdict
from sapo_node.storage.counters import Counters, KeyInUseElsewhere
from sapo_node.storage.database import Database
from sapo_node.storage.location import StateLocation
from sapo_node.trust.constants import Fact
from sapo_protocol import LocalError, peer_id
from swarm_parts import OpenScorer

EPOCH, DAY = 600, 144 * 600
SENDER = peer_id(bytes([9]) * 32)


class SetClock:
    """A clock that somebody sets, beside one that nobody sets."""

    def __init__(self):
        self.time, self.uptime = 5.5 * EPOCH, 1_000.0

    def now(self):
        return self.time

    def steady(self):
        return self.uptime

    def pass_by(self, seconds):
        self.time += seconds
        self.uptime += seconds

    def restart_machine(self, seconds):
        """The machine is off for a while. Its clock goes on."""
        self.time += seconds
        self.uptime = 10.0


class Life:
    """A node on a clock; `start` starts it again on its database."""

    def __init__(self, manifest, database=None):
        self.manifest = manifest
        self.clock = SetClock()
        self.database = database or Database(None, SCHEMA)
        self.start()

    def start(self):
        swarm = context_of(self.manifest, random.Random(0), clock=self.clock, key=KEY)
        counters = Counters(
            self.database,
            self.manifest,
            now=self.clock.now(),
            steady=self.clock.steady(),
            key_is_new=True,
            rng=swarm.rng,
        )
        self.node = build_node(
            Config(),
            swarm,
            database=self.database,
            counters=counters,
            scorer=OpenScorer(),
            policy=None,
            on_fatal=pytest.fail,
        )

    async def play(self):
        """Reserve a round; its epoch, and whether the node may publish it."""
        slot = await self.node.epochs.reserve()
        return slot.epoch, not self.node.counters.listening_seconds(self.clock.now(), self.clock.steady())

    async def hear(self, author, epoch, counter=0):
        return await self.node.ingest.handle(SENDER, author.message(epoch=epoch, counter=counter), shard=0)


@pytest.fixture
def life(manifest):
    return Life(manifest)


@pytest.mark.parametrize("jump", [DAY, -3 * EPOCH])
async def test_a_jump_that_passes_leaves_a_node_that_hears_and_publishes(life, author, jump):
    assert await life.play() == (5, True)
    assert await life.hear(author, 5) is Verdict.ACCEPT
    life.clock.time += jump
    assert not (await life.play())[1]
    life.clock.time -= jump
    assert await life.play() == (5, True)
    assert await life.hear(author, 5, counter=1) is Verdict.ACCEPT
    assert await life.hear(author, 5) is Verdict.IGNORE


async def test_a_node_whose_clock_jumped_and_came_back_says_once_that_it_publishes_again(life, caplog):
    for jump in (0, DAY, 0, -DAY, 0):
        life.clock.time += jump
        await life.play()
    assert [line.split(" ")[:2] for line in caplog.messages] == [["the", "clock"], ["the", "node"]]
    assert caplog.messages[1] == "the node believes the clock again, in epoch 5: it publishes again"


async def test_a_jump_that_passes_ends_no_ban(life):
    await life.play()
    for _ in range(30):
        life.node.ledger.report(SENDER, Fact.INVALID_MESSAGE)
    assert not life.node.ledger.admits(SENDER)
    life.clock.time += 2 * DAY
    await life.play()
    life.start()
    await life.play()
    assert not life.node.ledger.admits(SENDER)


async def test_a_node_that_started_with_a_wrong_clock_hears_and_publishes_once_it_is_right(life, author):
    await life.play()
    life.clock.restart_machine(DAY)
    life.start()
    assert not (await life.play())[1]
    life.clock.time -= DAY - 60
    assert await life.play() == (5, True)
    assert await life.hear(author, 5) is Verdict.ACCEPT


async def test_after_a_day_off_a_node_hears_at_once_and_publishes_after_two_epochs(life, author):
    await life.play()
    life.clock.restart_machine(DAY)
    life.start()
    assert await life.play() == (149, False)
    assert await life.hear(author, 149) is Verdict.ACCEPT
    life.clock.pass_by(2 * EPOCH)
    assert await life.play() == (151, True)


async def test_a_day_off_on_a_machine_that_ran_on_costs_nothing(life):
    await life.play()
    life.clock.pass_by(DAY)
    life.start()
    assert await life.play() == (149, True)


async def test_a_jump_that_lasts_is_believed_also_across_a_restart_of_the_node(life):
    await life.play()
    life.clock.time += DAY
    assert not (await life.play())[1]
    life.clock.pass_by(EPOCH)
    life.start()
    assert not (await life.play())[1]
    life.clock.pass_by(EPOCH)
    assert await life.play() == (151, True)


async def test_a_second_jump_soon_after_a_doubted_one_is_doubted_as_well(life, author):
    await life.play()
    life.clock.time += DAY
    await life.play()
    life.clock.pass_by(0.2 * EPOCH)
    life.clock.time += 1.9 * EPOCH
    assert not (await life.play())[1]
    life.clock.time -= DAY + 1.9 * EPOCH
    assert await life.play() == (5, True)
    assert await life.hear(author, 5) is Verdict.ACCEPT


@pytest.mark.parametrize("step", [0.4 * EPOCH, 1.9 * EPOCH])
async def test_many_small_jumps_cost_no_more_than_one(life, author, step):
    await life.play()
    steps = int(DAY / step)
    for _ in range(steps):
        life.clock.time += step
        life.clock.pass_by(1)
        await life.play()
    life.clock.time -= steps * step
    life.clock.pass_by(2 * EPOCH)
    epoch, may_publish = await life.play()
    assert may_publish
    assert epoch == int(life.clock.now() // EPOCH)
    assert await life.hear(author, epoch) is Verdict.ACCEPT


def test_many_small_jumps_do_not_lengthen_the_listening(manifest, database):
    clock = SetClock()
    clock.time += 2 * DAY
    counters = Counters(
        database, manifest, now=clock.now(), steady=clock.steady(), key_is_new=False, rng=random.Random(0)
    )
    assert counters.listening_seconds(clock.now(), clock.steady()) > EPOCH
    for jump in (*[-1.4 * EPOCH] * 100, *[1.4 * EPOCH] * 100):
        clock.time += jump
        counters.look(clock.now(), clock.steady())
    assert counters.listening_seconds(clock.now(), clock.steady()) < 5 * EPOCH


async def test_a_clock_that_runs_slow_is_believed_for_as_long_as_it_does(life):
    await life.play()
    for _ in range(500):
        life.clock.pass_by(EPOCH)
        life.clock.time -= 0.02 * EPOCH
        assert (await life.play())[1]


async def test_a_jump_between_two_looks_at_the_clock_enters_no_epoch(life):
    await life.play()
    looks = iter([life.clock.now() + DAY])
    life.clock.now = lambda: next(looks, 5.5 * EPOCH)
    await life.node.epochs.reserve()
    assert await life.play() == (5, True)


async def test_no_counter_is_used_twice_over_jumps_back_and_forth(life):
    used = []
    for jump in (0, DAY, -DAY, DAY, 2 * EPOCH, -DAY):
        life.clock.time += jump
        for _ in range(3):
            slot = await life.node.epochs.reserve()
            used.append((slot.epoch, slot.counter))
        life.start()
    assert len(set(used)) == len(used)


@pytest.fixture
def folder(tmp_path):
    return StateFolder(tmp_path / "state")


@pytest.fixture
def a_day_ahead(folder, manifest, monkeypatch):
    """The state of a node that believed a clock that was a day ahead; the time at which the clock is right again."""
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database:
        location = StateLocation(folder.path)
        counters = Counters(database, manifest, now=EPOCH, key_is_new=True, rng=random.Random(0), location=location)
        counters.reserve(DAY)
        node = Life(manifest, database).node
        node.ingest.advance(144)
        node.ledger.at(144)
    monkeypatch.setattr("sapo_node.app.state.time.time", lambda: 5.5 * EPOCH)
    return 5.5 * EPOCH


async def test_a_state_a_day_ahead_is_noticed_and_after_its_repair_lost_two_epochs(
    folder, manifest, author, a_day_ahead
):
    with closing(Database(folder.database, SCHEMA)) as database:
        assert epochs_ahead(database, manifest, a_day_ahead) == 139
        assert await Life(manifest, database).hear(author, 5) is Verdict.IGNORE
    assert return_to_clock(folder, manifest) == 5
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database:
        assert epochs_ahead(database, manifest, a_day_ahead) == 0
        counters = Counters(
            database,
            manifest,
            now=a_day_ahead,
            key_is_new=False,
            rng=random.Random(0),
            location=StateLocation(folder.path),
        )
        assert EPOCH <= counters.listening_seconds(a_day_ahead, 0.0) <= 2 * EPOCH
        assert counters.reserve(7.5 * EPOCH).epoch == 7
        assert counters.reserve(DAY).counter == 1
        life = Life(manifest, database)
        life.clock.pass_by(1.5 * EPOCH)
        assert await life.hear(author, 7) is Verdict.ACCEPT
        life.node.ledger.at(8)


def test_a_state_that_is_not_ahead_is_not_changed(folder, manifest):
    with locked(folder):
        Database(folder.database, SCHEMA).close()
    with pytest.raises(LocalError, match="not behind"):
        return_to_clock(folder, manifest)


class Listener:
    """A node whose key is older than its state. `start` starts it, again on the same database."""

    def __init__(self, manifest):
        self.manifest = manifest
        self.clock = SetClock()
        self.database = Database(None, SCHEMA)
        self.start()

    def start(self):
        now, steady, rng = self.clock.now(), self.clock.steady(), random.Random(0)
        self.counters = Counters(self.database, self.manifest, now=now, steady=steady, key_is_new=False, rng=rng)

    def left(self):
        """Look at the clock; seconds until the node may publish."""
        self.counters.look(self.clock.now(), self.clock.steady())
        return self.counters.listening_seconds(self.clock.now(), self.clock.steady())


@pytest.fixture
def listener(manifest):
    return Listener(manifest)


@pytest.mark.parametrize("correction", [0.6 * EPOCH, 1.9 * EPOCH])
def test_a_correction_of_the_clock_leaves_the_seconds_to_listen_as_they_are(listener, correction):
    before = listener.left()
    listener.clock.time += correction
    assert listener.left() == before > EPOCH


def test_what_a_lost_state_signed_is_no_alarm_after_the_clock_was_corrected(listener):
    """The epoch in which the node began to listen is that of the correct clock."""
    listener.clock.time += 1.9 * EPOCH
    listener.left()
    listener.counters.recognise(b"of the lost state", 7)
    with pytest.raises(LocalError, match="in use elsewhere"):
        listener.counters.recognise(b"of a copy", 8)


@pytest.mark.parametrize("waits", [0, 3 * EPOCH], ids=["a copy", "the original"])
def test_a_node_that_a_service_manager_starts_again_does_not_publish_beside_another_one_with_its_key(listener, waits):
    """A service manager starts a node again that stopped. Each time it listens for some seconds until it stops."""
    listener.clock.pass_by(waits)
    listener.left()
    left = []
    for _ in range(150):
        listener.clock.pass_by(20)
        left.append(listener.left())
        with suppress(KeyInUseElsewhere):
            listener.counters.recognise(b"of the other node", listener.counters.epoch(listener.clock.time))
        listener.clock.pass_by(30)
        listener.start()
    assert min(left[1:]) > 0
    listener.clock.pass_by(3 * EPOCH)  # the other node was stopped
    assert listener.left() == 0


def test_a_clock_that_is_right_again_while_the_node_listens_is_told_with_the_minutes_that_are_left(listener, caplog):
    for jump in (DAY, -DAY):
        listener.clock.time += jump
        left = listener.left()
    assert caplog.messages[-1].endswith(f"it publishes in {left / 60:.0f} min")


@pytest.mark.parametrize("jump", [DAY, -DAY])
@pytest.mark.parametrize("listened", [0.5 * EPOCH, 3 * EPOCH])
def test_a_jump_that_passes_over_a_restart_leaves_the_seconds_to_listen_as_they_are(listener, jump, listened):
    listener.clock.pass_by(listened)
    before = listener.left()
    listener.clock.time += jump
    listener.left()
    listener.clock.time -= jump
    listener.start()
    assert listener.left() == before


def test_listening_that_began_a_day_behind_the_state_takes_two_epochs_once_the_clock_is_right(listener):
    listener.clock.pass_by(DAY)
    listener.left()
    listener.database.execute("DELETE FROM listening_period")
    listener.clock.restart_machine(-DAY)
    listener.start()
    listener.left()
    listener.clock.time += DAY
    assert EPOCH < listener.left() <= 2.5 * EPOCH
    listener.clock.pass_by(2.5 * EPOCH)
    assert listener.left() == 0


def test_seconds_in_which_the_clock_was_behind_the_state_do_not_count_as_listening(listener):
    before = listener.left()
    listener.clock.time -= 1.5 * EPOCH
    assert listener.left() == before + EPOCH
    listener.clock.pass_by(EPOCH)
    assert listener.left() == before


def test_seconds_in_which_the_node_is_off_do_not_count_as_listening(listener):
    before = listener.left()
    listener.clock.pass_by(DAY)
    listener.start()
    assert listener.left() == before


@pytest.mark.parametrize("epochs", [1, 40])
def test_no_counter_that_a_wrong_clock_used_is_used_again_after_the_repair(manifest, database, epochs):
    counters = Counters(database, manifest, now=EPOCH, key_is_new=True, rng=random.Random(0))
    times = [EPOCH, *(DAY + k * EPOCH for k in range(epochs))]
    used = [counters.reserve(now) for now in times]
    for slot in used:
        counters.keep(slot, b"%d" % slot.epoch, b"message")
    counters.return_to_clock(5 * EPOCH)
    assert not set(used) & {counters.reserve(now) for now in times}
    assert counters.recent() == []
    for slot in used:
        counters.recognise(b"%d" % slot.epoch, slot.epoch)


def test_a_state_that_was_ahead_for_longer_than_it_remembers_is_not_repaired(manifest, database, monkeypatch):
    monkeypatch.setattr("sapo_node.storage.counters.KEPT_EPOCHS", 20)
    counters = Counters(database, manifest, now=EPOCH, key_is_new=True, rng=random.Random(0))
    for now in (EPOCH, *(DAY + k * EPOCH for k in range(40))):
        counters.reserve(now)
    assert database.rows("SELECT count(*) FROM counters") == [(20,)]
    with pytest.raises(LocalError, match="start with a new key"):
        counters.return_to_clock(5 * EPOCH)


def test_repair_leaves_the_counters_of_the_epochs_that_it_returns_to(manifest, database, monkeypatch):
    """Many counters of later epochs do not make the node forget those of the present."""
    monkeypatch.setattr("sapo_node.storage.counters.KEPT_EPOCHS", 20)
    counters = Counters(database, manifest, now=EPOCH, key_is_new=True, rng=random.Random(0))
    for now in (EPOCH, *(DAY + k * EPOCH for k in range(19))):
        counters.reserve(now)
    counters.return_to_clock(5 * EPOCH)
    used = [counters.reserve(now) for now in (7 * EPOCH, 7 * EPOCH, 8 * EPOCH, 8 * EPOCH)]
    assert len(set(used)) == 4
