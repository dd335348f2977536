"""The configuration: documented, checked, and honest about what it does not know."""

import tomllib

import pytest

from sapo_node.config import Config, load_config, render_config
from sapo_protocol import LocalError, peer_id

PEER = peer_id(bytes(range(32)))


def write(tmp_path, text):
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_what_is_printed_loads_again_to_the_same(tmp_path):
    config = Config(local=2, bootstrap=("/ip4/127.0.0.1/tcp/1/p2p/x",), learning_rate=1e-3)
    assert load_config(write(tmp_path, render_config(config))) == config


def test_every_key_is_documented():
    text = render_config(Config())
    keys = tomllib.loads(text)
    assert set(keys) == set(Config.__dataclass_fields__)
    assert text.count("\n# ") == len(keys)


def test_the_command_line_overrides_the_file(tmp_path):
    config = load_config(write(tmp_path, "local = 2\nexternal = 6\n")).overridden({"local": 3, "external": None})
    assert (config.local, config.external) == (3, 6)


def test_a_key_not_given_keeps_its_default(tmp_path):
    assert load_config(write(tmp_path, "")) == Config()


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("seed", "seed"),
        ("/home/somebody/models/mine", "mine"),
        ("./mine/", "mine"),
        ("somebody/tiny", "somebody/tiny"),
        ("/x/" + "é" * 60, "é" * 32),
    ],
)
def test_others_hear_a_models_name_and_no_path_of_this_machine(model, label):
    assert Config(model=model).model_label == label


BAD = {
    "an unknown key": ("externl = 4", r"unknown key 'externl'; did you mean 'external'"),
    "text for a number": ('local = "4"', "local must be a int"),
    "a boolean for a number": ("local = true", "local must be a int"),
    "one string for a list": ('bootstrap = "x"', "list of strings"),
    "no local groups": ("local = 0", "local is 0"),
    "an unknown correction": ('correction = "none"', "positive, tapered, paper"),
    "an unknown dtype": ('dtype = "float16"', "float32, bfloat16"),
    "a warm-up below zero": ("warmup = -1", "warmup is -1"),
    "a learning rate of zero": ("learning_rate = 0.0", "learning_rate"),
    "a name that is no peer id": ('banned = ["…4fgh"]', "not a peer id"),
    "a friend who is banned": (f'trusted = ["{PEER}"]\nbanned = ["{PEER}"]', f"both hold {PEER}"),
    "bad TOML": ("local =", "not valid TOML"),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=BAD.keys())
def test_a_file_is_refused_with(tmp_path, text, reason):
    with pytest.raises(LocalError, match=reason):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(LocalError, match=r"nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml")
