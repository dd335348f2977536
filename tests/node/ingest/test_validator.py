"""The validator: what is accepted, what is refused, for which reason, and who is charged."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.node import Parts
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.lottery import ENDED_LINK, PLACE_BYTES
from sapo_node.ingest.validator import FORWARDED_ISSUERS, Ignored
from sapo_node.storage.counters import KeyInUseElsewhere
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.limits import Limits
from sapo_protocol import (
    Layer,
    decode_header,
    encode_body,
    encode_message,
    match_bodies,
    open_envelope,
    parse_envelope,
    peer_id,
    shard_of,
)
from validator_parts import SENDER, ValidatorParts


async def test_a_valid_message_is_accepted_and_waits_for_verification(validator, author):
    assert await validator.verdict(author.message(epoch=5)) is Verdict.ACCEPT
    assert validator.book.draw(Tier.STRANGER).rollout.opened.issuer == author.issuer


async def test_garbage_is_rejected_and_charged_to_its_sender(validator):
    assert await validator.verdict(b"\xff" * 40) is Verdict.REJECT
    assert validator.refused() == {Layer.FRAME: 1}
    assert validator.ledger.of(SENDER).evidence.bad > 0


async def test_a_bad_signature_is_charged_to_its_sender_and_never_to_the_author_it_names(validator, author, manifest):
    message = bytearray(author.message(epoch=5))
    at = message.index(author.issuer) + 200
    message[at] ^= 1
    assert await validator.verdict(bytes(message)) is Verdict.REJECT
    assert validator.ledger.of(peer_id(author.issuer)).evidence.bad == 0
    assert validator.ledger.of(SENDER).evidence.bad > 0


async def test_a_swapped_body_is_rejected_and_does_not_keep_the_true_one_out(validator, author):
    body, other = encode_body(author.body("a")), encode_body(author.body("b"))
    envelope = author.envelope(author.header([body], epoch=5))
    assert await validator.verdict(encode_message(envelope, (other,))) is Verdict.REJECT
    assert await validator.verdict(encode_message(envelope, (body,))) is Verdict.ACCEPT


async def test_a_rollout_on_the_topic_of_another_shard_is_refused_and_charged_to_its_sender(database, author, rng):
    swarm = replace(author.manifest, shards=4)
    author, validator = replace(author, manifest=swarm), ValidatorParts(database, swarm, rng)
    message, own = author.message(epoch=5), shard_of(swarm, author.issuer, 5)
    assert await validator.verdict(message, shard=(own + 1) % 4) is Verdict.REJECT
    assert validator.refused() == {Layer.TOPIC: 1}
    assert validator.ledger.of(SENDER).evidence.bad > 0
    assert await validator.verdict(message, shard=own) is Verdict.ACCEPT


async def test_a_rollout_that_was_asked_for_is_taken_whatever_its_shard(database, author, rng):
    swarm = replace(author.manifest, shards=4)
    validator = ValidatorParts(database, swarm, rng)
    message = replace(author, manifest=swarm).message(epoch=5)
    assert await validator.ingest.handle_synchronised(SENDER, message) is Verdict.ACCEPT


async def test_gossip_takes_a_whole_message_that_is_longer_than_inline_bytes(database, author, rng):
    """A swarm of few peers publishes each message whole."""
    swarm = replace(author.manifest, inline_bytes=0)
    author, validator = replace(author, manifest=swarm), ValidatorParts(database, swarm, rng)
    assert await validator.verdict(author.message(epoch=5)) is Verdict.ACCEPT


async def test_gossip_takes_an_envelope_without_bodies_however_little_it_may_hold(database, author, rng):
    swarm = replace(author.manifest, inline_bytes=0)
    author, validator = replace(author, manifest=swarm), ValidatorParts(database, swarm, rng)
    envelope = author.envelope(author.header([encode_body(author.body())], epoch=5))
    assert await validator.verdict(encode_message(envelope, (None,))) is Verdict.ACCEPT


@pytest.fixture
async def verdict_among(database, author, rng):
    """The verdict on a message of two bodies of a swarm with this `inline_bytes`, after messages of other issuers."""

    async def verdict_among(issuers, inline_bytes, *, bodies=True):
        swarm = replace(author.manifest, inline_bytes=inline_bytes)
        here, validator = replace(author, manifest=swarm), ValidatorParts(database, swarm, rng)
        for other in authors(here, issuers):
            await validator.verdict(other.message(epoch=5))
        texts = [encode_body(here.body(text)) for text in ("a", "b")]
        envelope = here.envelope(here.header(texts, epoch=5, counter=1))
        return await validator.verdict(encode_message(envelope, tuple(texts) if bodies else (None, None)))

    return verdict_among


async def test_a_long_message_is_not_forwarded_with_its_bodies_among_many_issuers(verdict_among):
    assert await verdict_among(FORWARDED_ISSUERS, 0) is Verdict.KEEP


@pytest.mark.parametrize(
    ("issuers", "inline_bytes", "bodies"),
    [(FORWARDED_ISSUERS - 1, 0, True), (FORWARDED_ISSUERS, 100_000, True), (FORWARDED_ISSUERS, 0, False)],
    ids=["few issuers", "a short message", "no bodies"],
)
async def test_any_other_new_message_is_forwarded(verdict_among, issuers, inline_bytes, bodies):
    assert await verdict_among(issuers, inline_bytes, bodies=bodies) is Verdict.ACCEPT


async def test_the_same_message_again_is_ignored_and_costs_nobody_anything(validator, author):
    await validator.verdict(author.message(epoch=5))
    assert await validator.verdict(author.message(epoch=5)) is Verdict.IGNORE
    assert validator.refused() == {Ignored.DUPLICATE: 1}
    assert validator.ledger.of(SENDER).evidence.bad == 0


async def test_a_message_that_brings_the_bodies_left_out_before_is_accepted(validator, author):
    body = encode_body(author.body())
    envelope = author.envelope(author.header([body], epoch=5))
    assert await validator.verdict(encode_message(envelope, (None,))) is Verdict.ACCEPT
    assert await validator.verdict(encode_message(envelope, (body,))) is Verdict.ACCEPT
    assert await validator.verdict(encode_message(envelope, (None,))) is Verdict.IGNORE
    assert validator.book.draw(Tier.STRANGER).rollout.bodies == (body,)


async def test_a_body_that_was_already_verified_does_not_come_back_with_the_others(validator, author):
    """Else a relay that strips bodies could have one group trained on twice."""
    bodies = [encode_body(author.body(text)) for text in ("a", "b")]
    envelope = author.envelope(author.header(bodies, epoch=5))
    await validator.verdict(encode_message(envelope, (bodies[0], None)))
    assert validator.book.draw(Tier.STRANGER).rollout.bodies == (bodies[0], None)
    await validator.verdict(encode_message(envelope, tuple(bodies)))
    assert validator.book.draw(Tier.STRANGER).rollout.bodies == (None, bodies[1])


async def test_bodies_that_come_apart_wait_together(validator, author):
    bodies = [encode_body(author.body(text)) for text in ("a", "b")]
    envelope = author.envelope(author.header(bodies, epoch=5))
    await validator.verdict(encode_message(envelope, (bodies[0], None)))
    await validator.verdict(encode_message(envelope, (None, bodies[1])))
    assert validator.book.draw(Tier.STRANGER).rollout.bodies == tuple(bodies)
    assert validator.book.waiting == 0


async def test_an_envelope_is_forwarded_at_most_twice_however_its_bodies_come(validator, author):
    bodies = tuple(encode_body(author.body(str(k))) for k in range(16))
    envelope = author.envelope(author.header(bodies, epoch=5))
    alone = [tuple(body if number == k else None for number, body in enumerate(bodies)) for k in range(15)]
    verdicts = [await validator.verdict(encode_message(envelope, each)) for each in [(None,) * 16, *alone]]
    assert verdicts == [Verdict.ACCEPT, *[Verdict.KEEP] * 15]
    assert await validator.verdict(encode_message(envelope, bodies)) is Verdict.ACCEPT
    turns = [validator.book.draw(Tier.STRANGER).rollout.bodies for _ in range(4)]
    assert tuple(next(filter(None, came)) for came in zip(*turns, strict=True)) == bodies
    assert validator.book.waiting == 0


async def test_a_relay_that_strips_bodies_does_not_keep_the_whole_message_from_others(validator, author):
    bodies = tuple(encode_body(author.body(str(k))) for k in range(3))
    envelope = author.envelope(author.header(bodies, epoch=5))
    for stripped in [(None,) * 3, (bodies[0], None, None), (bodies[0], bodies[1], None)]:
        await validator.verdict(encode_message(envelope, stripped))
    assert await validator.verdict(encode_message(envelope, bodies)) is Verdict.ACCEPT


async def test_a_replay_after_a_restart_is_ignored(validator, author, database, manifest, rng):
    await validator.verdict(author.message(epoch=5))
    assert await ValidatorParts(database, manifest, rng).verdict(author.message(epoch=5)) is Verdict.IGNORE


async def test_a_replay_after_its_epoch_is_ignored(validator, author):
    await validator.verdict(author.message(epoch=5))
    validator.clock.time += 1_200
    validator.ingest.advance(7)
    assert await validator.verdict(author.message(epoch=5)) is Verdict.IGNORE
    assert validator.refused() == {Ignored.OUTSIDE_WINDOW: 1}


@pytest.mark.parametrize("epoch", [3, 7, 2**40])
async def test_an_epoch_outside_the_window_is_ignored(validator, author, epoch):
    assert await validator.verdict(author.message(epoch=epoch)) is Verdict.IGNORE
    assert validator.refused() == {Ignored.OUTSIDE_WINDOW: 1}


async def test_counters_may_arrive_in_any_order(validator, author):
    verdicts = [await validator.verdict(author.message(epoch=5, counter=counter)) for counter in (7, 2, 4)]
    assert verdicts == [Verdict.ACCEPT] * 3


async def test_two_contents_under_one_counter_ban_their_author_for_good_with_proof(validator, author, manifest):
    await validator.verdict(author.message(epoch=5, text="one"))
    assert await validator.verdict(author.message(epoch=5, text="two")) is Verdict.IGNORE
    peer = peer_id(author.issuer)
    assert validator.ledger.of(peer).state is PeerState.BANNED
    assert validator.ledger.banned_by_evidence(peer) is not None
    assert validator.book.waiting == 0
    assert validator.ledger.of(SENDER).evidence.bad == 0


async def test_a_banned_issuer_is_ignored_through_whomever_it_comes(validator, author):
    for _ in range(4):
        validator.ledger.report(peer_id(author.issuer), Fact.FALSE_CLAIM)
    assert await validator.verdict(author.message(epoch=5)) is Verdict.IGNORE
    assert validator.refused() == {Ignored.ISSUER_BANNED: 1}


async def test_a_replay_is_told_as_one_also_where_its_issuer_was_banned_since(validator, author):
    """Steps 5 and 6 of the spec, in its order."""
    await validator.verdict(author.message(epoch=5))
    for _ in range(4):
        validator.ledger.report(peer_id(author.issuer), Fact.FALSE_CLAIM)
    await validator.verdict(author.message(epoch=5))
    assert validator.refused() == {Ignored.DUPLICATE: 1}


@pytest.mark.parametrize(
    ("place", "fact"), [(-70, Fact.FORGED_SIGNATURE), (0, Fact.INVALID_MESSAGE)], ids=["signature", "frame"]
)
async def test_what_a_sender_is_charged_with_is_kept_by_its_kind(validator, author, place, fact):
    body = encode_body(author.body())
    message = bytearray(encode_message(author.envelope(author.header([body], epoch=5)), (None,)))
    message[place] ^= 1
    assert await validator.verdict(bytes(message)) is Verdict.REJECT
    assert [(each.fact, each.count) for each in validator.ledger.offences(SENDER)] == [(fact, 1)]


async def test_a_banned_sender_is_not_read_at_all(validator, author):
    for _ in range(4):
        validator.ledger.report(SENDER, Fact.FALSE_CLAIM)
    assert await validator.verdict(b"\xff") is Verdict.IGNORE
    assert validator.refused() == {Ignored.SENDER_BANNED: 1}


async def test_a_flood_of_forgeries_is_cut_off(validator):
    for _ in range(100):
        await validator.verdict(b"\xff" * 10)
    assert validator.refused()[Layer.FRAME] <= 30
    assert not validator.ledger.admits(SENDER)


async def test_a_sender_over_its_rate_is_ignored_until_time_passes(validator, author):
    for _ in range(int(constants.MESSAGE_BURST)):
        await validator.verdict(author.message(epoch=5))
    assert await validator.verdict(author.message(epoch=5, counter=1)) is Verdict.BUSY
    assert validator.refused()[Ignored.SENDER_BUSY] == 1
    validator.clock.time += 1
    assert await validator.verdict(author.message(epoch=5, counter=1)) is Verdict.ACCEPT


async def test_skipping_counters_spends_a_newcomers_quota(validator, author, manifest):
    beyond = int(manifest.max_rounds * constants.UNTRUSTED_COUNTERS)
    assert await validator.verdict(author.message(epoch=5, counter=beyond)) is Verdict.IGNORE
    assert validator.refused() == {Ignored.OVER_QUOTA: 1}
    assert await validator.verdict(author.message(epoch=5, counter=beyond - 1)) is Verdict.ACCEPT


def authors(author, count):
    """Fresh keys of the tests' swarm."""
    keys = (Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big")) for number in range(1, count + 1))
    return [replace(author, key=key) for key in keys]


LINKS = [peer_id(bytes([number]) * 32) for number in range(100, 180)]


async def test_keys_that_flood_early_in_an_epoch_keep_out_no_newcomer_who_comes_by_another_link(database, author, rng):
    """What five keys can send before an epoch begins, which all strangers together may not share as one quota."""
    author = replace(author, manifest=replace(author.manifest, max_rounds=2_000))
    validator = ValidatorParts(database, author.manifest, rng)
    flooding, honest = authors(author, 55)[:5], authors(author, 55)[5:]
    for counter in range(600):
        for link, each in zip(LINKS, flooding, strict=False):
            await validator.verdict(each.message(epoch=5, counter=counter), link)
    assert validator.refused() == {Ignored.LINK_BUSY: 5 * (600 - constants.LINK_STRANGERS_BURST)}
    verdicts = [
        await validator.verdict(each.message(epoch=5), link) for each, link in zip(honest, LINKS[5:], strict=False)
    ]
    assert verdicts == [Verdict.ACCEPT] * 50


async def test_a_link_that_floods_with_fresh_keys_uses_up_its_own_rate_alone(database, manifest, rng, author):
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(strangers_burst=3)))
    messages = [each.message(epoch=5) for each in authors(author, 5)]
    verdicts = [await validator.verdict(message, LINKS[0]) for message in messages[:4]]
    assert verdicts == [Verdict.ACCEPT] * 3 + [Verdict.BUSY]
    assert validator.refused() == {Ignored.LINK_BUSY: 1}
    assert await validator.verdict(messages[3], LINKS[1]) is Verdict.ACCEPT
    validator.clock.time += 1 / constants.LINK_STRANGERS_PER_SECOND
    assert await validator.verdict(messages[4], LINKS[0]) is Verdict.ACCEPT


