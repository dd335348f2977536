"""The settings that depend on the model, by what its folder says."""

import json

import pytest

from sapo_node.app.config import Config
from sapo_node.app.learner_options import MAX_ROUND_TOKENS, require_storable
from sapo_node.app.recipe import recipe_of
from sapo_protocol import LocalError


def folder_of(root, size, **settings):
    """A model folder of weights of so many bytes, which hold nothing."""
    (root / "config.json").write_text(json.dumps({"model_type": "any", **settings}))
    with (root / "model.safetensors").open("wb") as weights:
        weights.truncate(size)
    return str(root)


@pytest.mark.parametrize("name", ["num_hidden_layers", "n_layer", "n_layers", "num_layers"])
def test_a_large_model_gets_adapters_in_a_third_of_its_layers_whatever_their_number_is_called(tmp_path, name):
    recipe = recipe_of(Config(model=folder_of(tmp_path, 3_000_000_000, **{name: 24})))
    assert (recipe.lora, recipe.lora_layers, recipe.max_tokens) == (16, 8, 256)


@pytest.mark.parametrize(("layers", "adapted"), [(1, 1), (2, 1), (3, 1), (5, 1), (6, 2)])
def test_a_large_model_of_few_layers_has_adapters_in_one_at_least(tmp_path, layers, adapted):
    recipe = recipe_of(Config(model=folder_of(tmp_path, 3_000_000_000, num_hidden_layers=layers)))
    assert recipe.lora_layers == adapted


def test_a_large_model_that_does_not_say_its_layers_gets_adapters_in_all(tmp_path):
    recipe = recipe_of(Config(model=folder_of(tmp_path, 3_000_000_000)))
    assert (recipe.lora, recipe.lora_layers) == (16, 0)


def test_a_small_model_is_trained_with_all_weights(tmp_path):
    recipe = recipe_of(Config(model=folder_of(tmp_path, 20_000_000, num_hidden_layers=12)))
    assert (recipe.lora, recipe.learning_rate) == (0, 2e-4)


@pytest.mark.parametrize(("size", "adapters", "all_weights"), [(270_000_000, 4e-4, 4e-5), (3_000_000_000, 1e-4, 1e-5)])
def test_all_weights_of_a_model_that_has_adapters_by_default_learn_at_a_tenth_of_the_rate(
    tmp_path, size, adapters, all_weights
):
    model = folder_of(tmp_path, size, num_hidden_layers=30)
    assert recipe_of(Config(model=model)).learning_rate == adapters
    assert recipe_of(Config(model=model, lora=0)).learning_rate == pytest.approx(all_weights)
    assert recipe_of(Config(model=model, lora=0, learning_rate=3e-4)).learning_rate == 3e-4


def test_a_round_of_more_tokens_than_can_be_stored_is_refused():
    most = MAX_ROUND_TOKENS // (16 * 8)
    require_storable(Config(local=16, max_tokens=most), 8)
    with pytest.raises(LocalError, match=r"a round may have 1,048,576, so lower --local or --max-tokens"):
        require_storable(Config(local=16, max_tokens=most + 1), 8)
    with pytest.raises(LocalError, match=r"a round may have 524,288, so lower --local or --max-tokens"):
        require_storable(Config(local=16, max_tokens=most, replay=True), 8)
    require_storable(Config(local=16, max_tokens=most + 1, train=False), 8)
