"""The settings that depend on the model, by what its folder says."""

import json

import pytest

from sapo_node.app.config import Config
from sapo_node.app.recipe import MAX_ROUND_TOKENS, recipe_of, require_storable
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.model import ModelError, load
from sapo_protocol import LocalError
from tiny_models import write_model

WIDTHS = {"F32": 4, "BF16": 2}
"""Bytes of a parameter in a format."""


def folder_of(root, parameters, kind="BF16", **settings):
    """A model folder of so many parameters in a format."""
    (root / "config.json").write_text(json.dumps({"model_type": "any", **settings}))
    write_weights(root / "model.safetensors", parameters, kind)
    return str(root)


def write_weights(path, parameters, kind="BF16"):
    """A file of weights that takes no space: its values are a hole."""
    size = parameters * WIDTHS[kind]
    head = json.dumps({path.stem: {"dtype": kind, "shape": [parameters], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as weights:
        weights.write(len(head).to_bytes(8, "little") + head)
        weights.truncate(8 + len(head) + size)


def test_a_large_model_gets_adapters_in_all_layers(tmp_path):
    config = Config(model=folder_of(tmp_path, 1_500_000_000, num_hidden_layers=24))
    recipe = recipe_of(config)
    assert (recipe.lora, config.lora_layers, recipe.max_tokens) == (16, 0, 256)


def test_a_small_model_is_trained_with_all_weights(tmp_path):
    recipe = recipe_of(Config(model=folder_of(tmp_path, 10_000_000, num_hidden_layers=12)))
    assert (recipe.lora, recipe.learning_rate) == (0, 2e-4)


@pytest.mark.parametrize(
    ("parameters", "adapters", "all_weights"), [(135_000_000, 4e-4, 4e-5), (1_500_000_000, 1e-4, 1e-5)]
)
def test_all_weights_of_a_model_that_has_adapters_by_default_learn_at_a_tenth_of_the_rate(
    tmp_path, parameters, adapters, all_weights
):
    model = folder_of(tmp_path, parameters, num_hidden_layers=30)
    assert recipe_of(Config(model=model)).learning_rate == adapters
    assert recipe_of(Config(model=model, lora=0)).learning_rate == pytest.approx(all_weights)
    assert recipe_of(Config(model=model, lora=0, learning_rate=3e-4)).learning_rate == 3e-4


@pytest.mark.parametrize(("kind", "settings"), [("F32", {}), ("BF16", {"dtype": "bfloat16"})], ids=["F32", "BF16"])
def test_a_model_counts_its_parameters_whatever_format_they_are_stored_in(tmp_path, kind, settings):
    recipe = recipe_of(Config(model=folder_of(tmp_path, 355_000_000, kind, **settings)))
    assert (recipe.learning_rate, recipe.max_tokens) == (4e-4, 32)


def test_weights_that_are_not_loaded_do_not_count(tmp_path):
    model = folder_of(tmp_path, 355_000_000)
    write_weights(tmp_path / "consolidated.safetensors", 355_000_000)
    assert recipe_of(Config(model=model)).max_tokens == 32


@pytest.mark.parametrize(("parameters", "max_tokens"), [(190_000_000, 32), (210_000_000, 256)])
def test_the_parts_of_a_model_count_together(tmp_path, parameters, max_tokens):
    model = folder_of(tmp_path, 1)
    (tmp_path / "model.safetensors").unlink()
    for name in ("first", "second", "consolidated"):
        write_weights(tmp_path / f"{name}.safetensors", parameters)
    index = {"weight_map": {"first": "first.safetensors", "second": "second.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert recipe_of(Config(model=model)).max_tokens == max_tokens


@pytest.mark.parametrize("length", [0, 2000])
def test_weights_that_are_cut_short_are_left_to_the_learner_to_refuse(tmp_path, length):
    with (write_model(tmp_path, "llama") / "model.safetensors").open("r+b") as weights:
        weights.truncate(length)
    recipe_of(Config(model=str(tmp_path)))
    with pytest.raises(ModelError, match=r"^the weights in .* are corrupt \(.*\); copy them again$"):
        load(LearnerOptions(checkpoints="", model=str(tmp_path)))


def test_a_round_of_more_tokens_than_can_be_stored_is_refused():
    most = MAX_ROUND_TOKENS // (16 * 8)
    require_storable(Config(local=16, max_tokens=most), 8)
    with pytest.raises(LocalError, match=r"a round may have 1,048,576, so lower --local or --max-tokens"):
        require_storable(Config(local=16, max_tokens=most + 1), 8)
    with pytest.raises(LocalError, match=r"a round may have 524,288, so lower --local or --max-tokens"):
        require_storable(Config(local=16, max_tokens=most, replay=True), 8)
    require_storable(Config(local=16, max_tokens=most + 1, train=False), 8)
