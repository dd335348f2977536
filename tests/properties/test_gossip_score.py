"""The gossip score against what it promises, in meshes drawn at random.

A mesh is a small model: every peer has each message at a time of its own, passes it on unless our copy reached it
before, and its copy takes the time of its link.
"""

import random
from dataclasses import dataclass
from math import ceil, log

from hypothesis import given
from hypothesis import strategies as st

from sapo_node.gossip.score import (
    ACTIVATION_SECONDS,
    ENOUGH,
    FEW,
    FIRST_HALF_LIFE,
    FORGET_SECONDS,
    MEMORY,
    NEAR_SECONDS,
    Conduct,
    Offence,
    Scores,
    Share,
)

TOPIC, OTHER_TOPICS = b"rollouts", (b"evidence", b"a", b"b", b"c")
FOUND_OUT_AFTER = 34
"""Deliveries per mesh peer until a peer that never forwarded is below zero."""
BACK_AFTER = 600.0  # seconds

mesh_sizes = st.sampled_from([FEW, 6, 10])
rates = st.floats(0.02, 20.0)  # messages per second: from one a minute to more than a node can carry
seeds = st.integers(0, 2**32)


@dataclass
class Mesh:
    """Honest peers around a node that keeps their score, and perhaps one that is not."""

    peers: list[str]
    rate: float
    rng: random.Random
    silent: frozenset[str] = frozenset()
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.scores = Scores()
        self.links = {peer: self.rng.uniform(0.0, 1.0) for peer in self.peers}

    def message(self) -> None:
        """One message of the swarm's, by whichever ways it comes."""
        self.now += self.rng.expovariate(self.rate)
        spread = self.rng.choice([0.01, 0.1, 1.0])
        has = {peer: self.rng.uniform(0.0, spread) for peer in self.peers if peer not in self.silent}
        first = min(has[peer] + self.links[peer] for peer in has)
        copies = sorted(
            (has[peer] + self.links[peer], peer)
            for peer in has
            if has[peer] < first + self.links[peer] and has[peer] + self.links[peer] <= first + NEAR_SECONDS
        )
        self.delivered([peer for _, peer in copies])

    def single(self) -> None:
        """One message that only one peer, drawn, delivers."""
        self.now += 1 / self.rate
        self.delivered([self.rng.choice([each for each in self.peers if each not in self.silent])])

    def delivered(self, peers: list[str], topic: bytes = TOPIC) -> None:
        self.scores.delivered(self.now, topic, peers, self.peers)

    def score(self, peer: str) -> float:
        return self.scores.score(self.now, peer)


def names(count: int) -> list[str]:
    return [f"peer {number}" for number in range(count)]


def activated(mesh: Mesh) -> None:
    """Let the time pass in which nothing is asked."""
    mesh.single()
    mesh.now += ACTIVATION_SECONDS


@given(size=mesh_sizes, rate=rates, seed=seeds)
def test_a_peer_that_never_forwards_is_below_zero_after_34_deliveries_of_each_other(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed), silent=frozenset({"peer 0"}))
    activated(mesh)
    for _ in range(FOUND_OUT_AFTER * size):
        mesh.single()
    assert mesh.score("peer 0") < 0


@given(
    size=mesh_sizes,
    rate=rates,
    seed=seeds,
    elsewhere=st.dictionaries(st.sampled_from(OTHER_TOPICS), st.integers(1, 3), max_size=4),
)
def test_no_good_deed_on_other_topics_hides_it(size, rate, seed, elsewhere):
    mesh = Mesh(names(size), rate, random.Random(seed), silent=frozenset({"peer 0"}))
    activated(mesh)
    for _ in range(FOUND_OUT_AFTER * size):
        for topic, messages in elsewhere.items():
            for _ in range(messages):
                mesh.delivered(["peer 0"], topic)
        mesh.single()
    assert mesh.score("peer 0") < 0


@given(first=st.floats(0, 1e12), delivered=st.floats(0, 1.49))
def test_less_than_half_of_what_is_asked_outweighs_every_positive_score(first, delivered):
    share = Share(since=0.0, delivered=delivered, expected=ENOUGH)
    assert Conduct(0.0, first=first, shares={TOPIC: share}).score < 0


@given(size=st.just(FEW), rate=rates, seed=seeds)
def test_a_peer_that_stops_forwarding_is_found_out_whatever_it_did_before(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed))
    activated(mesh)
    for _ in range(60 * size):
        mesh.single()
    mesh.silent = frozenset({"peer 0"})
    for _ in range(ceil(MEMORY * (log(16) + log(size)) * size)):
        mesh.delivered(["peer 0"], "evidence")
        mesh.single()
    assert mesh.score("peer 0") < 0


@given(size=st.sampled_from([FEW + 1, 6]), rate=rates, seed=seeds)
def test_leaving_and_coming_back_does_not_hide_it(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed), silent=frozenset({"peer 0"}))
    activated(mesh)
    everybody, others = mesh.peers, mesh.peers[1:]
    for number in range(4 * FOUND_OUT_AFTER * size):
        mesh.peers = everybody if number // 5 % 2 else others
        mesh.single()
    assert mesh.score("peer 0") < 0


@given(size=st.integers(1, 12), rate=rates, seed=seeds, messages=st.integers(1, 400))
def test_honest_peers_under_random_delays_are_never_below_zero(size, rate, seed, messages):
    mesh = Mesh(names(size), rate, random.Random(seed))
    for _ in range(messages):
        mesh.message()
        assert all(mesh.score(peer) >= 0 for peer in mesh.peers)


