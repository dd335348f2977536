"""Own counters: none is used twice, whatever is killed, copied or restored."""

import shutil

import pytest

from sapo_node.app.state import SCHEMA, StateFolder, locked
from sapo_node.storage.counters import Counters, KeyInUseElsewhere, Slot
from sapo_node.storage.database import Database
from sapo_node.storage.location import StateLocation


@pytest.fixture
def counters(database, manifest, rng):
    return Counters(database, manifest, now=1_000, key_is_new=True, rng=rng)


def test_counters_of_an_epoch_are_counted_up_from_zero(counters):
    assert [counters.reserve(1_000) for _ in range(3)] == [Slot(1, 0), Slot(1, 1), Slot(1, 2)]


def test_they_start_again_at_zero_in_the_next_epoch(counters):
    counters.reserve(1_000)
    assert counters.reserve(1_200) == Slot(2, 0)


def test_a_restart_goes_on_where_it_was_even_if_the_round_was_never_played(counters, database, manifest, rng):
    counters.reserve(1_000)
    assert Counters(database, manifest, now=1_000, key_is_new=False, rng=rng).reserve(1_000) == Slot(1, 1)


def test_a_clock_set_back_does_not_reuse_a_counter(counters):
    counters.reserve(1_300)
    assert counters.reserve(700) == Slot(2, 1)


def test_when_an_epochs_counters_are_used_up_there_is_none(counters, manifest):
    for _ in range(manifest.max_rounds):
        counters.reserve(1_000)
    assert counters.reserve(1_000) is None
    assert counters.reserve(1_200) == Slot(2, 0)


def test_a_new_key_publishes_at_once(counters):
    assert counters.listening_seconds(1_000, 0) == 0


def test_a_key_older_than_its_state_listens_for_two_epochs_and_a_random_moment(database, manifest, rng):
    counters = Counters(database, manifest, now=1_000, key_is_new=False, rng=rng, steady=0)
    assert 1_800 <= 1_000 + counters.listening_seconds(1_000, 0) <= 2_100
    assert counters.listening_seconds(2_100, 1_100) == 0


def test_two_copies_that_start_together_do_not_end_their_listening_together(manifest, rng):
    ends = [
        Counters(Database(None, SCHEMA), manifest, now=1_000, key_is_new=False, rng=rng).listening_seconds(1_000, 0)
        for _ in range(2)
    ]
    assert abs(ends[0] - ends[1]) > 5


def test_restarting_does_not_end_the_listening(database, manifest, rng):
    Counters(database, manifest, now=1_000, key_is_new=False, rng=rng)
    again = Counters(database, manifest, now=1_100, key_is_new=True, rng=rng)
    assert again.listening_seconds(1_100, 0) >= 700


@pytest.fixture
def play(tmp_path, manifest, rng):
    """Starts a node on `tmp_path/state`, or on another folder, plays so many rounds and stops; how long it listened."""

    def start(rounds, path=tmp_path / "state"):
        folder = StateFolder(path)
        key_is_new = not path.exists()
        with locked(folder):
            database = Database(folder.database, SCHEMA)
            location = StateLocation(path)
            counters = Counters(database, manifest, now=1_000, key_is_new=key_is_new, rng=rng, location=location)
            for _ in range(rounds):
                counters.reserve(1_000)
            listened = counters.listening_seconds(1_000, 0)
            database.close()
        return listened

    return start


def test_a_state_that_stayed_where_it_was_goes_on_at_once(play):
    assert [play(3) for _ in range(3)] == [0, 0, 0]


def test_a_state_that_was_copied_elsewhere_listens(play, tmp_path):
    play(3)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    assert play(3, tmp_path / "copy") >= 800
    assert play(3) == 0


def test_a_backup_of_the_folder_put_back_in_place_listens(play, tmp_path):
    play(3)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    play(3)
    shutil.copytree(tmp_path / "backup", tmp_path / "state", dirs_exist_ok=True)
    assert play(3) >= 800


def test_a_backup_of_the_database_alone_put_back_listens(play, tmp_path):
    play(3)
    shutil.copy(tmp_path / "state" / "node.sqlite", tmp_path / "backup")
    play(3)
    shutil.copy(tmp_path / "backup", tmp_path / "state" / "node.sqlite")
    assert play(3) >= 800


def test_a_lost_database_listens(play, tmp_path):
    play(3)
    (tmp_path / "state" / "node.sqlite").unlink()
    assert play(3) >= 800


def test_a_clone_of_the_whole_machine_listens(play, tmp_path, monkeypatch):
    play(3)
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("another boot\n")
    monkeypatch.setattr("sapo_node.storage.location._BOOT_ID", boot_id)
    assert play(3) >= 800


def test_a_moved_state_listens_once_and_then_belongs_to_its_new_place(play, tmp_path, manifest):
    play(3)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    assert play(0, tmp_path / "copy") == play(0, tmp_path / "copy")


def test_what_was_published_is_sent_again_as_it_was(counters):
    counters.keep(Slot(1, 0), b"id", b"the very bytes")
    assert counters.recent() == [b"the very bytes"]


def test_what_the_window_no_longer_takes_is_not_sent_again_but_still_recognised(counters):
    counters.keep(Slot(1, 0), b"id", b"the very bytes")
    counters.reserve(2_400)
    assert counters.recent() == []
    counters.recognise(b"id", 1)


def test_own_envelopes_are_recognised(counters):
    counters.keep(Slot(1, 0), b"id", b"message")
    counters.recognise(b"id", 1)


def test_an_unknown_envelope_of_the_own_key_is_an_alarm(counters):
    with pytest.raises(KeyInUseElsewhere, match="in use elsewhere"):
        counters.recognise(b"unknown", 1)


def test_what_a_lost_state_signed_before_this_one_began_to_listen_is_no_alarm(database, manifest, rng):
    counters = Counters(database, manifest, now=1_000, key_is_new=False, rng=rng)
    counters.recognise(b"unknown", 0)
    counters.recognise(b"unknown", 1)
    with pytest.raises(KeyInUseElsewhere):
        counters.recognise(b"unknown", 2)
