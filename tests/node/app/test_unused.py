"""A node that does not train names the settings that have no effect."""

from contextlib import nullcontext
from dataclasses import fields

import pytest

from sapo_node.app.config import Config
from sapo_node.app.running_node import RunningNode
from sapo_node.app.unused import OF_GROUPS, OF_LEARNER, OF_ROUNDS, unused_settings
from sapo_node.storage.keys import create_key
from sapo_protocol import LocalError

OF_RELAYS = {
    *("swarm", "key", "state", "listen", "announce", "bootstrap", "mdns", "train", "feed", "external", "trusted"),
    *("banned", "dashboard", "archive", "no_sandbox"),
}
CHOSEN = {"generate": "http://127.0.0.1:8000", "learning_rate": 1e-3, "filters": (), "local": 2, "archive": 5}


def test_each_setting_is_one_that_a_relay_uses_or_one_that_it_names_as_unused():
    assert sorted([*OF_RELAYS, *OF_LEARNER, *OF_ROUNDS, *OF_GROUPS]) == sorted(each.name for each in fields(Config))


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
    assert unused_settings(Config(**CHOSEN, **changes), contributes=contributes) == unused


def test_a_default_is_not_named():
    assert unused_settings(Config(train=False), contributes=False) == []


def test_a_contributor_beside_a_trainer_is_refused(tmp_path):
    config = Config(train=False, feed="127.0.0.1:0", state=str(tmp_path))
    identity = create_key(tmp_path / "node.key")
    with pytest.raises(LocalError, match="set feed to off"):
        RunningNode(config, identity, key_is_new=True, observer=lambda _: None, contributor=nullcontext())
