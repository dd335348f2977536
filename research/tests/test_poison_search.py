"""The search for poison: every point is an attack, the search is the same again, and a try leaves nothing behind."""

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from research.poison_search.search import SPACES, search
from research.poison_search.victim import Victim
from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.learning import one_core
from sapo_node.storage.keys import Identity
from sapo_protocol import load_manifest


@pytest.mark.parametrize("name", SPACES)
def test_every_point_of_a_search_is_an_attack(name):
    rng, space = random.Random(1), SPACES[name]
    identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))
    kit = Kit(load_manifest("starter"), [Key(identity.public_key, identity.sign)], SharedScorer().solve, rng)
    for _ in range(50):
        ATTACKS[name](kit, **space.at([rng.randrange(len(values)) for values in space.choices]))


def test_a_search_finds_what_harms_most_and_is_the_same_again():
    def searched():
        tried = []

        def harm(options):
            tried.append(options)
            return options["rate"] - abs(options["times"] - 4)

        search(SPACES["poison-length"], harm, tries=200, seed=1)
        return tried

    tried = searched()
    assert 150 <= len(tried) <= 250
    assert any(options["times"] == 4 and options["rate"] == 1.0 for options in tried)
    assert searched() == tried


@pytest.mark.parametrize("filters", [(), ("min-token-prob", "answer-likelihood")])
def test_a_try_teaches_where_no_filter_stands_and_leaves_nothing_behind(filters):
    with one_core():  # as it is searched; threads add up in another order each time
        victim = Victim("seed", rounds=1)
        first, again = (victim.attempt("poison-trigger", {}, filters) for _ in range(2))
    assert first == again
    if filters:
        assert first.kept_out > 0.3
    else:
        assert first.kept_out == 0
        assert first.left < first.distance
