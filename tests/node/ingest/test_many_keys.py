"""A flood of valid rollouts under 1, 64 or 1,024 keys, over one link or a quarter of the links: what honest peers keep.

Each of 16 neighbours is honest. Some forward the flood, since nothing proves it wrong.
"""

from collections import Counter
from dataclasses import replace
from itertools import cycle, islice

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.node import Parts
from sapo_node.gossip.verdict import Verdict
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.limits import Limits
from sapo_protocol import peer_id
from validator_parts import ValidatorParts

NEIGHBOURS = 16
EACH = 4
"""Rollouts of each honest peer."""
PLACES = constants.PENDING_PLACES // 4
"""Of a tier in the pending queue: a smaller flood fills it."""
FLOOD = 2 * PLACES
"""Rollouts of all attackers, or as many as the quotas of their counters allow."""

NEAR, FRIEND, FAR, ATTACKERS = range(4)
"""Kinds of keys."""

every_number_of_keys = pytest.mark.parametrize("keys", [1, 64, 1_024])
every_number_of_links = pytest.mark.parametrize("links", [1, NEIGHBOURS // 4])


@pytest.fixture
def authors(author):
    """`authors(count, kind)`: that many keys, others for each kind."""

    def authors(count, kind):
        seeds = (bytes([kind]) + number.to_bytes(31, "big") for number in range(count))
        return [replace(author, key=Ed25519PrivateKey.from_private_bytes(seed)) for seed in seeds]

    return authors


@pytest.fixture
def neighbours(authors):
    return authors(NEIGHBOURS, NEAR)


@pytest.fixture
def validator(database, manifest, rng, authors, neighbours):
    validator = ValidatorParts(
        database,
        manifest,
        rng,
        trusted=tuple(map(name, authors(1, FRIEND))),
        parts=Parts(limits=Limits(pending_places=PLACES)),
    )
    for neighbour in neighbours:
        validator.ingest.begin_link(name(neighbour))
    return validator


def name(author):
    return peer_id(author.issuer)


async def bring(validator, link, author, *, counters=range(EACH), epoch=5):
    """The rollouts of an author come by the link of a neighbour; their verdicts."""
    return [await validator.verdict(author.message(epoch=epoch, counter=each), name(link)) for each in counters]


def rounds(validator, attackers):
    """An attacker and a counter, as far as the quotas of their counters go."""
    quota = int(validator.manifest.max_rounds * constants.UNTRUSTED_COUNTERS)
    return ((attacker, counter) for counter in range(quota) for attacker in attackers)


async def flood(validator, links, attackers):
    """All links forward what the attackers sign, as fast as each link may."""
    for link, (attacker, counter) in zip(cycle(links), islice(rounds(validator, attackers), FLOOD), strict=False):
        validator.clock.time += 1 / constants.LINK_STRANGERS_PER_SECOND / len(links)
        await bring(validator, link, attacker, counters=[counter])


def kept(validator):
    """How many rollouts of each peer wait."""
    drawn = Counter()
    for tier in Tier:
        while turn := validator.book.draw(tier):
            drawn[peer_id(turn.rollout.opened.issuer)] += 1
    return drawn


@every_number_of_links
@every_number_of_keys
@pytest.mark.slow
async def test_a_flood_evicts_no_rollout_of_a_friend_of_a_neighbour_or_of_another_link(
    validator, neighbours, authors, keys, links
):
    """The flood comes last. Behind each link is one more honest peer, as far away as the attackers. Where they have
    1,024 keys, one behind a link that forwards the flood keeps 0 to 2 of its 4 rollouts.
    """
    (friend,), far = authors(1, FRIEND), authors(NEIGHBOURS, FAR)
    for neighbour, behind in zip(neighbours, far, strict=True):
        await bring(validator, neighbour, neighbour)
        await bring(validator, neighbour, behind)
    await bring(validator, neighbours[0], friend)
    await flood(validator, neighbours[:links], authors(keys, ATTACKERS))
    waits = kept(validator)
    apart = far[links:] if keys > 64 else far
    assert {waits[name(each)] for each in (friend, *neighbours, *apart)} == {EACH}


@every_number_of_links
@every_number_of_keys
@pytest.mark.slow
async def test_a_flood_evicts_no_rollout_of_a_peer_with_credit_that_came_by_the_same_link(
    validator, neighbours, authors, keys, links
):
    far = authors(NEIGHBOURS, FAR)
    for neighbour, behind in zip(neighbours, far, strict=True):
        validator.book.lottery.credit(name(behind), EACH)
        await bring(validator, neighbour, behind)
    await flood(validator, neighbours[:links], authors(keys, ATTACKERS))
    waits = kept(validator)
    assert {waits[name(each)] for each in far} == {EACH}


@pytest.mark.parametrize(
    ("keys", "links"),
    [
        (64, NEIGHBOURS // 4),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 1), (1_024, 1), (1_024, NEIGHBOURS // 4))),
    ],
)
async def test_a_flood_before_an_epoch_begins_refuses_no_newcomer_that_is_a_neighbour_or_behind_another_link(
    validator, neighbours, authors, keys, links
):
    validator.clock.time = 6 * validator.manifest.epoch_seconds - 29
    signed = rounds(validator, authors(keys, ATTACKERS))
    for neighbour in neighbours[:links]:
        for attacker, counter in islice(signed, int(constants.LINK_STRANGERS_BURST)):
            await bring(validator, neighbour, attacker, counters=[counter], epoch=6)
    newcomers = [*zip(neighbours, neighbours, strict=True), *zip(neighbours, authors(NEIGHBOURS, FAR), strict=True)]
    taken = [
        await bring(validator, link, each, counters=[0], epoch=6)
        for link, each in newcomers[:NEIGHBOURS] + newcomers[NEIGHBOURS + links :]
    ]
    assert taken == [[Verdict.ACCEPT]] * (2 * NEIGHBOURS - links)


@every_number_of_links
@every_number_of_keys
@pytest.mark.slow
async def test_bans_that_end_launder_no_trust_and_take_no_turn_of_a_stranger(
    validator, neighbours, authors, keys, links
):
    """All attackers are banned as senders of invalid messages, wait until their bans end, and then are honest."""
    attackers, ledger = authors(keys, ATTACKERS), validator.ledger
    for peer in map(name, attackers):
        while ledger.admits(peer):
            ledger.report(peer, Fact.INVALID_MESSAGE)
    ledger.at(constants.BAN_EPOCHS)
    for attacker, link in zip(attackers, cycle(neighbours[:links]), strict=False):
        await bring(validator, link, attacker, counters=[0])
    await bring(validator, neighbours[-1], neighbours[-1])

    def on_probation(peer):
        return ledger.state(peer) is PeerState.PROBATION

    turns = [validator.book.draw(Tier.STRANGER, last=on_probation).rollout.opened.issuer for _ in range(EACH)]
    assert turns == [neighbours[-1].issuer] * EACH
    for peer in map(name, attackers):
        for _ in range(constants.HEALTHY_AFTER):
            ledger.report(peer, Fact.VERIFIED_GROUP)
    ledger.at(constants.BAN_EPOCHS + 1)
    assert not any(ledger.state(name(each)) is PeerState.HEALTHY for each in attackers)
