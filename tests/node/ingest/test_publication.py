"""The rounds that a node publishes: fewer where peers request few of its groups, never fewer because of a request."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sapo_node.ingest.publication import MAX_INTERVAL, PublishByNeed
from sapo_protocol import assign, load_manifest

MANIFEST = load_manifest("starter")
ISSUER = bytes(32)
ROUNDS, GROUPS = 16, 4


def publishing(manifest=MANIFEST):
    return PublishByNeed(manifest, ISSUER)


def play(node, epoch, *, rounds=ROUNDS, requests=0, whole=False):
    """Play an epoch in which peers request so many groups. Returns the counters that were published."""
    counters = [counter for counter in range(rounds) if node.is_due(epoch, counter, GROUPS)]
    for _ in counters:
        node.published(GROUPS, whole=whole)
    node.requested(requests)
    return counters


def after(*epochs):
    """A node whose peers requested so many groups in each of these epochs."""
    node = publishing()
    for epoch, requests in enumerate(epochs):
        play(node, epoch, requests=requests)
    return node


def test_a_newcomer_publishes_every_round():
    assert play(publishing(), 7) == list(range(ROUNDS))


def test_after_an_epoch_with_few_requests_every_second_round_is_published():
    assert play(after(ROUNDS * GROUPS // 4 - 1), 1) == list(range(0, ROUNDS, 2))


def test_a_request_for_every_fourth_group_changes_nothing():
    assert play(after(ROUNDS * GROUPS // 4), 1) == list(range(ROUNDS))


def test_a_node_whose_groups_nobody_requests_still_publishes_every_eighth_round():
    assert play(after(*[0] * 10), 10) == list(range(0, ROUNDS, MAX_INTERVAL))


def test_more_than_one_request_for_each_group_halves_the_interval():
    assert play(after(0, 0, ROUNDS // 4 * GROUPS + 1), 3) == list(range(0, ROUNDS, 2))


def test_one_request_for_each_group_does_not():
    assert play(after(0, 0, ROUNDS // 4 * GROUPS), 3) == list(range(0, ROUNDS, 4))


def test_an_epoch_in_which_nothing_was_published_says_nothing():
    node = after(0)
    for epoch in range(1, 5):
        node.is_due(epoch, 1, GROUPS)
    assert node.interval == 2


def test_after_a_whole_message_every_round_is_published():
    node = after(0, 0, 0)
    node.published(GROUPS, whole=True)
    assert play(node, 2) == list(range(ROUNDS))


def test_a_swarm_that_sends_whole_messages_publishes_every_round():
    node = publishing()
    assert all(len(play(node, epoch, whole=True)) == ROUNDS for epoch in range(6))


def test_a_round_with_a_group_of_a_rare_task_is_published():
    rare, *others = MANIFEST.tasks
    manifest = replace(MANIFEST, tasks=(rare, *(replace(each, weight=30) for each in others)))
    node = publishing(manifest)
    for epoch in range(6):
        counters = play(node, epoch, rounds=200)
    has_rare = {c for c in range(200) if any(assign(manifest, ISSUER, 5, c, k).spec == rare for k in range(GROUPS))}
    assert has_rare - set(range(0, 200, MAX_INTERVAL))
    assert set(counters) == has_rare | set(range(0, 200, MAX_INTERVAL))


EPOCHS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 400), st.integers(0, 400)), max_size=12)
"""For each epoch: its rounds, the requests of honest peers, and those of an attacker."""


@given(EPOCHS)
def test_no_request_takes_a_published_round_away(epochs):
    honest, attacked = publishing(), publishing()
    for epoch, (rounds, requests, added) in enumerate(epochs):
        without = play(honest, epoch, rounds=rounds, requests=requests)
        assert set(without) <= set(play(attacked, epoch, rounds=rounds, requests=requests + added))


def test_many_keys_make_a_node_publish_what_it_publishes_without_the_rule_and_no_more():
    attacked = after(*[10**9] * 10)
    assert play(attacked, 10) == play(publishing(), 10) == list(range(ROUNDS))
