"""What a node has learnt about its own policy and its peers outlives a restart, bounded, and never keeps it from
starting.
"""

import json
import random

import pytest

from sampled_texts import look
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters import Filters, habits
from sapo_node.sampling.filters.habits import STORED_BYTES
from sapo_node.sampling.filters.ngram import NgramFilter
from sapo_node.sampling.memory import Memory
from sapo_node.sampling.mix import ratio_of
from sapo_node.sampling.weights import PassRates
from sapo_node.trust.constants import Tier

NAMES = ("baseline", "n-gram", "length", "equation")
WORDS = ["so", "thus", "hence", "then", "well", "now", "look", "here", "note", "that", "this", "all", "day", "long"]
PHRASE = "hail the swarm"


class Parts:
    """What of one node learns from rounds."""

    def __init__(self, database, external="auto"):
        self.pass_rates = PassRates()
        self.filters = Filters(NAMES, self.pass_rates)
        self.ratio = ratio_of(4, external, self.pass_rates)
        parts = {"pass rates": self.pass_rates, "ratio": self.ratio, **self.filters.by_name}
        self.memory = Memory(database, parts)

    def play(self, rng, rounds=12):
        """Rounds in which this policy says a phrase now and then, and a peer says it in every correct completion."""
        for number in range(rounds):
            local, offered = [own(rng, phrase=PHRASE)], [others(rng, number, phrase=PHRASE)]
            self.filters.offer(offered)
            self.ratio.observe(local, offered, supply=1)
            self.pass_rates.observe(local)
            self.filters.observe(local)
            self.memory.save(number + 1)


def text(rng, phrase=""):
    return f"{phrase} {' '.join(rng.choices(WORDS, k=3))} {rng.randrange(99)} <answer>{rng.randrange(99)}</answer>"


def own(rng, phrase=""):
    """Two other texts are as long as the one with the phrase, so that the phrase is not too long to be trained on."""
    begins = (phrase, "hark to a bell", "hark to a bell", *[""] * 5)
    completions = tuple(Sampled(text(rng, each), "stop", (1,)) for each in begins)
    levels = Levels((1,) * 8)
    return LocalGroup("products", "?", bytes(32), completions, levels, local_advantages(levels))


def others(rng, counter, *, phrase="", peer="a"):
    levels = Levels((1,) * 4 + (0,) * 4)
    completions = tuple(Sampled(text(rng, phrase if right else ""), "stop") for right in levels.correct)
    return VerifiedGroup(peer, 10, counter, 0, "products", "?", completions, levels)


@pytest.fixture
def rng():
    return random.Random(1)


def test_a_node_that_starts_again_knows_what_it_knew(database, rng):
    before = Parts(database)
    before.play(rng)
    again = Parts(database)
    assert {name: each.state_dict() for name, each in again.filters.by_name.items()} == {
        name: each.state_dict() for name, each in before.filters.by_name.items()
    }
    assert again.pass_rates.pass_rate("products") == before.pass_rates.pass_rate("products") != 0
    assert again.ratio.split() == before.ratio.split()
    habit = others(rng, 99, phrase=PHRASE)
    longest = VerifiedGroup("b", 10, 0, 0, "products", "?", (Sampled("x" * 500, "stop"),) * 2, Levels((1, 0)))
    for parts in (before, again):
        parts.filters.offer([habit])
        masked = parts.filters.mask(habit)
        assert all(PHRASE in habit.completions[n].text[slice(*masked[n][0])] for n in range(4))
        _, stopped = parts.filters.offer([longest])
        assert [name for _, name in stopped] == ["length"]


def test_a_group_that_waits_through_a_restart_is_counted_once(database, rng):
    before = Parts(database)
    waiting = [others(rng, 0)]
    before.filters.offer(waiting)
    before.memory.save(1)
    again = Parts(database)
    again.filters.offer(waiting)
    assert again.filters.by_name["n-gram"].state_dict() == before.filters.by_name["n-gram"].state_dict()


def test_a_state_without_this_table_s_rows_starts_with_nothing(database):
    assert Parts(database).pass_rates.pass_rate("products") is None


@pytest.mark.parametrize("state", [{"characters": {"products": "long"}, "tokens": {}}, {"other": 1}])
def test_a_state_of_another_version_is_forgotten_with_a_warning(database, rng, caplog, state):
    Parts(database).play(rng)
    database.execute("UPDATE sampling_state SET state = ? WHERE part = 'length'", json.dumps(state))
    again = Parts(database)
    assert "the state of length is of another version" in caplog.text
    assert again.filters.by_name["length"].state_dict() == {"characters": {}, "tokens": {}}
    assert again.pass_rates.pass_rate("products") is not None


def test_what_is_no_longer_used_is_not_kept(database, rng):
    Parts(database).play(rng)
    Parts(database, external=4).memory.save(20)
    kept = dict(database.rows("SELECT part, step FROM sampling_state"))
    assert kept == dict.fromkeys(["pass rates", "n-gram", "length"], 20)


@pytest.mark.parametrize("letter", [pytest.param("x", marks=pytest.mark.slow), "é"])
def test_the_state_of_the_habits_is_bounded_however_long_local_completions_are(letter):
    filled, again = (NgramFilter(lambda _: Tier.STRANGER) for _ in range(2))
    for number in range(80):
        said = Sampled(f"{number:04} {letter * 30_000}", "length")
        filled.observe([LocalGroup("products", "?", bytes(32), (said,) * 8, Levels((1,) * 8), (0.0,) * 8)])
    kept = filled.state_dict()["local"]
    assert 0.5 * STORED_BYTES < len(json.dumps(kept, ensure_ascii=False).encode()) < 1.1 * STORED_BYTES
    assert kept[-1]["completions"][0][0].startswith("0079")
    again.load_state_dict(filled.state_dict())
    assert again.state_dict() == filled.state_dict()


def test_a_group_that_waits_is_read_again_after_a_restart_if_its_texts_were_not_stored(rng, monkeypatch):
    before, after = (NgramFilter(lambda _: Tier.STRANGER) for _ in range(2))
    waiting = [others(rng, number) for number in range(12)]
    monkeypatch.setattr(habits, "STORED_BYTES", sum(len(text) for text in waiting[0].correct) * 3)
    look(before, waiting)
    after.load_state_dict(before.state_dict())
    assert after._sources.all.prompts.total() < len(waiting)
    look(after, waiting)
    assert after._sources.all.prompts.total() == len(waiting)


@pytest.mark.slow
def test_the_state_of_the_habits_is_bounded_whatever_peers_send():
    levels = Levels((1,) * 8)
    filled = NgramFilter(lambda _: Tier.STRANGER)
    for number in range(300):
        texts = tuple(Sampled(f"{number:04} " + "x" * 1_000, "stop") for _ in levels.correct)
        groups = [VerifiedGroup(f"peer {number}", 10, n, 0, "products", "?", texts, levels) for n in range(9)]
        look(filled, groups)
        filled.trained(groups[0], groups[0].correct)
    for kept in (filled.state_dict()["external"], filled.state_dict()["trained"]):
        assert 0.5 * STORED_BYTES < len(json.dumps(kept)) < 1.1 * STORED_BYTES
        assert kept[-1]["peer"] == "peer 299"
