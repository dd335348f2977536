"""The tier of each peer and the strangers' share, as a node shows them."""

from dataclasses import replace

import pytest
from rich.console import Console

from sapo_node.cli.tables import Screen, tier_line
from sapo_node.observability import explain
from sapo_node.observability.history import History
from sapo_node.observability.overview import overview
from sapo_node.training.round import RoundReport
from sapo_node.trust.constants import EARNED_PER_EPOCH, HEALTHY_AFTER, Fact, PeerState
from sapo_node.trust.ledger import Ledger
from swarm_parts import TRAINING

REPORT = RoundReport(3, 5, 1, 1_800_000_000.0, True, 0.25, 0.25, 2, 4, 1, 1, 0.75, {"train": 2.0}, TRAINING)
SHARE = "may fill 75% of the external groups"


def text_of(shown):
    console = Console(width=200)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_each_peer_is_shown_with_the_tier_that_the_ledger_gives_it(database):
    ledger = Ledger(database, trusted=["friend"], banned=["banned"])
    ledger.report("stranger", Fact.VERIFIED_GROUP)
    for epoch in range(1, HEALTHY_AFTER // EARNED_PER_EPOCH + 1):
        ledger.at(epoch)
        for _ in range(EARNED_PER_EPOCH):
            ledger.report("proven", Fact.VERIFIED_GROUP)
    ledger.at(epoch + 1)
    shown = {each.peer: each.tier for each in overview(database).peers}
    assert shown == {"friend": "friend", "proven": "proven", "stranger": "stranger", "banned": "stranger"}
    assert shown == {peer: ledger.tier(peer) for peer in shown}


@pytest.mark.parametrize(
    ("after", "outlook"),
    [
        ([], "It becomes healthy when the next epoch begins."),
        ([Fact.FALSE_CLAIM], "when an epoch begins and its trust is 0.8 again"),
    ],
)
def test_a_peer_that_has_its_verified_groups_is_said_to_wait_for_an_epoch_or_for_its_trust(
    database, manifest, after, outlook
):
    ledger = Ledger(database)
    for epoch in range(1, HEALTHY_AFTER // EARNED_PER_EPOCH + 1):
        ledger.at(epoch)
        for _ in range(EARNED_PER_EPOCH):
            ledger.report("peer", Fact.VERIFIED_GROUP)
    for fact in after:
        ledger.report("peer", fact)
    assert outlook in explain.known_peer(database, "peer", manifest).text
    ledger.at(epoch + 1)
    assert (ledger.state("peer") is PeerState.HEALTHY) is (after == [])


def test_the_strangers_share_is_that_of_the_last_round(database):
    for step, share in ((1, 0.25), (2, 0.75)):
        History(database).record(replace(REPORT, step=step, strangers_share=share))
    view = overview(database)
    assert view.strangers_share == 0.75
    Ledger(database).report("peer", Fact.VERIFIED_GROUP)
    assert f"strangers {SHARE}" in text_of(Screen(overview(database)))
    assert f"Strangers {SHARE}" in " ".join(text_of(tier_line(view)).split())


def test_a_node_without_rounds_has_no_share(database):
    view = overview(database)
    assert view.strangers_share is None
    assert "external groups" not in text_of(tier_line(view))


def test_the_numbers_of_a_peer_say_what_they_count(database):
    """At once 16 groups count toward a state, and 334 are in the weights: a reader compares what has one heading."""
    ledger = Ledger(database)
    for _ in range(3):
        ledger.report("12D3KooWpeer", Fact.VERIFIED_GROUP)
    database.execute("INSERT INTO trained VALUES ('12D3KooWpeer', 334, 40, 1, 0.1)")
    lines = text_of(Screen(overview(database))).splitlines()
    [heading] = [line for line in lines if line.startswith("peer ")]
    row = lines[lines.index(heading) + 1]
    assert "groups trained on" in heading
    assert "to healthy" in heading
    assert "verified" not in heading
    assert "334" in row
    assert f"3 of {HEALTHY_AFTER}" in row


def test_what_was_left_out_is_counted_in_messages_or_in_groups(database):
    History(database).count({"signature": 2, "length filter": 1, "zero advantage": 5})
    told = text_of(Screen(overview(database)))
    assert "refused signature 2 messages" in told
    assert "left out length filter 1 group" in told
    assert "not needed zero advantage 5 groups" in told
