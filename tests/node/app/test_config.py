"""The configuration: one table, from which files, variables, options, checks and documents are made."""

import os
import random
import re
import tomllib
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import pytest

from mutation import mutated
from sapo_node.app.config import SETTINGS, Config, load_config, render_config
from sapo_node.app.running_node import RunningNode
from sapo_node.storage.keys import create_key
from sapo_node.storage.user_folders import cache_folder, default_state
from sapo_protocol import AnswerKind, FileSource, LocalError, TaskSpec, load_manifest, peer_id

PEER = peer_id(bytes(range(32)))


def write(tmp_path, text):
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_what_is_printed_loads_again_to_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Config(local=2, bootstrap=("/ip4/127.0.0.1/tcp/1/p2p/x",), learning_rate=1e-3, model="\x7f\u202e 😀")
    write(tmp_path, render_config(config))
    assert load_config(Path("node.toml")) == config


def test_a_path_in_the_file_begins_at_the_folder_of_the_file(tmp_path):
    (tmp_path / "my-model").mkdir()
    (tmp_path / "seed").mkdir()
    file = write(tmp_path, 'key = "a.key"\nstate = "/b"\nswarm = "c.toml"\nmodel = "my-model"\n')
    config = load_config(file)
    places = [str(tmp_path / "a.key"), "/b", str(tmp_path / "c.toml"), str(tmp_path / "my-model")]
    assert [config.key, config.state, config.swarm, config.model] == places
    names = load_config(write(tmp_path, 'swarm = "starter"\nmodel = "seed"\n'))
    assert (names.swarm, names.model, names.key) == ("starter", "seed", "node.key")


PLACES = {"key": "~/k", "state": "~/s", "swarm": "~/w.toml", "model": "~/m"}


def test_a_tilde_is_the_home_folder_wherever_a_setting_is_a_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "f").mkdir()
    file = write(tmp_path / "f", "".join(f'{key} = "{value}"\n' for key, value in PLACES.items()))
    variables = {f"SAPO_NODE_{key.upper()}": value for key, value in PLACES.items()}
    configs = [
        load_config(file),
        load_config(None, variables),
        load_config(None, {"SAPO_NODE_CONFIG": "~/f/node.toml"}),
        Config().overridden(PLACES),
    ]
    homes = {key: value.replace("~", str(tmp_path)) for key, value in PLACES.items()}
    assert [{key: asdict(config)[key] for key in PLACES} for config in configs] == [homes] * 4


@pytest.mark.parametrize("text", ["[node]\nlocal = 4", "[local]\nx = 4", "[[node]]\nlocal = 4", "node.local = 4"])
def test_a_section_is_refused_by_its_name(tmp_path, text):
    with pytest.raises(LocalError, match=r"a configuration has no section \[(node|local)\]"):
        load_config(write(tmp_path, text))


