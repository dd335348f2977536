"""Verification on demand: whose rollouts are looked at, and in which order."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from context import context_of
from rollouts import right_and_wrong, rollout
from sapo_node.ingest.pending import PendingQueue
from sapo_node.sampling.buffer import Pool
from sapo_node.trust import constants
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.scheduler import VerificationScheduler
from sapo_node.verification.verifier import Verifier
from sapo_protocol import peer_id
from swarm_parts import OpenScorer


@pytest.fixture
def unknown_peers(author):
    return [replace(author, key=Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(6)]


@pytest.fixture
def ledger(database, rng):
    return Ledger(database, epoch=5, rng=rng)


@pytest.fixture
def pending_queue(database, manifest):
    return PendingQueue(database, manifest)


@pytest.fixture
def scheduler(database, manifest, pending_queue, ledger, rng):
    verifier = Verifier(context_of(manifest, rng), OpenScorer(), ledger)
    return VerificationScheduler(
        pending_queue=pending_queue, verifier=verifier, pool=Pool(database), ledger=ledger, rng=rng
    )


def put(pending_queue, author, counters, **changes):
    """Rollouts of one good group each; what is changed in its header spoils it."""
    for counter in counters:
        group, body, _ = right_and_wrong(author, counter=counter)
        pending_queue.put(rollout(author, [replace(group, **changes)], [body], counter=counter))


def earned(ledger, authors):
    return sorted(ledger.of(peer_id(author.issuer)).earned for author in authors)


async def test_a_newcomer_who_has_begun_to_earn_standing_comes_before_those_who_have_not(
    scheduler, pending_queue, ledger, unknown_peers
):
    for stranger in unknown_peers:
        put(pending_queue, stranger, range(constants.EARNED_PER_EPOCH))
    for _ in range(2 * constants.EARNED_PER_EPOCH // constants.UNTRUSTED_VERIFICATIONS):
        await scheduler.verify_pending(4)
    assert earned(ledger, unknown_peers) == [0, 0, 0, 0, constants.EARNED_PER_EPOCH, constants.EARNED_PER_EPOCH]


async def test_who_begins_and_then_gives_nothing_is_one_of_many_again(scheduler, pending_queue, ledger, unknown_peers):
    idler, other = unknown_peers[:2]
    put(pending_queue, idler, range(20), digest=bytes(32))
    put(pending_queue, idler, [20])  # verified first, as the last to arrive
    await scheduler.verify_pending(4)
    put(pending_queue, other, range(constants.EARNED_PER_EPOCH))
    for _ in range(constants.EARNED_PER_EPOCH):
        await scheduler.verify_pending(4)
    assert earned(ledger, [idler, other]) == [1, constants.EARNED_PER_EPOCH]


async def test_who_can_earn_no_more_in_an_epoch_is_verified_all_the_same(
    scheduler, pending_queue, ledger, unknown_peers
):
    put(pending_queue, unknown_peers[0], range(constants.EARNED_PER_EPOCH + 2))
    for _ in range(constants.EARNED_PER_EPOCH):
        await scheduler.verify_pending(4)
    assert earned(ledger, unknown_peers[:1]) == [constants.EARNED_PER_EPOCH]
    assert len(pending_queue) == 0
