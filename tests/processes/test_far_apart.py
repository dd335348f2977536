"""Five nodes in three subnets with 100 ms and 2 % loss between them, one subnet hidden, are parted for two minutes."""

import signal
import sqlite3
import time
from collections import Counter
from contextlib import ExitStack
from itertools import permutations

import pytest

import air
from processes import RunningProcess, write_swarm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(air.missing()), reason=air.missing() or "nothing is missing"),
]

PARTED_SECONDS, LOOKS = 120.0, 12
HEALED_WITHIN = 180.0

SLOW_AND_WRONG = """
import sys, time
for line in sys.stdin:
    time.sleep(3)
    print('["no idea"]', flush=True)
"""


class Node:
    """One node, and what is in its database while it runs."""

    def __init__(self, folder, process):
        self.process = process
        self.started = process.until_event("started")
        (self._database,) = folder.glob("state/*/*/node.sqlite")
        self.trained = set()

    @property
    def address(self):
        return self.started["addresses"][0]

    def ids(self, query):
        with sqlite3.connect(f"file:{self._database}?mode=ro", uri=True) as connection:
            return [row if len(row) > 1 else row[0] for row in connection.execute(query)]

    def stop(self):
        self.process.process.send_signal(signal.SIGINT)
        self.process.process.wait(60)

    def look(self):
        """The book keeps the newest groups alone: what was trained on has to be asked for as it comes."""
        self.trained |= set(self.ids("SELECT peer, epoch, counter, k FROM groups WHERE state = 'trained'"))

    @property
    def published(self):
        return set(self.ids("SELECT envelope_id FROM signed"))

    @property
    def heard(self):
        return set(self.ids("SELECT envelope_id FROM seen"))


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(1)


def test_a_parted_swarm_heals_and_nothing_is_trained_twice(tmp_path):
    swarm, program = write_swarm(tmp_path / "far.toml"), tmp_path / "wrong.py"
    program.write_text(SLOW_AND_WRONG)
    with ExitStack() as stack:
        sky = stack.enter_context(air.Air(delay=0.1, loss=0.02))
        first, second, hidden = sky.place("first"), sky.place("second"), sky.place("hidden", hidden=True)

        def node(name, place, *arguments, command="start"):
            settings = {"within": place.prefix, "address": place.address, "command": command}
            process = RunningProcess(tmp_path / name, "--swarm", swarm, *arguments, **settings)
            return Node(tmp_path / name, stack.enter_context(process))

        way_in = node("a", first)
        met = ("--bootstrap", way_in.address)
        answers = ("--program", f"python3 {program}", "--local", 1)
        nodes = [
            way_in,
            node("b", first, *met, *answers, command="contribute"),
            node("c", second, *met),
            node("d", hidden, *met, *answers, command="contribute"),
            node("e", hidden, *met, *answers, command="contribute"),
        ]
        pairs = list(permutations(nodes, 2))

        def look():
            for each in nodes:
                each.look()

        def known(published):
            look()
            return all(published[one] <= other.heard for one, other in pairs)

        def all_know_what_there_is(seconds):
            published = {each: each.published for each in nodes}
            assert all(published.values())
            wait_until(lambda: known(published), seconds)
            return published

        wait_until(lambda: all(each.published for each in nodes), 90)
        before = all_know_what_there_is(120)

        sky.part([first], [second], [hidden])
        for _ in range(LOOKS):
            time.sleep(PARTED_SECONDS / LOOKS)
            look()
        alone = {each: each.published - before[each] for each in nodes}
        assert all(alone.values()), "each goes on by itself"
        away = [
            (one, other) for one, other in pairs if {one, other} not in ({nodes[0], nodes[1]}, {nodes[3], nodes[4]})
        ]
        assert not any(alone[one] <= other.heard for one, other in away)

        sky.heal()
        all_know_what_there_is(HEALED_WITHIN)

        for each in nodes:
            rounds = each.ids("SELECT epoch, counter FROM signed")
            assert len(rounds) == len(set(rounds))
            # The book holds a group once, however often it was trained on; the trainer counts.
            each.stop()
            each.look()
            once = sorted(Counter(peer for peer, *_ in each.trained).items())
            assert each.ids("SELECT peer, groups FROM trained WHERE groups > 0 AND peer != '' ORDER BY peer") == once
            assert each.ids("SELECT peer FROM evidence") == []
        assert any(each.ids("SELECT peer FROM trained WHERE groups > 0 AND peer != ''") for each in nodes)