def test_a_user_without_a_home_folder_gives_the_state(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", dict.__getitem__.__get__({}))
    assert default_state() == ""
    with pytest.raises(LocalError, match="no home folder, so there is no default for --state"):
        Config(state="").states  # noqa: B018 - a property that raises
    with pytest.raises(LocalError, match="set HOME or XDG_CACHE_HOME"):
        cache_folder()
    assert Config(state="s").states == Path("s")


def test_a_swarm_without_tasks_from_files_needs_no_folder_for_them():
    assert Config(state="").files_of(load_manifest("starter").tasks) is None


def test_the_files_of_tasks_lie_under_the_state():
    source = FileSource("0" * 64, 32, AnswerKind.NUMBER)
    assert Config(state="s").files_of([TaskSpec("rows", {}, 1, source=source)]) == Path("s/files")


def test_a_home_folder_that_does_not_exist_is_none_and_xdg_comes_before_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_state() == ""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_state() == str(tmp_path / "state" / "sapo-node")


def test_every_key_is_documented():
    text = render_config(Config())
    keys = tomllib.loads(text)
    assert set(keys) == set(Config.__dataclass_fields__)
    assert text.count("\n# ") == len(keys)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_takes_its_default_and_says_in_words_what_it_takes(name):
    row = SETTINGS[name]
    assert row.accepts(row.default)
    assert not row.accepts(None)
    assert row.wanted
    assert row.help.endswith(".")


def test_the_command_line_overrides_the_file(tmp_path):
    config = load_config(write(tmp_path, "local = 2\nexternal = 6\n")).overridden({"local": 3, "external": None})
    assert (config.local, config.external) == (3, 6)


def test_the_environment_overrides_the_file_and_the_command_line_the_environment(tmp_path):
    path = write(tmp_path, "local = 2\nwarmup = 5\nmodel = 'file'\n")
    config = load_config(path, {"SAPO_NODE_WARMUP": "6", "SAPO_NODE_MODEL": "environment"})
    config = config.overridden({"model": "flag", "warmup": None})
    assert (config.local, config.warmup, config.model) == (2, 6, "flag")


def test_every_key_can_be_set_in_the_environment():
    def text(value):
        return ",".join(value) if isinstance(value, tuple) else str(value)

    config = Config(local=2, train=False, bootstrap=("/ip4/1/tcp/1/p2p/x", "/ip4/2/tcp/1/p2p/y"), learning_rate=1e-3)
    environ = {f"SAPO_NODE_{key.upper()}": text(value) for key, value in asdict(config).items()}
    assert load_config(None, environ) == config


def test_a_variable_names_the_file_of_a_command_without_one(tmp_path):
    (tmp_path / "other.toml").write_text("local = 3")
    environ = {"SAPO_NODE_CONFIG": str(write(tmp_path, "local = 2"))}
    assert load_config(None, environ).local == 2
    assert load_config(tmp_path / "other.toml", environ).local == 3


def test_variables_that_are_no_key_are_left_alone():
    environ = {"SAPO_NODE_PASSPHRASE": "x", "SAPO_NODE_API_KEY": "x", "PATH": "/bin", "SAPO_NODES": "x"}
    environ |= {"SAPO_NODE_PORT": "tcp://10.0.0.1:4001", "SAPO_NODE_SERVICE_HOST": "10.0.0.1"}
    assert load_config(None, environ) == Config()


BAD_VARIABLES = {
    "an unknown name": ("SAPO_NODE_LOCL", "2", "unknown variable SAPO_NODE_LOCL; did you mean SAPO_NODE_LOCAL?"),
    "a strange name": ("SAPO_NODE_" + "Z" * 30, "2", "Z; unset it"),
    "text for a number": ("SAPO_NODE_LOCAL", "many", "SAPO_NODE_LOCAL is 'many'; give a whole number"),
    "auto for a number without it": ("SAPO_NODE_LOCAL", "auto", "give a whole number"),
    "no number": (
        "SAPO_NODE_LEARNING_RATE",
        "",
        "LEARNING_RATE is ''; give a number above 0 up to 1, or auto",
    ),
    "a rate that is no number": ("SAPO_NODE_LEARNING_RATE", "nan", "LEARNING_RATE is nan"),
    "a number beyond its bounds": ("SAPO_NODE_LOCAL", "0", "SAPO_NODE_LOCAL is 0; give a whole number from 1 to 16"),
    "a number of 5,000 digits": ("SAPO_NODE_LOCAL", "1" * 5_000, "give a whole number"),
    "text for a switch": ("SAPO_NODE_SANDBOX", "on", "SAPO_NODE_SANDBOX is 'on'; give true or false"),
    "no file": ("SAPO_NODE_CONFIG", "/nowhere.toml", "nowhere.toml; make one with"),
}


@pytest.mark.parametrize(("name", "value", "reason"), BAD_VARIABLES.values(), ids=BAD_VARIABLES.keys())
def test_a_variable_is_refused_with(name, value, reason):
    with pytest.raises(LocalError, match=re.escape(reason)):
        load_config(None, {name: value})


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
    "text for a number": ('local = "4"', "local is '4'; give a whole number from 1 to 16$"),
    "a boolean for a number": ("local = true", "local is True; give a whole number"),
    "a number for a text": ("model = 7", "model is 7; give text$"),
    "a number for a boolean": ("sandbox = 1", "sandbox is 1; give true or false$"),
    "one string for a list": ('bootstrap = "x"', "list of strings"),
    "no local groups": ("local = 0", "local is 0"),
    "an unknown external objective": ('external_objective = "none"', "positive-only, on-policy"),
    "an unknown dtype": ('dtype = "float16"', "float32, bfloat16"),
    "a warm-up below zero": ("warmup = -1", "warmup is -1"),
    "a learning rate of zero": ("learning_rate = 0.0", "learning_rate"),
    "a name that is no peer id": ('banned = ["…4fgh"]', "not a peer id"),
    "a peer id with a line end, as in a file of Windows": (f'banned = ["{PEER}\\r"]', "blank"),
    "a friend who is banned": (f'trusted = ["{PEER}"]\nbanned = ["{PEER}"]', f"both hold {PEER}"),
    "numbers for a list of strings": ("listen = [1]", "list of strings"),
    "bad TOML": ("local =", "not valid TOML"),
    "3,000 nested lists": ("local = " + "[" * 3_000, "not valid TOML"),
    "an integer of 5,000 digits": ("local = " + "1" * 5_000, "not valid TOML"),
    "a rate of 5,000 hexadecimal digits": ("learning_rate = 0x" + "f" * 5_000, "not valid TOML"),
    "a zero byte in a path": (r'swarm = "a\u0000b"', "zero byte"),
    "a zero byte in an address": (r'listen = ["a\u0000b"]', "zero byte"),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=BAD.keys())
