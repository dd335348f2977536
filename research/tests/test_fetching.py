"""The figures of the program that measures fetched bodies."""

import trio
import trio.testing

from research.fetching import play
from sapo_node.app.node import PARTS


def figures(stalling, watching=0.0):
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(play, 8, stalling, watching, 1, PARTS, clock=clock)


def test_all_bodies_come_where_no_peer_stalls():
    assert figures(0.0)["came"] == 1.0


def test_bodies_take_longer_where_half_of_the_peers_stall():
    honest, stalled = figures(0.0), figures(0.5)
    assert stalled["groups"] < honest["groups"]
    assert stalled["seconds"]["p95"] > honest["seconds"]["p95"]


def test_watching_peers_know_more_of_the_turns_that_drew_what_they_signed():
    watched = figures(0.0, watching=0.25)
    assert watched["watching_peers"] == 2
    assert watched["known_of_their_own"] > watched["known_of_others"]
