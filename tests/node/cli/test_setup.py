"""The configuration that `sapo-node init` writes: it fits, it is read back, and it says what to expect."""

import random
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sapo_node.app.config import Config, load_config
from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.cli.doctor import Finding, State, good
from sapo_node.cli.probe import Probe, RoundProbe, TaskProbe
from sapo_node.cli.setup import begin_state, facts, fitted, look, outlook, rendered, require_learnable
from sapo_node.groups.messages import Ready
from sapo_node.groups.stats import wilson_interval
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import create_key
from sapo_node.storage.location import StateLocation
from sapo_protocol import LocalError

FOUND = [
    good("system", "Linux, 2 cores"),
    good("swarm", "starter"),
    good("model", "seed, fits anywhere"),
    good("sandbox", "holds"),
]
READY = Ready(0, 135_000_000, "smollm2", "cpu", "memory: about 2 GB; 8 GB free on cpu", None)
TASKS = tuple(
    TaskProbe(name, wilson_interval(right, 64), wilson_interval(informative, 8), 0.0, 0.0)
    for name, right, informative in (("gcd", 0, 0), ("products", 16, 4))
)


def probe(*, generate=2.0, train=3.0, tasks=TASKS):
    return Probe(8, 8, tasks, RoundProbe(4, 300, generate, train), 1024)


def test_a_fast_machine_keeps_the_local_groups_of_the_default(manifest):
    assert fitted(Config(), manifest, probe(), local=None).local == 4


@pytest.mark.parametrize(("tenths_of_an_epoch", "local"), [(1, 4), (1.01, 3), (2, 2), (40, 1)])
def test_a_slow_machine_gets_the_groups_that_a_tenth_of_an_epoch_has_room_for(manifest, tenths_of_an_epoch, local):
    slow = probe(generate=0, train=tenths_of_an_epoch * manifest.epoch_seconds / 10)
    assert fitted(Config(), manifest, slow, local=None).local == local


def test_the_operators_number_of_local_groups_stands_on_a_slow_machine(manifest):
    slow = probe(train=manifest.epoch_seconds)
    assert fitted(Config(local=8), manifest, slow, local=8).local == 8


def test_the_settings_of_the_model_are_numbers_and_not_auto(manifest):
    found = fitted(Config(), manifest, None, local=None)
    assert (found.lora, found.max_tokens, found.examples, found.learning_rate) == (0, 80, 0, 2e-4)


def test_a_node_that_does_not_train_keeps_its_configuration(manifest):
    relay = Config(train=False)
    assert fitted(relay, manifest, None, local=None) == relay
    assert facts(relay, FOUND, None)["round"] == "none: this node only relays"


def test_a_round_is_as_long_as_its_groups_and_external_groups_cost_training_alone():
    found = outlook(Config(local=2, external=4), probe(), READY)
    assert (found.round_seconds, found.full_round_seconds) == (2.5, 5.5)


@pytest.mark.parametrize(
    ("informative", "local", "rounds"), [(8, 4, 2), (4, 1, 3), (2, 1, 5), (2, 4, 1 + 1 / 0.68359375)]
)
def test_the_first_external_group_comes_with_the_first_informative_group_of_a_peer(informative, local, rounds):
    task = TaskProbe("products", wilson_interval(16, 64), wilson_interval(informative, 8), 0.0, 0.0)
    found = outlook(Config(local=local), probe(tasks=(task,)), READY)
    assert found.contact_rounds == pytest.approx(rounds)
    assert found.contact_seconds == pytest.approx(rounds * found.round_seconds)


def test_what_to_expect_has_the_figures_of_the_probe():
    told = facts(Config(), FOUND, outlook(Config(), probe(), READY))
    assert told["model"] == "smollm2, 135.0 M parameters, on cpu; memory: about 2 GB; 8 GB free on cpu"
    assert told["base rate"].startswith("12.5% of the completions are correct")
    assert "1 of 2 tasks can be learnt" in told["base rate"]
    assert told["round"] == "about 5 s with 4 local groups, and up to 8 s with external groups"
    assert "about 2 rounds (12 s) after the first contact" in told["external"]


def test_without_a_sandbox_no_external_group_is_promised():
    without = [*FOUND[:-1], Finding("sandbox", State.BAD, "it does not hold", "--no-sandbox scores without")]
    assert facts(Config(), without, None)["external"] == "none: it does not hold; --no-sandbox scores without"


def test_a_model_that_can_learn_no_task_is_refused_with_advice():
    with pytest.raises(LocalError, match=r"none of the 1 tasks.*--examples 3.*--no-probe"):
        require_learnable(probe(tasks=TASKS[:1]), Config())
    require_learnable(probe(), Config())


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(swarm='a "quoted"\\name.toml', key="kéy.pem", bootstrap=("/ip4/192.0.2.7/tcp/1",), train=False),
        Config(model="line\nlocal = 9\r\x1b[2J\u202e", filters=(), learning_rate=1e-5, external=0),
    ],
)
def test_what_is_written_is_read_back_as_it_was_meant(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = Path("node.toml")
    hostile = [*FOUND, good("model", f"{config.model}\nlocal = 9")]
    written.write_text(rendered(config, facts(config, hostile, None), f"start {config.model}"))
    assert load_config(written) == config


def test_a_node_on_a_new_state_of_a_new_key_publishes_at_once(manifest, tmp_path):
    identity = create_key(tmp_path / "node.key")
    folder = state_folder(tmp_path, manifest, identity.peer_id)
    begin_state(replace(Config(), state=str(tmp_path)), manifest, identity)
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database:
        counters = Counters(
            database,
            manifest,
            now=time.time(),
            key_is_new=False,
            rng=random.Random(1),
            location=StateLocation(folder.path),
        )
        assert counters.listening_seconds(time.time(), 0.0) == 0


async def test_a_machine_on_which_the_node_could_not_run_is_refused_at_once(tmp_path):
    key = tmp_path / "node.key"
    key.write_text("nonsense")
    key.chmod(0o600)
    with pytest.raises(LocalError, match="is damaged: restore your copy"):
        await look(Config(key=str(key), state=str(tmp_path)))


async def test_an_address_that_cannot_be_dialled_is_refused_before_anything_is_looked_at():
    with pytest.raises(LocalError, match="cannot be dialled"):
        await look(Config(bootstrap=("nonsense",), swarm=str(Path("nowhere"))))
