"""Attacks on the wire: what a stock decoder lets in, and what the validator makes of it."""

import random
from dataclasses import replace
from functools import partial

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attacked import attacked, poison, refused, violations
from context import context_of
from sapo_adversary.ablations import stock
from sapo_adversary.ablations.defences import ablated
from sapo_adversary.ablations.replacements import KeepsZeroAdvantage
from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.corpus import corpus
from sapo_adversary.attacks.drafts import Draft
from sapo_adversary.attacks.forms import FORMS, encode_as
from sapo_adversary.attacks.identity import ENCODINGS, elsewhere, flipped, resealed
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.attacks.wire import TAGGED, twins
from sapo_adversary.scoring import SharedScorer
from sapo_node.app.node import PARTS
from sapo_node.app.state import SCHEMA
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.record import Unusable
from sapo_node.storage.database import Database
from sapo_node.trust.constants import PeerState, Tier
from sapo_protocol import Layer, decode_message, encode_message, load_manifest, verify_signature
from validator_parts import ValidatorParts

MANIFEST = replace(load_manifest("starter"), genesis=0, max_rounds=600)
SCORER = SharedScorer()
CORPUS = corpus(MANIFEST.completions, MANIFEST.max_completion_bytes)
EPOCH = 5
"""In which the clock of a `Validator` stands."""


def key(number):
    private = Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big"))
    return Key(private.public_key().public_bytes_raw(), private.sign)


def validator(*trusted, parts=PARTS):
    return ValidatorParts(Database(None, SCHEMA), MANIFEST, random.Random(1), trusted=trusted, parts=parts)


def attack(name, **options):
    return ATTACKS[name](Kit(MANIFEST, [key(1), key(2)], SCORER.solve, random.Random(3)), **options)


def packets(name, heartbeats=1, **options):
    """What one key of an attack sends."""
    band = attack(name, **options)
    return [packet for _ in range(heartbeats) for packet in band.act(band.kit.keys[0], EPOCH)]


async def verified_or_unusable(case, number):
    """Verdict and counted reason for a case of the corpus, of a healthy peer: all of it is verified."""
    author = key(number)
    node = validator(author.peer)
    kit = Kit(MANIFEST, [author], SCORER.solve, random.Random(number))
    verdict = await node.verdict(case.make(Draft(kit, author, EPOCH, 3, groups=case.groups)))
    reasons = set(node.refused())
    if verdict is Verdict.ACCEPT:
        verifier = KeepsZeroAdvantage(context_of(MANIFEST, random.Random(1)), SCORER, node.ledger)
        await verifier.verify(node.book.draw(Tier.FRIEND))
        reasons = set(verifier.unusable) & {Unusable.MALFORMED_BODY}
    return verdict, reasons


def test_seven_in_ten_cases_of_the_corpus_must_fail_and_all_differ():
    broken = sum(bool(case.refused) for case in CORPUS)
    assert broken >= 200
    assert abs(broken / len(CORPUS) - 0.7) < 0.005
    assert len({case.name for case in CORPUS}) == len(CORPUS)


async def test_each_broken_message_is_refused_for_its_reason_and_each_unusual_one_is_accepted():
    wrong = {}
    for number, case in enumerate(CORPUS, 1):
        verdict, reasons = await verified_or_unusable(case, number)
        expected = {case.refused} if case.refused else set()
        if reasons != expected or (not case.refused and verdict is not Verdict.ACCEPT):
            wrong[case.name] = (verdict, reasons)
    assert not wrong


async def test_no_message_of_the_corpus_ends_a_node_that_decodes_as_a_library_does():
    parts = ablated(["strict decoding"]).parts
    authors = [key(number) for number in range(1, len(CORPUS) + 1)]
    node = validator(*(each.peer for each in authors), parts=parts)
    verifier = parts.verifier(context_of(MANIFEST, random.Random(1)), SCORER, node.ledger, wire=parts.wire)
    verified = 0
    for number, (author, case) in enumerate(zip(authors, CORPUS, strict=True)):
        kit = Kit(MANIFEST, [author], SCORER.solve, random.Random(number))
        await node.verdict(case.make(Draft(kit, author, EPOCH, 3, groups=case.groups)), author.peer)
        if turn := node.book.draw(Tier.FRIEND):
            verified += 1
            await verifier.verify(verifier.spare(turn))
    assert verified > 0.3 * len(CORPUS)