async def test_a_link_over_its_rate_for_strangers_may_bring_what_was_asked_for(database, manifest, rng, author):
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(strangers_burst=0)))
    message = author.message(epoch=5)
    assert await validator.verdict(message) is Verdict.BUSY
    assert await validator.ingest.handle_synchronised(SENDER, message) is Verdict.ACCEPT


async def test_a_connected_stranger_is_heard_through_a_link_that_is_over_its_rate(database, manifest, rng, author):
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(strangers_burst=0)))
    validator.ingest.begin_link(peer_id(author.issuer))
    assert await validator.verdict(author.message(epoch=5)) is Verdict.ACCEPT


async def test_a_stranger_that_has_disconnected_is_charged_to_the_link_that_brings_it(database, manifest, rng, author):
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(strangers_burst=0)))
    validator.ingest.begin_link(peer_id(author.issuer))
    validator.ingest.end_link(peer_id(author.issuer))
    assert await validator.verdict(author.message(epoch=5)) is Verdict.BUSY


async def test_a_flood_that_a_neighbour_forwards_takes_no_turn_of_another_connected_peer(validator, author):
    """The neighbour brings the rollouts of 20 keys and those of an honest peer; half of the turns are the peer's."""
    honest, *flooding = authors(author, 21)
    validator.ingest.begin_link(SENDER)
    validator.ingest.begin_link(peer_id(honest.issuer))
    for counter in range(8):
        for each in flooding:
            await validator.verdict(each.message(epoch=5, counter=counter))
            validator.clock.time += 1 / constants.LINK_STRANGERS_PER_SECOND
        await validator.verdict(honest.message(epoch=5, counter=counter))
    drawn = [validator.book.draw(Tier.STRANGER).rollout.opened.issuer for _ in range(32)]
    assert drawn.count(honest.issuer) == 8