def test_a_file_is_refused_with(tmp_path, text, reason):
    with pytest.raises(LocalError, match=reason):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named_with_the_command_that_makes_one(tmp_path):
    with pytest.raises(LocalError, match=r"nowhere\.toml; make one with: sapo-node config > "):
        load_config(tmp_path / "nowhere.toml")


def test_a_folder_and_a_pipe_are_no_configuration(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(LocalError, match="not a configuration"):
            load_config(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "node.toml").write_bytes(b"\xff")
    with pytest.raises(LocalError, match="not UTF-8"):
        load_config(tmp_path / "node.toml")


def test_a_thousand_damaged_configurations_each_load_or_are_one_error(tmp_path):
    rng, refused = random.Random(2), 0
    lines = [line for line in render_config(Config()).splitlines() if not line.startswith("#")]
    for _ in range(1_000):
        (tmp_path / "node.toml").write_bytes(mutated("\n".join(lines).encode(), rng))
        try:
            load_config(tmp_path / "node.toml")
        except LocalError:
            refused += 1
    assert 100 < refused < 1_000


CHOSEN = {"generate": "http://127.0.0.1:8000", "learning_rate": 1e-3, "filters": (), "local": 2, "archive": 5}


@pytest.mark.parametrize(
    ("changes", "contributes", "unused"),
    [
        ({"train": True}, False, []),
        ({"train": False}, False, ["generate", "learning_rate", "filters", "local"]),
        ({"train": False}, True, ["generate", "learning_rate", "filters"]),
        ({"train": False, "feed": "127.0.0.1:0"}, False, ["generate", "learning_rate"]),
    ],
)
def test_what_was_chosen_and_has_no_effect_is_named(changes, contributes, unused):
    assert Config(**CHOSEN, **changes).unused(contributes=contributes) == sorted(unused, key=[*SETTINGS].index)


def test_a_default_is_not_named():
    assert Config(train=False).unused(contributes=False) == []


def test_a_contributor_beside_a_trainer_is_refused(tmp_path):
    config = Config(train=False, feed="127.0.0.1:0", state=str(tmp_path))
    identity = create_key(tmp_path / "node.key")
    with pytest.raises(LocalError, match="set feed to off"):
        RunningNode(config, identity, key_is_new=True, observer=lambda _: None, contributor=nullcontext())