async def test_a_good_peer_is_served_throughout_the_corpus(author):
    node = validator()
    for number, case in enumerate(CORPUS[:60], 1):
        kit = Kit(MANIFEST, [key(number)], SCORER.solve, random.Random(number))
        await node.verdict(case.make(Draft(kit, key(number), EPOCH, 3, groups=case.groups)))
        assert await node.verdict(author.message(epoch=EPOCH, counter=number), key(999).peer) is Verdict.ACCEPT


async def test_of_a_rollout_and_its_twins_one_is_kept():
    node = validator()
    messages = [packet.data for packet in packets("twin", heartbeats=9)]
    verdicts = [await node.verdict(message) for message in messages]
    assert verdicts.count(Verdict.ACCEPT) == node.book.waiting == 1
    assert node.refused() == {Layer.HEADER: len(messages) - 1}
    assert len(set(messages)) == 9


@pytest.mark.parametrize("form", FORMS)
def test_a_stock_decoder_takes_every_form_for_the_same_value(form):
    value = {"epoch": 5, "groups": [{"body": b"abc", "claims": [True, False]}], "é": "text"}
    said = encode_as(value, FORMS[form])
    assert cbor2.loads(said) == value
    assert said != cbor2.dumps(value, canonical=True)


def test_a_stock_decoder_takes_every_twin_for_the_same_header():
    kit = attack("twin").kit
    payload = kit.payload(EPOCH, 0, kit.flawless(kit.keys[0], EPOCH, 0, 2))
    decoded = {str(stock.decode_header(each, MANIFEST)) for each in (payload, *twins(payload))}
    assert len(decoded) == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [("length-bomb", {"items": 5_000}), ("hash-collision", {"keys": 100}), ("tag-bomb", {})],
)
async def test_no_bomb_ever_reaches_the_library(name, options, monkeypatch):
    band = attack(name, **options)
    author = band.kit.keys[0]
    messages = [
        place(author, EPOCH, counter, bomb)
        for counter, bomb in enumerate(band.bombs())
        for place in (band.in_header, band.in_bodies)
    ]
    monkeypatch.setattr(cbor2, "loads", lambda *_parts, **_options: pytest.fail("the library was asked to decode"))
    for message in messages:
        node = validator()
        verdict = await node.verdict(message)
        if verdict is Verdict.ACCEPT:
            verifier = KeepsZeroAdvantage(context_of(MANIFEST, random.Random(1)), SCORER, node.ledger)
            found = await verifier.verify(node.book.draw(node.ledger.tier(author.peer)))
            assert set(found.values()) == {Unusable.MALFORMED_BODY}
            assert verifier.unusable == {Unusable.MALFORMED_BODY: band.groups}
        else:
            assert set(node.refused()) <= {Layer.HEADER, Layer.SIZE}


@pytest.mark.parametrize("tag", sorted(set(TAGGED) - {"small bignum", "bignum"}))
def test_a_stock_decoder_builds_what_a_tag_asks_for(tag):
    assert type(cbor2.loads(TAGGED[tag])) not in (int, str, bytes, bool, dict) or tag == "cycle"


async def test_no_flipped_bit_of_a_message_is_accepted():
    kit = attack("forgery").kit
    message = kit.message(kit.keys[0], EPOCH, 0, kit.flawless(kit.keys[0], EPOCH, 0, 1))
    node, senders = validator(), [key(number).peer for number in range(10, 110)]
    for place, bit in enumerate(random.Random(5).sample(range(8 * len(message)), 1_500)):
        assert await node.verdict(flipped(message, bit), senders[place % len(senders)]) is Verdict.REJECT
    assert await node.verdict(message) is Verdict.ACCEPT