async def test_a_friend_is_heard_through_a_link_that_is_over_its_rate_for_strangers(database, manifest, rng, author):
    friend = (peer_id(author.issuer),)
    validator = ValidatorParts(database, manifest, rng, trusted=friend, parts=Parts(limits=Limits(strangers_burst=0)))
    assert await validator.verdict(author.message(epoch=5)) is Verdict.ACCEPT


def begin(validator, links):
    for link in links:
        validator.ingest.begin_link(link)


async def test_what_comes_of_peers_that_never_announced_a_topic_is_on_one_link(validator, author, database):
    """The node is not told when such a peer leaves, so a link of its own would never end."""
    for each, sender in zip(authors(author, 3), LINKS, strict=False):
        await validator.verdict(each.message(epoch=5), sender)
    assert database.rows("SELECT DISTINCT link FROM arrived") == [(ENDED_LINK,)]


async def test_bodies_that_come_apart_and_exceed_a_message_together_do_not_wait_together(validator, author):
    """Each message is short enough. All of them together were a row that the node could not read back."""
    most = validator.manifest.max_message_bytes
    bodies = [bytes([number]) * (3 * most // 5) for number in range(2)]
    envelope = author.envelope(author.header(bodies, epoch=5))
    for part in ((bodies[0], None), (None, bodies[1])):
        await validator.verdict(encode_message(envelope, part))
    waits = validator.book.draw(Tier.STRANGER).rollout
    assert waits.bodies == (None, bodies[1])
    held = validator.message_store.listing(5, 1, b"", 1)[0]
    assert len(validator.message_store.message(held)) <= most


async def test_a_link_that_brings_bare_envelopes_first_does_not_get_the_rollouts(database, manifest, rng, author):
    """Else their bodies, which others bring, would wait on a crowded link."""
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(pending_places=8)))
    begin(validator, LINKS[:2])
    body = encode_body(author.body())
    envelope = author.envelope(author.header([body], epoch=5))
    await validator.verdict(encode_message(envelope, (None,)), LINKS[0])
    await validator.verdict(encode_message(envelope, (body,)), LINKS[1])
    for each in authors(author, 40):
        await validator.verdict(each.message(epoch=5), LINKS[0])
    drawn = [validator.book.draw(Tier.STRANGER).rollout for _ in range(8)]
    assert author.issuer in {each.opened.issuer for each in drawn}


