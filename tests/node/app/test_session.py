"""What a session tells its operator: notices by level, what stands until it is taken back, and how it ended."""

import logging

import pytest

from sapo_node.app import running_node
from sapo_node.app.running_node import Session
from sapo_node.observability.condition import condition_of
from sapo_node.observability.history import History
from sapo_node.observability.overview import at_rest, overview


@pytest.fixture
def session(tmp_path):
    return Session(lambda _: None, "trains", tmp_path)


def told(session, database):
    return [(each["level"], each["text"]) for each in session.view(database).session["notices"]]


def test_notices_that_need_a_person_come_first_and_of_one_level_the_newest(session, database):
    with session.warnings_as_notices():
        for log, text in ((logging.warning, "a"), (logging.error, "b"), (logging.warning, "c"), (logging.error, "d")):
            getattr(logging.getLogger("sapo_node"), log.__name__)(text)
    assert told(session, database) == [("attention", "d"), ("attention", "b"), ("info", "c"), ("info", "a")]


def test_many_notices_push_out_none_that_needs_a_person(session, database):
    session.tell("needs a person", "attention")
    for number in range(50):
        session.tell(f"connected to {number}")
    assert told(session, database)[0] == ("attention", "needs a person")


def test_a_notice_that_is_repeated_is_kept_once(session, database):
    for text in ("a", "b", "a"):
        session.tell(text)
    assert told(session, database) == [("info", "a"), ("info", "b")]


@pytest.mark.parametrize(("failure", "state"), [("the disk is full", "ended by an error"), ("", "stopped")])
def test_a_session_says_how_it_ended(session, database, failure, state):
    History(database).describe_session({"started": session._started})
    session.note_end(database, failure)
    ended = condition_of(at_rest(overview(database)), runs=False, now=0.0)
    assert ended.state == state
    assert failure in ended.text


def test_a_disk_that_is_nearly_full_stands_until_there_is_room_and_is_told_once(session, database, monkeypatch):
    for least in (2**80, 2**80, 0):
        monkeypatch.setattr(running_node, "LEAST_FREE", least)
        session._look_at_disk()
        assert ("disk" in session.standing) is (least > 0)
    assert [level for level, _ in told(session, database)] == ["attention"]
