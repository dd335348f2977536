"""A node remembers which model its checkpoints belong to."""

import json
from dataclasses import replace

import pytest

from sapo_node.app.config import Config
from sapo_node.app.state import SCHEMA
from sapo_node.app.trained_model import OF_POLICY, of_checkpoints, remember, require_same_policy
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Ready, TrainRequest
from sapo_node.groups.stats import Interval
from sapo_node.learner.folder import fingerprint
from sapo_node.observability.history import History
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import BatchLog, StoredBatch
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.health import Health
from sapo_protocol import LocalError
from tiny_models import write_model

READY = Ready(0, 1_000, "tiny", "cpu", None, None, fingerprint="first")


@pytest.fixture
def database():
    database = Database(None, SCHEMA)
    yield database
    database.close()


def test_what_auto_stood_for_is_remembered(database):
    remember(database, Config(lora=8, thinking=True), READY)
    found = of_checkpoints(Config(), database, {})
    assert (found.model, found.lora, found.lora_layers, found.thinking) == ("seed", 8, 0, True)
    assert (found.dtype, found.examples, found.max_tokens) == ("float32", 0, 80)


def test_a_model_folder_is_found_from_another_folder(database, tmp_path, monkeypatch):
    write_model(tmp_path / "tiny", "llama")
    monkeypatch.chdir(tmp_path)
    remember(database, Config(model="tiny"), READY)
    assert of_checkpoints(Config(), database, {}).model == str(tmp_path / "tiny")


@pytest.mark.parametrize("folder", ["seed", "smollm2"])
def test_a_folder_named_as_a_known_model_is_not_taken_for_it(database, tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sapo_node.app.trained_model.recipe_of", lambda _: Config())
    remember(database, Config(model=folder), READY)
    assert of_checkpoints(Config(), database, {}).model == folder


def test_an_option_comes_before_what_is_remembered_and_that_before_the_file(database):
    remember(database, Config(lora=8), READY)
    found = of_checkpoints(Config(model="other", lora=2, key="mine"), database, {"lora": 4, "dtype": None})
    assert (found.model, found.lora, found.key) == ("seed", 4, "mine")


@pytest.mark.parametrize(("name", "value"), [("lora", "8"), ("lora", 5_000), ("model", 1), ("dtype", "float16")])
def test_a_value_that_no_node_stores_is_one_error(database, name, value):
    database.execute("INSERT INTO trained_model VALUES (1, ?)", json.dumps({name: value}))
    with pytest.raises(LocalError, match=name):
        of_checkpoints(Config(), database, {})


@pytest.fixture
def checkpoints(tmp_path):
    """A folder with a checkpoint in it."""
    (tmp_path / "checkpoints" / "step-00000010").mkdir(parents=True)
    return tmp_path / "checkpoints"


@pytest.mark.parametrize("other", [{"lora": 8}, {"lora_layers": 2}, {"model": "tiny"}])
def test_checkpoints_of_another_policy_are_refused_before_a_model_is_loaded(
    database, checkpoints, tmp_path, monkeypatch, other
):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "tiny", "llama")
    remember(database, Config(lora=16), READY)
    told = r"belong to seed \(adapters of rank 16 in all layers\); give --model seed --lora 16 --lora-layers 0"
    with pytest.raises(LocalError, match=told):
        require_same_policy(database, replace(Config(lora=16), **other), checkpoints)


@pytest.mark.parametrize("change", [{}, {"dtype": "bfloat16"}, {"examples": 3}, {"learning_rate": 0.5}])
def test_settings_that_change_no_weights_fit_the_checkpoints(database, checkpoints, change):
    remember(database, Config(), READY)
    require_same_policy(database, Config(**change), checkpoints)


def test_a_node_without_a_checkpoint_may_train_another_model(database, tmp_path):
    remember(database, Config(), READY)
    require_same_policy(database, Config(lora=8), tmp_path)


def test_the_model_of_the_checkpoints_may_have_moved(database, checkpoints, tmp_path):
    write_model(tmp_path / "tiny", "llama")
    ready = replace(READY, fingerprint=fingerprint(tmp_path / "tiny", 0, 0))
    remember(database, Config(model=str(tmp_path / "tiny")), ready)
    (tmp_path / "tiny").rename(tmp_path / "moved")
    require_same_policy(database, Config(model=str(tmp_path / "moved")), checkpoints)


@pytest.fixture
def played(database):
    """A node that has played rounds with its first policy."""
    remember(database, Config(), READY)
    BatchLog(database).store(StoredBatch(TrainRequest(1, (), "positive-only"), {}))
    Health(database, lambda: 7.0).evaluated(1, Interval(0.9, 0.9, 0.9))
    History(database).examine(1, HeldOut({"sums": (Levels((1,)),)}), at=7.0)
    return database


def known(database):
    """What a node knows of its policy: stored batches, whether an evaluation is the best, and its evaluations."""
    is_best = Health(database, lambda: 7.0).is_best(Interval(0.1, 0.1, 0.1))
    return BatchLog(database).newest, is_best, len(History(database).evaluations())


def test_a_node_starts_over_where_it_trains_another_policy(played, caplog):
    remember(played, Config(), replace(READY, fingerprint="second", model="other"))
    assert known(played) == (0, True, 0)
    assert "the node starts over with other" in caplog.text


def test_a_node_whose_first_checkpoint_is_yet_to_come_goes_on(played):
    remember(played, Config(), READY)
    assert known(played) == (1, False, 1)


def test_a_node_of_a_version_that_noted_no_policy_goes_on(played):
    played.execute('UPDATE trained_model SET settings = \'{"model": "seed"}\'')
    remember(played, Config(), replace(READY, fingerprint="second"))
    assert known(played) == (1, False, 1)


def test_a_node_that_starts_over_goes_on_from_its_second_start(played):
    for _ in range(2):
        remember(played, Config(), replace(READY, fingerprint="second"))
        BatchLog(played).store(StoredBatch(TrainRequest(1, (), "positive-only"), {}))
    assert BatchLog(played).newest == 1


def test_each_table_is_of_the_policy_or_of_what_outlives_it(database):
    tables = {name for (name,) in database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    of_key = {
        "clock",
        "counters",
        "forgotten_counters",
        "listening_period",
        "published",
        "signed",
        "anchors",
        "known_peers",
    }
    of_peers = {"decisions", "evidence", "forgotten", "arrived", "ledger", "offences", "pardons", "seen"}
    of_node = {"answers", "counts", "fetched", "groups", "refusals", "session", "settled", "trained_model"}
    assert tables - set(OF_POLICY) == of_key | of_peers | of_node