async def test_keys_without_number_evict_no_rollout_of_a_friend(database, manifest, rng, author):
    """4,096 keys, a bare envelope each, over as many links as there are friends, and one."""
    *friends, stranger = authors(author, 13)
    trusted = tuple(peer_id(each.issuer) for each in friends)
    validator = ValidatorParts(
        database, manifest, rng, trusted=trusted, parts=Parts(limits=Limits(strangers_burst=10**6))
    )
    for each, link in zip(friends, LINKS, strict=False):
        assert await validator.verdict(each.message(epoch=5), link) is Verdict.ACCEPT
    one = open_envelope(
        parse_envelope(stranger.envelope(stranger.header([b""], epoch=5)), network_id=manifest.network_id)
    )
    header = decode_header(one.payload, manifest)
    for number in range(2 * constants.PENDING_PLACES):
        fresh = replace(one, issuer=number.to_bytes(32, "big"), envelope_id=number.to_bytes(32, "big"))
        crowd = match_bodies(fresh, header, (None,))
        validator.book.arrive(crowd, link=LINKS[number % 13], tier=validator.ledger.tier(str(number)))
    assert validator.book.waiting == constants.PENDING_PLACES + len(friends)
    drawn = [validator.book.draw(Tier.FRIEND).rollout for _ in friends]
    assert {each.opened.issuer for each in drawn} == {each.issuer for each in friends}


