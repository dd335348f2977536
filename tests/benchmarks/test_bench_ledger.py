"""What a node pays for how many peers it knows: a hundred and a hundred thousand, timed in turn, in one run."""

import random
import resource
import statistics
import time

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.observability.overview import overview
from sapo_node.storage.database import Database
from sapo_node.trust.constants import Fact
from sapo_node.trust.ledger import Ledger

pytestmark = pytest.mark.bench

FEW, MANY = 100, 100_000


class Node:
    """The state of a node that has met so many peers, all of whom earned something and were trained on."""

    def __init__(self, folder, known):
        self.path = folder / f"{known}.sqlite"
        self.peers = [f"12D3KooW{number:044d}" for number in range(known)]
        database = Database(self.path, SCHEMA)
        ledger = Ledger(database)
        with database.transaction():
            for number, peer in enumerate(self.peers):
                ledger.report(peer, Fact.VERIFIED_GROUP)
                if number % 10 == 0:
                    ledger.report(peer, Fact.FALSE_CLAIM)
                database.execute("INSERT INTO trained VALUES (?, 1, ?, 1)", peer, number)
        database.close()
        self.epoch = 1
        self.database = Database(self.path, SCHEMA)
        self.ledger = self.open()

    def open(self):
        return Ledger(self.database)

    def report(self):
        for peer in random.Random(2).choices(self.peers, k=100):
            with self.database.transaction():
                self.ledger.report(peer, Fact.VERIFIED_GROUP)

    def look_up(self):
        for peer in random.Random(2).choices(self.peers, k=10_000):
            self.ledger.state(peer)

    def enter_an_epoch(self):
        self.epoch += 1
        self.ledger.at(self.epoch)

    def show(self):
        overview(self.database)


def test_a_hundred_thousand_known_peers_against_a_hundred(tmp_path):
    few = Node(tmp_path, FEW)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = Node(tmp_path, MANY)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"\n{MANY:,} known peers: {many.path.stat().st_size / 1e6:.0f} MB on disk, at most {memory:.0f} MB of memory")
    for what in ("open", "report", "look_up", "enter_an_epoch", "show"):
        times = {few: [], many: []}
        for _ in range(5):
            for node, taken in times.items():
                start = time.perf_counter()
                getattr(node, what)()
                taken.append(1e3 * (time.perf_counter() - start))
        one, other = (statistics.median(taken) for taken in times.values())
        print(f"{what.replace('_', ' ')}: {other / one:.1f}x ({other:.2f} ms / {one:.2f} ms)")