@given(size=mesh_sizes, rate=rates, seed=seeds, silent=st.integers(1, 6))
def test_honest_peers_stay_above_zero_beside_freeloaders(size, rate, seed, silent):
    mesh = Mesh(names(size + silent), rate, random.Random(seed), silent=frozenset(names(silent)))
    for _ in range(300):
        mesh.message()
        assert all(mesh.score(peer) >= 0 for peer in mesh.peers[silent:])


@given(size=mesh_sizes, rate=rates, seed=seeds)
def test_a_peer_that_is_always_second_is_never_below_zero(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed))
    for _ in range(300):
        mesh.now += 1 / rate
        mesh.delivered([mesh.rng.choice(mesh.peers[1:]), "peer 0"])
        assert mesh.score("peer 0") >= 0


@given(size=mesh_sizes, rate=rates, seed=seeds)
def test_peers_that_only_say_their_own_are_never_below_zero_among_themselves(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed))
    for number in range(100 * size):
        mesh.now += 1 / rate
        mesh.delivered([mesh.peers[number % size]])
        assert all(mesh.score(each) >= 0 for each in mesh.peers)


@given(size=st.integers(1, FEW - 1), rate=rates, seed=seeds)
def test_in_a_mesh_of_few_nobody_is_below_zero(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed), silent=frozenset({"peer 0"} if size > 1 else ()))
    activated(mesh)
    for _ in range(200):
        mesh.single()
    assert all(mesh.score(peer) >= 0 for peer in mesh.peers)


@given(size=mesh_sizes, seed=seeds, minutes=st.integers(1, 600))
def test_in_a_silent_swarm_nobody_is_below_zero(size, seed, minutes):
    mesh = Mesh(names(size), 1.0, random.Random(seed), silent=frozenset({"peer 0"}))
    mesh.single()
    mesh.now += 60.0 * minutes
    assert all(mesh.score(peer) >= 0 for peer in mesh.peers)


@given(size=mesh_sizes, rate=rates, seed=seeds)
def test_a_dismissed_peer_stays_below_zero_and_is_back_within_ten_minutes(size, rate, seed):
    mesh = Mesh(names(size), rate, random.Random(seed), silent=frozenset({"peer 0"}))
    activated(mesh)
    while mesh.score("peer 0") >= 0:
        mesh.single()
    mesh.scores.dismissed(mesh.now, "peer 0", TOPIC)
    assert mesh.score("peer 0") < 0
    mesh.now += FIRST_HALF_LIFE
    assert mesh.score("peer 0") < 0
    mesh.now += BACK_AFTER - FIRST_HALF_LIFE
    assert mesh.score("peer 0") >= 0


offences = st.sampled_from(list(Offence))


@given(offence=offences, times=st.integers(20, 10**6), first=st.floats(0, 1e9))
def test_a_flood_of_offences_outweighs_every_positive_score_and_is_refused(offence, times, first):
    conduct = Conduct(0.0, first=first).after(offence, times)
    assert conduct.score < 0
    assert conduct.refused
    assert conduct.at(100.0).refused
    assert not conduct.at(130.0).refused


@given(offence=offences, times=st.integers(1, 10**6))
def test_every_offence_is_tolerated_again_within_five_minutes(offence, times):
    conduct = Conduct(0.0).after(offence, times)
    assert conduct.at(300.0).score >= 0


@given(offence=offences)
def test_two_offences_of_a_kind_are_tolerated(offence):
    assert Conduct(0.0).after(offence, 2).score >= 0


events = st.lists(
    st.tuples(
        st.floats(0, 30),
        st.sampled_from(["delivered", "offended", "dismissed"]),
        st.integers(0, 30),
        st.sampled_from([TOPIC, *OTHER_TOPICS]),
    ),
    max_size=120,
)


def play(happened, rename, scores: Scores) -> float:
    """Enter events about numbered peers by their names; when it ended."""
    now = 0.0
    for passed, kind, number, topic in happened:
        now += passed
        peer = rename(number)
        if kind == "delivered":
            scores.delivered(now, topic, [peer], [rename(each) for each in range(number, number + 6)])
        elif kind == "offended":
            scores.offended(now, peer, Offence.EXCESS, number)
        else:
            scores.dismissed(now, peer, topic)
    return now


@given(happened=events, order=st.permutations(range(36)))
def test_other_peer_ids_change_nothing(happened, order):
    plain, renamed = Scores(peers=20), Scores(peers=20)
    now = play(happened, str, plain)
    play(happened, lambda number: str(order[number]), renamed)
    assert all(plain.score(now, str(each)) == renamed.score(now, str(order[each])) for each in range(36))


@given(happened=events)
def test_the_memory_is_bounded(happened):
    scores = Scores(peers=8)
    play(happened, str, scores)
    assert len(scores._conducts) <= 8


@given(unknown_peers=st.integers(1, 100))
def test_strangers_do_not_wash_a_negative_score_off(unknown_peers):
    scores = Scores(peers=8)
    scores.offended(0.0, "mallory", Offence.EXCESS, 60)
    for number in range(unknown_peers):
        scores.delivered(1.0 + number / 100, TOPIC, [f"stranger {number}"], ())
    assert scores.score(3.0, "mallory") < 0


def test_a_peer_that_was_away_for_long_is_a_stranger():
    scores = Scores()
    scores.delivered(0.0, TOPIC, ["peer"], ())
    assert scores.of(FORGET_SECONDS + 1, "peer") == Conduct(FORGET_SECONDS + 1)