def large(author, places):
    """A message that takes so many places in the pending queue."""
    text = "x" * author.manifest.max_completion_bytes
    bodies = []
    while sum(map(len, bodies)) <= (places - 1) * PLACE_BYTES:
        bodies.append(encode_body(author.body(f"{len(bodies)}{text}"[: len(text)])))
    return encode_message(author.envelope(author.header(bodies, epoch=5)), tuple(bodies))


async def test_the_places_of_a_tier_bound_its_bytes(database, manifest, rng, author):
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(pending_places=8)))
    for number, each in enumerate(authors(author, 12)):
        assert await validator.verdict(large(each, 3), LINKS[number]) is Verdict.ACCEPT
    [(held,)] = database.rows("SELECT sum(length(message)) FROM arrived")
    assert 2 * 2 * PLACE_BYTES < held <= 8 * PLACE_BYTES


async def test_a_large_rollout_takes_the_places_of_the_fullest_link(database, manifest, rng, author):
    validator = ValidatorParts(database, manifest, rng, parts=Parts(limits=Limits(pending_places=8)))
    begin(validator, LINKS[:3])
    *crowd, few, big = authors(author, 8)
    for each in crowd:
        await validator.verdict(each.message(epoch=5), LINKS[0])
    await validator.verdict(few.message(epoch=5), LINKS[1])
    assert await validator.verdict(large(big, 3), LINKS[2]) is Verdict.ACCEPT
    left = [validator.book.draw(Tier.STRANGER).rollout.opened.issuer for _ in range(validator.book.waiting)]
    assert {few.issuer, big.issuer} < set(left)
    assert len(left) == len(crowd) - 2 + 2


