"""Evidence of equivocation: from bytes alone, against one issuer once, and never more than its budget."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.gossip.verdict import Verdict
from sapo_node.ingest.validator import Ignored
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_protocol import (
    decode_evidence,
    encode_evidence,
    parse_envelope,
    peer_id,
    prove_equivocation,
)


def evidence_against(author, *, epoch=3):
    pair = [author.envelope(author.header([text], epoch=epoch)) for text in (b"one", b"two")]
    return encode_evidence(*(parse_envelope(each, network_id=author.manifest.network_id) for each in pair))


def proof_against(author, **header):
    return prove_equivocation(decode_evidence(evidence_against(author, **header), author.manifest), author.manifest)


@pytest.fixture
def ledger(database):
    return Ledger(database)


@pytest.fixture
def equivocation_handler(ledger):
    return EquivocationHandler(ledger)


@pytest.fixture
def crowd(author):
    """One stranger more than an epoch has room for."""
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(constants.UNKNOWN_BANS + 1)]
    return [replace(author, key=key) for key in keys]


def test_who_is_convicted_is_banned_and_not_heard_of_again(equivocation_handler, ledger, author):
    equivocation_handler.ban(proof_against(author), publish=True)
    assert ledger.of(peer_id(author.issuer)).state is PeerState.BANNED
    assert not equivocation_handler.hears(author.issuer)


def test_what_this_node_found_is_published_once(equivocation_handler, author):
    equivocation_handler.ban(proof_against(author), publish=True)
    assert equivocation_handler.take_announcements() == [evidence_against(author)]
    assert equivocation_handler.take_announcements() == []


def test_what_came_as_evidence_is_forwarded_and_not_published_again(equivocation_handler, author):
    equivocation_handler.ban(proof_against(author), publish=False)
    assert equivocation_handler.take_announcements() == []


def test_a_convict_who_is_still_passed_on_is_named_again_once_an_epoch(equivocation_handler, author):
    equivocation_handler.ban(proof_against(author), publish=False)
    for _ in range(2):
        equivocation_handler.next_evidence(peer_id(author.issuer))
    assert equivocation_handler.take_announcements() == [evidence_against(author)]
    equivocation_handler.advance()
    equivocation_handler.next_evidence(peer_id(author.issuer))
    assert equivocation_handler.take_announcements() == [evidence_against(author)]


def test_a_peer_banned_for_lies_is_not_named_to_others(equivocation_handler, ledger, author):
    for _ in range(4):
        ledger.report(peer_id(author.issuer), Fact.FALSE_CLAIM)
    equivocation_handler.next_evidence(peer_id(author.issuer))
    assert equivocation_handler.take_announcements() == []


def test_strangers_who_equivocate_without_end_use_up_their_own_budget_only(equivocation_handler, ledger, crowd, author):
    *unknown_peers, last = crowd
    for stranger in unknown_peers:
        equivocation_handler.ban(proof_against(stranger), publish=False)
    assert not equivocation_handler.hears(last.issuer)
    ledger.report(peer_id(author.issuer), Fact.VERIFIED_GROUP)
    assert equivocation_handler.hears(author.issuer)


def test_the_budget_comes_back_with_the_next_epoch(equivocation_handler, crowd):
    *unknown_peers, last = crowd
    for stranger in unknown_peers:
        equivocation_handler.ban(proof_against(stranger), publish=False)
    equivocation_handler.advance()
    assert equivocation_handler.hears(last.issuer)


async def test_evidence_bans_an_issuer_that_this_node_never_met_and_is_passed_on(validator, author):
    assert await validator.ingest.handle_evidence(validator.sender, evidence_against(author)) is Verdict.ACCEPT
    assert validator.ledger.of(peer_id(author.issuer)).state is PeerState.BANNED
    assert validator.ledger.of(validator.sender).evidence.bad == 0


async def test_the_rollouts_of_a_convict_are_dropped_from_the_inbox(validator, author):
    await validator.ingest.handle(validator.sender, author.message(epoch=5), shard=0)
    await validator.ingest.handle_evidence(validator.sender, evidence_against(author))
    assert validator.book.waiting == 0


async def test_evidence_against_a_convict_is_ignored_before_any_signature_is_checked(validator, author):
    await validator.ingest.handle_evidence(validator.sender, evidence_against(author))
    other = evidence_against(author, epoch=4)
    forged = other[:-1] + bytes([other[-1] ^ 1])
    assert await validator.ingest.handle_evidence(validator.sender, forged) is Verdict.IGNORE
    assert validator.ingest.refused == {Ignored.KNOWN_EVIDENCE: 1}


async def test_evidence_does_not_grow_old(validator, author, manifest):
    validator.clock.time += 100 * manifest.epoch_seconds
    assert await validator.ingest.handle_evidence(validator.sender, evidence_against(author)) is Verdict.ACCEPT


async def test_made_up_evidence_costs_its_sender_and_nobody_else(validator, author):
    data = evidence_against(author)
    assert await validator.ingest.handle_evidence(validator.sender, data[:-1] + bytes([data[-1] ^ 1])) is Verdict.REJECT
    assert validator.ledger.of(validator.sender).evidence.bad > 0
    assert validator.ledger.of(peer_id(author.issuer)).state is PeerState.UNTRUSTED


async def test_evidence_of_another_swarm_is_refused(validator, author, manifest):
    elsewhere = replace(author, manifest=replace(manifest, name="elsewhere"))
    assert await validator.ingest.handle_evidence(validator.sender, evidence_against(elsewhere)) is Verdict.REJECT


async def test_a_convicts_envelope_makes_this_node_name_it_again(validator, author):
    await validator.ingest.handle_evidence(validator.sender, evidence_against(author))
    assert await validator.ingest.handle(validator.sender, author.message(epoch=5), shard=0) is Verdict.IGNORE
    assert validator.equivocation_handler.take_announcements() == [evidence_against(author)]


async def test_evidence_against_the_own_key_stops_the_node_with_a_word_of_advice(validator_of, author):
    validator = validator_of(author.key)
    assert await validator.ingest.handle_evidence(validator.sender, evidence_against(author)) is Verdict.IGNORE
    assert "start with a new one" in str(validator.fatal[0])


async def test_accepted_evidence_is_counted_apart_from_rollouts(validator, author):
    await validator.ingest.handle_evidence(validator.sender, evidence_against(author))
    assert (validator.ingest.evidence, validator.ingest.accepted) == (1, 0)


def test_a_peer_of_the_operators_trust_is_no_stranger(database, crowd):
    *unknown_peers, last = crowd
    equivocation_handler = EquivocationHandler(Ledger(database, trusted=[peer_id(last.issuer)]))
    for stranger in unknown_peers:
        equivocation_handler.ban(proof_against(stranger), publish=False)
    assert equivocation_handler.hears(last.issuer)
