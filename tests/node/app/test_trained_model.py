"""A node remembers which model its checkpoints belong to."""

import json

import pytest

from sapo_node.app.config import Config
from sapo_node.app.trained_model import SCHEMA, of_checkpoints, remember
from sapo_node.storage.database import Database
from sapo_protocol import LocalError
from tiny_models import write_model


@pytest.fixture
def database():
    database = Database(None, (SCHEMA,))
    yield database
    database.close()


def test_what_auto_stood_for_is_remembered(database):
    remember(database, Config(lora=8, thinking=True))
    found = of_checkpoints(Config(), database, {})
    assert (found.model, found.lora, found.lora_layers, found.thinking) == ("seed", 8, 0, True)
    assert (found.dtype, found.examples, found.max_tokens) == ("float32", 0, 80)


def test_a_model_folder_is_found_from_another_folder(database, tmp_path, monkeypatch):
    write_model(tmp_path / "tiny", "llama")
    monkeypatch.chdir(tmp_path)
    remember(database, Config(model="tiny"))
    assert of_checkpoints(Config(), database, {}).model == str(tmp_path / "tiny")


@pytest.mark.parametrize("folder", ["seed", "smollm2"])
def test_a_folder_named_as_a_known_model_is_not_taken_for_it(database, tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sapo_node.app.trained_model.recipe_of", lambda _: Config())
    remember(database, Config(model=folder))
    assert of_checkpoints(Config(), database, {}).model == folder


def test_an_option_comes_before_what_is_remembered_and_that_before_the_file(database):
    remember(database, Config(lora=8))
    found = of_checkpoints(Config(model="other", lora=2, key="mine"), database, {"lora": 4, "dtype": None})
    assert (found.model, found.lora, found.key) == ("seed", 4, "mine")


def test_a_node_of_version_0_1_remembers_nothing():
    empty = Database(None, ())
    assert of_checkpoints(Config(lora=2), empty, {}) == Config(lora=2)
    empty.close()


@pytest.mark.parametrize(("name", "value"), [("lora", "8"), ("lora", 5_000), ("model", 1), ("dtype", "float16")])
def test_a_value_that_no_node_stores_is_one_error(database, name, value):
    database.execute("INSERT INTO trained_model VALUES (1, ?)", json.dumps({name: value}))
    with pytest.raises(LocalError, match=name):
        of_checkpoints(Config(), database, {})