async def test_an_unknown_envelope_of_the_own_key_stops_the_node(author, database, manifest, rng):
    validator = ValidatorParts(database, manifest, rng, author.key)
    assert await validator.verdict(author.message(epoch=5)) is Verdict.IGNORE
    assert [type(error) for error in validator.fatal] == [KeyInUseElsewhere]


async def test_an_own_envelope_replayed_long_after_stops_nothing(author, database, manifest, rng):
    validator = ValidatorParts(database, manifest, rng, author.key)
    validator.clock.time += 100 * manifest.epoch_seconds
    assert await validator.verdict(author.message(epoch=5)) is Verdict.IGNORE
    assert validator.fatal == []
    assert validator.refused() == {Ignored.OUTSIDE_WINDOW: 1}


async def test_nobody_can_stop_a_node_by_forging_its_key(author, database, manifest, rng):
    validator = ValidatorParts(database, manifest, rng, author.key)
    message = author.message(epoch=5)
    forged = replace(author, manifest=replace(manifest, name="elsewhere")).message(epoch=5)
    assert forged != message
    assert await validator.verdict(forged) is Verdict.REJECT
    assert validator.fatal == []


async def test_one_peer_cannot_fill_the_inbox(validator, author):
    for counter in range(2 * constants.PENDING_PER_PEER):
        validator.clock.time += 0.02
        await validator.verdict(author.message(epoch=5, counter=counter))
    assert validator.book.waiting == constants.PENDING_PER_PEER


async def test_a_database_that_cannot_be_written_stops_the_node_and_accepts_nothing(validator, author, database):
    database.execute("DROP TABLE seen")
    assert await validator.verdict(author.message(epoch=5)) is Verdict.IGNORE
    assert len(validator.fatal) == 1


async def test_a_link_that_ends_on_a_database_that_cannot_be_written_stops_the_node_and_raises_nothing(
    validator, author, database
):
    begin(validator, [SENDER])
    await validator.verdict(author.message(epoch=5))
    database.execute("DROP TABLE arrived")
    validator.ingest.end_link("another link")
    assert validator.fatal == []
    validator.ingest.end_link(SENDER)
    assert len(validator.fatal) == 1
