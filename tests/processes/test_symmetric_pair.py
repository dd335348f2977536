"""Two nodes that no router lets connect trade through a public node."""

import json
import sqlite3
import subprocess
import sys
import time

import pytest

from load_publishers import Publishers
from processes import ENVIRONMENT, RunningProcess, write_swarm
from research.router_lab import Lab, Nat, reason_without
from sapo_node.ingest.validator import FEW_ISSUERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why := reason_without()), reason=why),
]

CROWD = FEW_ISSUERS + 1


class Node:
    """A node that trains, behind a symmetric router of its own."""

    def __init__(self, host, folder, *arguments):
        self.host = host
        self.process = RunningProcess(folder, *arguments, within=host.command(()), address="0.0.0.0")

    def started(self):
        self.peer_id = self.process.until_event("started")["peer_id"]

    def until_trained_on(self, other, above=0):
        """Wait until it has trained on more groups of the other node. Returns how many."""

        def trained(event):
            return sum(each["trained_groups"] for each in event["peers"] if each["peer"] == other.peer_id)

        return trained(self.process.until(lambda event: event["event"] == "round" and trained(event) > above))

    def until_gave_more(self):
        """Wait until peers have requested more of its rollouts."""
        before = self.given()
        self.process.until(lambda event: event["event"] == "round" and self.given() > before)

    def given(self):
        """The number of its rollouts that peers requested."""
        (database,) = self.process.folder.glob("state/*/*/node.sqlite")
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT coalesce(sum(rollouts), 0) FROM fetched").fetchone()[0]

    def way_in(self, *arguments):
        """The text of this finding of `doctor`."""
        command = self.host.command((sys.executable, "-m", "sapo_node", "doctor", "--json", "--no-train", *arguments))
        told = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False).stdout
        (text,) = (each["text"] for each in json.loads(told) if each["name"] == "way in")
        return text


def test_two_nodes_behind_symmetric_routers_trade_through_a_public_node(tmp_path):
    """First in whole messages; then, when they know of many issuers, by fetching bodies."""
    swarm, config = write_swarm(tmp_path / "pair.toml"), tmp_path / "node.toml"
    config.write_text("external = 4\nfilters = []\neval_every = 0\n")  # what passes filters hangs on the keys
    arguments = ("--swarm", swarm, "--dashboard", "off")
    with Lab() as lab:
        public, crowded = lab.host(), lab.host()
        hosts = [lab.host(lab.router(Nat.SYMMETRIC)) for _ in range(2)]
        relay = RunningProcess(
            tmp_path / "relay", *arguments, "--no-train", within=public.command(()), address="0.0.0.0"
        )
        with relay:
            address = next(each for each in relay.until_event("started")["addresses"] if public.address in each)
            way_in = ("--bootstrap", address)
            one, two = (
                Node(host, tmp_path / str(number), *arguments, "--config", config, *way_in)
                for number, host in enumerate(hosts)
            )
            crowd = Publishers(address, swarm, "crowd", CROWD, within=crowded.command(()))
            with one.process, two.process:
                for node in (one, two):
                    node.started()
                one.until_trained_on(two)
                two.until_trained_on(one)

                for user in range(CROWD):
                    crowd.tell({"publish": user, "kind": "valid", "bytes": 500, "ref": user, "due": time.monotonic()})
                for node in (one, two):
                    node.until_gave_more()
                one.until_trained_on(two, above=one.until_trained_on(two) + 2)
                two.until_trained_on(one, above=two.until_trained_on(one) + 2)

                for node in (one, two):
                    assert "the router takes another port than this machine" in node.way_in("--swarm", swarm, *way_in)
            crowd.close()
