"""`sapo-node alone`: the rounds of a node without peers, beside those with peers."""

import json
import random
from contextlib import closing
from dataclasses import replace

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from processes import sapo_node
from sapo_node.app.alone import Evaluations, RoundClock, alone_folder, publish_nothing
from sapo_node.app.config import Config
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA, state_folder
from sapo_node.cli.main import main
from sapo_node.observability.history import History
from sapo_node.observability.overview import overview
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.keys import Identity, create_key
from sapo_node.training.evaluation import HeldOut
from sapo_protocol import load_manifest, render_manifest
from swarm_parts import KnowingScorer, Oracle


class Machine:
    """A key with the state of a node that was evaluated after some rounds, and the commands on it."""

    def __init__(self, folder, *evaluated):
        self.folder = folder
        self.swarm = folder / "small.toml"
        starter = load_manifest("starter")
        self.swarm.write_text(render_manifest(replace(starter, name="small", tasks=starter.tasks[:1])))
        key = create_key(folder / "node.key")
        self.place = state_folder(folder / "state", load_manifest(str(self.swarm)), key.peer_id)
        self.place.path.mkdir(parents=True)
        with closing(Database(self.place.database, SCHEMA)) as database:
            for step in evaluated:
                History(database).examine(step, HeldOut(1, {"products": (1, 0)}), at=0.0)

    def where(self):
        return ("--swarm", self.swarm, "--key", self.folder / "node.key", "--state", self.folder / "state")

    def alone(self, rounds):
        (self.folder / "config.toml").write_text("eval_every = 1\nlocal = 1\n")
        done = sapo_node("alone", "--json", "--rounds", rounds, "--config", self.folder / "config.toml", *self.where())
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def rows(self, table, folder=None):
        with closing(Database((folder or self.place).database, SCHEMA)) as database:
            return database.rows(f"SELECT * FROM {table}")


@pytest.mark.slow
def test_the_rounds_alone_are_kept_beside_those_of_the_node_which_stay_as_they_are(tmp_path):
    machine = Machine(tmp_path, 0, 1)
    told = machine.alone(1)
    assert [each["step"] for each in told["alone"]] == [0, 1]
    assert [each["step"] for each in told["beside"]] == [1, 1]
    assert machine.rows("rounds") == machine.rows("counters") == machine.rows("published") == []
    with closing(Database(machine.place.database, SCHEMA)) as database:
        assert overview(database).alone == told["alone"]


@pytest.mark.slow
def test_rounds_alone_that_were_stopped_again_and_again_go_on(tmp_path):
    """Each stop leaves a counter without a round. An epoch without counters would never end."""
    machine = Machine(tmp_path, 0, 1)
    own = alone_folder(machine.place)
    own.path.mkdir()
    with closing(Database(own.database, SCHEMA)) as database:
        database.execute("INSERT INTO counters VALUES (0, ?)", load_manifest(str(machine.swarm)).max_rounds)
    assert [each["step"] for each in machine.alone(1)["alone"]] == [0, 1]


def test_an_odd_row_of_the_rounds_alone_is_an_error_of_their_database(tmp_path):
    with closing(Database(tmp_path / "alone", SCHEMA)) as of_alone, closing(Database(None, SCHEMA)) as of_node:
        of_alone.execute("INSERT INTO exams VALUES (1, '{}')")
        with pytest.raises(StateError, match=str(tmp_path / "alone")):
            Evaluations(of_alone, of_node)


@pytest.mark.slow
def test_a_second_call_goes_on_where_the_first_one_ended(tmp_path):
    machine = Machine(tmp_path, 0, 1)
    first = machine.alone(1)["alone"]
    assert machine.alone(2)["alone"][:2] == first
    assert [step for step, *_ in machine.rows("rounds", alone_folder(machine.place))] == [1, 2]


def test_a_node_that_was_not_evaluated_after_a_round_has_nothing_to_compare(tmp_path, run_here):
    machine = Machine(tmp_path, 0)
    code, said = run_here(main, "alone", *machine.where())
    assert code == 1
    assert "has not been evaluated after a round yet" in said.err


def test_no_round_alone_waits_for_an_epoch(manifest):
    manifest = replace(manifest, max_rounds=10)
    policy = Oracle(manifest, random.Random(1))
    database, clock = Database(None, SCHEMA), RoundClock(manifest, policy)
    rounds = 3 * manifest.max_rounds

    async def play():
        node = build_node(
            Config(external=0, local=1, eval_every=0),
            SwarmContext(manifest, clock, Identity(Ed25519PrivateKey.generate()), random.Random(2)),
            database=database,
            counters=Counters(database, manifest, now=clock.now(), key_is_new=True, rng=random.Random(3)),
            scorer=KnowingScorer(policy.answers),
            policy=policy,
            on_fatal=pytest.fail,
        )
        await run_node(node, publish_nothing, rounds=rounds)
        return trio.current_time()

    assert trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0)) == 0
    assert policy.step == rounds
