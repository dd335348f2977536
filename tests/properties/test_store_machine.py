"""Counters in real files against lists: none is handed out twice, whatever the clock does and whoever is killed.

A kill puts in place of the database what it and its log held at that moment: what a dead process leaves behind.
"""

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sapo_node.storage import counters
from sapo_node.storage.counters import Counters, KeyInUseElsewhere, Slot
from sapo_node.storage.database import Database
from sapo_node.storage.location import StateLocation
from sapo_protocol import load_manifest

GENESIS, EPOCH, ROUNDS = 1_000.0, 10, 3
MANIFEST = replace(load_manifest("starter"), genesis=int(GENESIS), epoch_seconds=EPOCH, max_rounds=ROUNDS)
SCHEMA = (counters.SCHEMA,)
KEPT = 3
MEMORY = Path("/dev/shm")
"""A kill loses nothing that was written, so the files need no disk, and the syncs no time."""


class Killed(Exception):
    """Ends the process in the middle of a transaction."""


class Mortal(Database):
    """A database whose process can be killed before any of its writes."""

    writes_left: int | None = None
    on_death: Callable[[], None]

    def execute(self, statement, *values):
        if self.writes_left is not None:
            if self.writes_left == 0:
                self.on_death()
                raise Killed
            self.writes_left -= 1
        return super().execute(statement, *values)


class CountersMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.folders = 0
        self.reserved: list[Slot] = []
        self.noted = (-1, -1)
        """What stands beside the database, and tells when the database is older."""
        self.in_hand: Slot | None = None
        self.kept: list[tuple[Slot, bytes, bytes]] = []
        self.published: list[Slot] = []
        """Reserved while this node was free to publish; unlike the rest, no backup takes it back."""
        self.left, self.listened, self.began = 0.0, 0.0, -1
        """Seconds to listen and seconds listened, and the epoch in which that began."""

    @initialize(seconds=st.integers(-2 * EPOCH, 10 * EPOCH), key_is_new=st.booleans())
    def the_node_starts_for_the_first_time(self, seconds, key_is_new):
        self.now = GENESIS + seconds
        self.entered = self.clock_epoch()
        self.folder.mkdir()
        (self.folder / "lock").touch()
        self.start(key_is_new=key_is_new, must_listen=not key_is_new)

    @rule(seconds=st.integers(-3 * EPOCH, 3 * EPOCH) | st.sampled_from([-20 * EPOCH, 17 * EPOCH, EPOCH - 0.5]))
    def the_clock_moves_either_way(self, seconds):
        self.now = max(GENESIS - 3 * EPOCH, self.now + seconds)

    @rule(epochs_later=st.sampled_from([0, 0, 0, 1, 2, 15, 16]), is_kept=st.sampled_from([True, True, False]))
    def a_round_is_reserved(self, epochs_later, is_kept):
        self.now += epochs_later * EPOCH
        self.look()
        expected = self.next()
        slot = self.counters.reserve(self.now)
        assert slot == expected
        self.in_hand = slot
        if slot is None:
            return
        assert all(slot.epoch >= before.epoch for before in self.reserved)
        self.reserved.append(slot)
        self.noted = max(self.noted, (slot.epoch, slot.counter))
        if not self.counters.listening_seconds(self.now, self.now):
            assert slot not in self.published
            self.published.append(slot)
        if is_kept:
            self.kept.append(self.signed())
            self.counters.keep(*self.kept[-1])
            self.in_hand = None

    @precondition(lambda self: self.in_hand)
    @rule()
    def keeping_it_fails_and_leaves_nothing(self):
        with pytest.raises(Killed), self.database.transaction():
            self.counters.keep(*self.signed())
            raise Killed

    @rule(writes=st.integers(0, 5), noted=st.booleans(), key_is_new=st.booleans())
    def the_node_is_killed_while_it_reserves(self, writes, noted, key_is_new):
        """Before it is written, after it is, or after it is also noted beside the database."""
        expected = self.next()
        if self.killed(lambda: self.counters.reserve(self.now), writes) and expected:
            self.reserved.append(expected)
            self.entered = expected.epoch
            if noted:
                self.noted = max(self.noted, (expected.epoch, expected.counter))
            else:
                (self.folder / "latest").unlink()
                self.counters._location.note(*self.noted)
        self.start(key_is_new=key_is_new)

    @precondition(lambda self: self.in_hand)
    @rule(writes=st.integers(0, 2))
    def the_node_is_killed_while_it_keeps(self, writes):
        signed = self.signed()
        if self.killed(lambda: self.counters.keep(*signed), writes):
            self.kept.append(signed)
        self.start()

    @rule(key_is_new=st.booleans())
    def the_node_ends_and_starts_again(self, key_is_new):
        self.database.close()
        self.start(key_is_new=key_is_new)

    @rule()
    def the_state_is_moved_to_another_folder(self):
        self.database.close()
        before = self.folder
        self.folders += 1
        shutil.copytree(before, self.folder)
        self.start(must_listen=True)

    @rule(epochs_later=st.lists(st.integers(0, 2), max_size=4))
    def an_older_database_is_put_back(self, epochs_later):
        self.copy_to(self.folder / "backup")
        reserved, kept = list(self.reserved), list(self.kept)
        listening = self.left, self.listened, self.began, self.entered
        for epochs in epochs_later:
            self.a_round_is_reserved(epochs, is_kept=True)
        self.database.close()
        self.put_back(self.folder / "backup")
        self.reserved, self.kept = reserved, kept
        self.left, self.listened, self.began, self.entered = listening
        self.start()

    @invariant()
    def what_is_sent_again_is_what_was_kept_for_this_and_the_last_epoch_in_order(self):
        recent = [message for slot, _, message in self.kept if slot.epoch >= self.latest() - 1]
        assert self.counters.recent() == recent

    @rule(data=st.data())
    def an_envelope_of_its_key_that_it_does_not_know_stops_the_node(self, data):
        """One of another node, or one that this state has forgotten. The node is started again, and listens."""
        of_another = (b"of another node", max(self.epoch(), self.began) + 1)
        forgotten = [(envelope_id, slot.epoch) for slot, envelope_id, _ in self.kept if not self.is_known(slot)]
        envelope_id, epoch = data.draw(st.sampled_from([of_another, *forgotten]))
        with pytest.raises(KeyInUseElsewhere):
            self.counters.recognise(envelope_id, epoch)
        [self.left] = self.database.row("SELECT seconds FROM listening_period")  # all of it: the node ends here
        assert 2 * EPOCH <= self.left <= 2.5 * EPOCH
        self.listened, self.began = 0.0, epoch
        self.database.close()
        self.start()

    @invariant()
    def the_own_envelopes_are_recognised(self):
        for slot, envelope_id, _ in self.kept:
            if self.is_known(slot):
                self.counters.recognise(envelope_id, slot.epoch)

    @invariant()
    def the_epoch_is_the_clocks_and_never_runs_backwards(self):
        assert self.counters.epoch(self.now) == self.epoch()

    @invariant()
    def it_listens_as_long_as_it_must(self):
        left = max(0.0, self.left - self.passed())
        expected = left + self.behind() if left else 0.0
        assert self.counters.listening_seconds(self.now, self.now) == pytest.approx(expected)

    def teardown(self):
        if hasattr(self, "database"):
            self.database.close()
        self.root.cleanup()

    @property
    def folder(self) -> Path:
        return Path(self.root.name) / str(self.folders)

    def clock_epoch(self) -> int:
        return int((self.now - GENESIS) // EPOCH)

    def epoch(self) -> int:
        """The clock's, or the last one that the node entered where the clock is behind it."""
        return max(self.clock_epoch(), self.entered)

    def behind(self) -> float:
        """Seconds until the clock reaches the last epoch that the files know."""
        return max(0.0, self.reaches() - self.now)

    def reaches(self) -> float:
        return GENESIS + max(self.entered, self.noted[0]) * EPOCH

    def passed(self) -> float:
        """Seconds since the last look in which the clock was not behind."""
        return max(0.0, self.now - max(self.looked, self.reaches()))

    def look(self) -> None:
        """The steady clock goes with the clock, so that the node doubts neither."""
        self.counters.look(self.now, self.now)
        if self.left and not self.behind():
            self.listened += self.passed()
            self.left = max(0.0, self.left - self.passed())
            self.began = int((self.now - self.listened - GENESIS) // EPOCH)
        self.looked = self.now
        self.entered = max(self.entered, self.clock_epoch())

    def latest(self) -> int:
        """The epoch of the last round reserved."""
        return self.reserved[-1].epoch if self.reserved else 0

    def next(self) -> Slot | None:
        epoch = self.epoch()
        counter = sum(slot.epoch == epoch for slot in self.reserved)
        return Slot(epoch, counter) if epoch >= 0 and counter < ROUNDS else None

    def signed(self) -> tuple[Slot, bytes, bytes]:
        name = f"{self.in_hand} {len(self.kept)} {self.now}".encode()
        return self.in_hand, b"id " + name, b"message " + name

    def is_known(self, slot: Slot) -> bool:
        """Whether the state holds what was signed in this round, or may have lost it."""
        used = sorted({slot.epoch for slot in self.reserved}, reverse=True)
        forgotten = min(used[KEPT], self.latest() - 17) if len(used) > KEPT else -1
        return slot.epoch > forgotten or slot.epoch <= self.began

    def killed(self, action: Callable[[], object], writes: int) -> bool:
        """Kill the process before so many writes of what it does, or right after; whether it was done by then."""
        left_behind = self.folder / "left behind"
        self.database.writes_left, self.database.on_death = writes, lambda: self.copy_to(left_behind)
        try:
            action()
        except Killed:
            return False
        else:
            self.copy_to(left_behind)
            return True
        finally:
            self.database.close()
            self.put_back(left_behind)

    def copy_to(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for part in self.folder.glob("node.sqlite*"):
            shutil.copy(part, place)

    def put_back(self, place: Path) -> None:
        for part in self.folder.glob("node.sqlite*"):
            part.unlink()
        for part in place.glob("node.sqlite*"):
            shutil.copy(part, self.folder)

    def start(self, *, key_is_new=False, must_listen=False) -> None:
        """A round that was only reserved is lost with the process that held it."""
        self.in_hand = None
        self.database = Mortal(self.folder / "node.sqlite", SCHEMA)
        self.counters = Counters(
            self.database,
            MANIFEST,
            now=self.now,
            key_is_new=key_is_new,
            rng=random.Random(0),
            location=StateLocation(self.folder),
            steady=self.now,
        )
        self.looked = self.now
        latest = self.reserved[-1] if self.reserved else Slot(-1, -1)
        if must_listen or self.noted > (latest.epoch, latest.counter):
            least = GENESIS + (max(self.epoch(), self.noted[0]) + 2) * EPOCH
            listens = self.counters.listening_seconds(self.now, self.now)
            assert least <= self.now + listens <= least + EPOCH / 2
            self.left, self.listened = listens - self.behind(), 0.0
            self.began = max(self.epoch(), self.noted[0])


def test_no_counter_is_handed_out_twice_whatever_the_clock_does_and_whoever_is_killed(monkeypatch):
    monkeypatch.setattr("sapo_node.storage.counters.KEPT_EPOCHS", KEPT)
    run_state_machine_as_test(CountersMachine, settings=settings())


def test_no_round_is_reserved_that_the_wire_cannot_say():
    """A negative epoch is no unsigned integer: every receiver would charge the peer that sent it."""
    early = Counters(Database(None, SCHEMA), MANIFEST, now=0.0, key_is_new=True, rng=random.Random(0))
    slot = early.reserve(0.0)
    assert slot is None or slot.epoch >= 0


def life_of(folder, epochs):
    """Reserves a round in each of these epochs; how long the node would still listen, and its last round."""
    key_is_new = not (folder / "lock").exists()
    if key_is_new:
        (folder / "lock").touch()
    location = StateLocation(folder)
    for epoch in epochs:
        now = GENESIS + epoch * EPOCH
        database = Database(folder / "node.sqlite", SCHEMA)
        life = Counters(database, MANIFEST, now=now, key_is_new=key_is_new, rng=random.Random(0), location=location)
        slot = life.reserve(now)
        listens = life.listening_seconds(now, now)
        database.close()
    return listens, slot


def test_a_clock_that_was_behind_while_an_old_state_started_does_not_end_its_listening(tmp_path):
    """The counter noted beside the database is of a later epoch than the clock: the clock must be wrong."""
    assert life_of(tmp_path, [7]) == (0, Slot(7, 0))
    (tmp_path / "node.sqlite").unlink()
    life_of(tmp_path, [5])
    listens, slot = life_of(tmp_path, [7.9])
    assert listens > 0 or slot != Slot(7, 0)


def test_nor_does_it_when_the_state_is_moved_meanwhile(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    assert life_of(before, [7]) == (0, Slot(7, 0))
    (before / "node.sqlite").unlink()
    life_of(before, [5])
    shutil.copytree(before, after)
    life_of(after, [5])
    listens, slot = life_of(after, [7.9])
    assert listens > 0 or slot != Slot(7, 0)