async def test_no_envelope_with_another_signature_or_name_is_accepted():
    kit = attack("forgery").kit
    message = kit.message(kit.keys[0], EPOCH, 0, kit.flawless(kit.keys[0], EPOCH, 0, 1))
    envelope, bodies = decode_message(message, MANIFEST)
    node = validator()
    for forged in resealed(envelope, kit.keys[1].issuer):
        assert await node.verdict(encode_message(forged, bodies)) is Verdict.REJECT
    assert await node.verdict(message) is Verdict.ACCEPT


async def test_no_key_of_small_order_is_accepted_though_openssl_takes_all_of_them():
    node, messages = validator(), [packet.data for packet in packets("small-order", heartbeats=len(ENCODINGS))]
    taken = [
        stock.verify_signature(sealed.issuer, sealed.signed, sealed.signature)
        for sealed in (stock.parse_envelope(cbor2.loads(each)[0], network_id=MANIFEST.network_id) for each in messages)
    ]
    assert sum(taken) >= len(ENCODINGS) - 4
    assert [await node.verdict(message) for message in messages] == [Verdict.REJECT] * len(ENCODINGS)
    assert node.refused() == {Layer.SIGNATURE: len(ENCODINGS)}


async def test_nothing_signed_for_elsewhere_is_accepted_and_no_evidence_for_a_rollout():
    node, sent = validator(), packets("cross-domain", heartbeats=len(elsewhere(MANIFEST.network_id)))
    for packet in sent:
        handle = partial(node.ingest.handle, shard=0) if packet.topic == "rollouts" else node.ingest.handle_evidence
        assert await handle(key(500).peer, packet.data) is not Verdict.ACCEPT
    assert set(node.refused()) <= {Layer.SIGNATURE, Layer.FRAME, "sender banned"}


async def test_a_flood_of_forged_signatures_ends_after_some_twenty():
    node = validator()
    for packet in packets("signature-flood", burst=500):
        await node.verdict(packet.data)
    assert node.refused()[Layer.SIGNATURE] <= 25
    assert node.ledger.of(node.sender).state is PeerState.BANNED


def swarm(name, **how):
    """Three nodes that know each other, for as long as two attackers need."""
    return attacked(name, honest=3, **{"seconds": 24.0, **how})


WIRE = {
    "hash-collision": ({"keys": 60}, ("strict decoding",)),
    "tag-bomb": ({}, ("strict decoding",)),
    "length-bomb": ({"items": 5_000, "depth": 1_000}, ("strict decoding",)),
    "malformed": ({"unusual": False}, ("strict decoding",)),
    "small-order": ({}, ("strict signatures",)),
    "cross-domain": ({}, ("bound signatures",)),
}


@pytest.mark.parametrize("name", WIRE)
@pytest.mark.slow
def test_what_must_be_refused_is_trained_on_by_a_stock_node_and_never_by_this_one(name):
    options, without = WIRE[name]
    writer = "nobody" if name == "small-order" else name
    assert poison(swarm(name, options=options, without=without), writer) > 0
    assert poison(swarm(name, options=options), writer) == 0


@pytest.mark.slow
def test_twins_are_trained_on_twice_by_a_stock_node_and_once_by_this_one():
    without = ("strict decoding", "one content a counter", "untrusted class")
    assert violations(swarm("twin", without=without)) > 0
    assert violations(swarm("twin")) == 0


@pytest.mark.slow
def test_without_signatures_lies_in_honest_names_are_believed_to_be_theirs():
    undefended, defended = swarm("forgery", without=("signatures",)), swarm("forgery")
    assert false_bans(undefended) > 0
    assert false_bans(defended) == violations(defended) == 0


def false_bans(record):
    return sum(node["states"]["last"]["honest"].get("banned", 0) for node in record["nodes"])


@pytest.mark.slow
def test_a_flood_is_verified_on_and_on_where_nobody_counts():
    flood = {"acts_every": 1.0, "options": {"burst": 20}, "seconds": 12.0}
    endless = swarm("signature-flood", without=("sender rate", "costly lies"), **flood)
    assert refused(endless, "signature") > 5 * refused(swarm("signature-flood", **flood), "signature")


def test_every_verifier_of_this_project_refuses_small_orders():
    for encoding in ENCODINGS:
        assert not verify_signature(encoding, b"anything", (1).to_bytes(32, "little") + bytes(32))
