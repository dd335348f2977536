"""Every entry of the catalogue: with the defence an input is refused, and without it the same input does its harm.

An attack that harms nobody proves nothing, and an arm whose seam came loose makes every attack harmless. So each
defence is left out here, and what it keeps away gets through. The whole scenarios are played by `matrix`.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial

import cbor2
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from context import KEY, context_of
from fetching import turn_of
from sapo_adversary.ablations.defences import DEFENCES, Undefended, ablated
from sapo_adversary.ablations.replacements import BlamesCarriers
from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.gossip.peer import LinkLost, running
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.attacks.reward import answered, copied_premises
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.learning import one_core
from sapo_adversary.simulator.simulation import NodeSpec, Simulation
from sapo_node.app.state import SCHEMA
from sapo_node.gossip.actions import Wake
from sapo_node.gossip.defences import GOSSIP_STREAMS
from sapo_node.gossip.rpc import IHave
from sapo_node.gossip.score import Offence
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.advantage import external_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import FILTERS, LearnerOptions, Sampled, TrainRequest, reason_of
from sapo_node.groups.record import VerifiedGroup
from sapo_node.ingest.fetch import HOP_SOURCES
from sapo_node.ingest.sync import BURST_BYTES, LEAST_BYTES
from sapo_node.ingest.validator import Ignored, ReplayWindow
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.net.address_book import BUCKET
from sapo_node.net.dialer import Dialer
from sapo_node.net.host import CONNECTIONS
from sapo_node.net.interface import Channel, PeerInfo
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NETWORK_DEFENDED, RESERVED_OUTBOUND, NetworkSettings
from sapo_node.sampling.alarm import Exposure
from sapo_node.sampling.filters import Filters, Offered
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.sampling.weights import PassRates, loss_weight
from sapo_node.storage.database import Database
from sapo_node.tasks import build_task
from sapo_node.training.batch_log import from_external
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.verifier import WAIT_SECONDS
from sapo_protocol import (
    Equivocation,
    GetRequest,
    decode_message,
    encode_delivery,
    encode_evidence,
    encode_message,
    encode_request,
    load_manifest,
    open_message,
    parse_envelope,
    peer_id,
    rollouts_topic,
    seal,
)
from validator_parts import SENDER, ValidatorParts
from virtual_gossip import TOPIC as BOTH_FOLLOW
from virtual_gossip import Attacker as Mallory
from virtual_gossip import World

MANIFEST = replace(load_manifest("starter"), genesis=0, max_rounds=600)
SCORER = SharedScorer()
EPOCH = 5
"""In which the clock of a `Filter` stands."""


def private_key(number):
    return Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big"))


def key(number):
    private = private_key(number)
    return Key(private.public_key().public_bytes_raw(), private.sign)


AUTHOR = key(1)


def kit(*keys):
    return Kit(MANIFEST, keys or [AUTHOR], SCORER.solve, random.Random(3))


def message(author=AUTHOR, counter=0, *, epoch=EPOCH, groups=1):
    means = kit(author)
    return means.message(author, epoch, counter, means.flawless(author, epoch, counter, groups))


def validator(undefended, **settings):
    return ValidatorParts(Database(None, SCHEMA), MANIFEST, random.Random(1), parts=undefended.parts, **settings)


def with_limits(undefended, **limits):
    parts = undefended.parts
    return replace(undefended, parts=replace(parts, limits=replace(parts.limits, **limits)))


def ledger(undefended, **settings):
    return undefended.parts.ledger(Database(None, SCHEMA), limits=undefended.parts.limits, **settings)


def verifier_of(undefended, node):
    parts = undefended.parts
    return parts.verifier(context_of(MANIFEST, random.Random(1)), SCORER, node.ledger, wire=parts.wire)


def verified(found):
    """The verified groups among the findings about a rollout."""
    return [finding for finding in found.values() if isinstance(finding, VerifiedGroup)]


async def takes(undefended, data, author=AUTHOR):
    """Whether any group of a message comes to the book."""
    node = validator(undefended, trusted=(author.peer,))
    await node.verdict(data)
    turn = node.book.draw(node.ledger.tier(author.peer))
    verifier = verifier_of(undefended, node)
    return turn is not None and bool(verified(await verifier.verify(verifier.spare(turn))))


# Training: which filters the nodes of a simulation have.


@dataclass(frozen=True)
class Own:
    """What of an own group is looked at."""

    dataset: str
    completions: tuple[Sampled, ...]
    levels: Levels


def own(*texts, right=True):
    return Own("products", tuple(Sampled(each, "stop") for each in texts), Levels((int(right),) * len(texts)))


def offered(*texts, counter=0, right=4):
    levels = Levels(tuple(int(number < right) for number in range(8)))
    said = tuple(Sampled(texts[number % len(texts)], "stop") for number in range(8))
    return VerifiedGroup("a", 10, counter, 0, "products", "?", said, levels)


def filters_without(filter_name, names):
    """The filters, of this one alone, that a simulated node has without these defences."""
    spec = NodeSpec(filters=(filter_name,))
    return Simulation("filters", (spec,), without=names).filters_of(spec)


def teaches(filters, text):
    """Whether filters leave anything of a group whose correct completions are this text."""
    kept, _ = filters.offer([offered(text)])
    return bool(kept)


def junk_counts_more(names):
    pass_rates = PassRates()
    pass_rates.observe([own(*"abcdefgh", right=False)])
    through = Filters(filters_without("baseline", names), pass_rates)
    few, half = offered("x", right=1), offered("x", right=4)
    kept, _ = through.offer([few, half])
    first, second = (each.advantages(external_advantages(each.group.levels))[0] for each in kept)
    return first > second


def phrase_teaches(names):
    rng = random.Random(1)

    def says(phrase):
        return f"{phrase} {' '.join(rng.choices(['so', 'thus', 'then', 'well', 'now'], k=3))} {rng.randrange(99)}"

    through = Filters(filters_without("n-gram", names), PassRates())
    for number in range(20):
        through.observe([own(*(says("hail the swarm" if n == 0 and number < 10 else "") for n in range(8)))])
    through.offer([offered(*(says("hail the swarm") for _ in range(8)), counter=n) for n in range(12)])
    return not through.mask(offered("hail the swarm 3"))


def long_text_teaches(names):
    through = Filters(filters_without("length", names), PassRates())
    through.observe([own(*("x" * length for length in range(10, 30)))])
    return teaches(through, "x" * 40)


def false_step_teaches(names):
    return teaches(Filters(filters_without("equation", names), PassRates()), "2+2=5 <answer>4</answer>")


async def second_answer_teaches(undefended):
    filters = undefended.parts.filters((), PassRates())
    return teaches(filters, "Probably <answer>5</answer> 2+2=4. So <answer>4</answer>")


@cache
def tokens_taught(filters):
    """The tokens of answers without their work that a learner with these filters trains on."""
    options = LearnerOptions(checkpoints="", device="cpu", threads=1, filters=filters)
    with one_core():
        return Trainer(load(options), options).train(TrainRequest(1, hasty_groups())).external_tokens


@cache
def hasty_groups():
    """Of several rounds: in some tasks the answer follows from the last step alone."""
    attack = ATTACKS["poison-hasty"](kit())
    verifier = verifier_of(Undefended(), validator(Undefended()))
    packets = [packet for _ in range(4) for packet in attack.act(AUTHOR, EPOCH)]
    rollouts = [open_message(packet.data, MANIFEST) for packet in packets]
    groups = [group for each in rollouts for group in verified(trio.run(verifier.verify, turn_of(verifier, each)))]
    return tuple(from_external(WeightedGroup(each, 1.0, external_advantages(each.levels))) for each in groups)


def guess_teaches(filter_name, names):
    assert filter_name in ("min-token-prob", "answer-likelihood")
    return tokens_taught(filters_without(filter_name, names)) == tokens_taught(())


# The wire, ingest, trust and verification.


async def lie_is_taken(undefended):
    means = kit()
    return await takes(undefended, means.message(AUTHOR, EPOCH, 0, [means.lie(AUTHOR, EPOCH, 0, 0)]))


async def forgery_is_taken(undefended):
    means = kit()
    groups = means.flawless(AUTHOR, EPOCH, 0, 1)
    return await takes(
        undefended, means.signed(Key(AUTHOR.issuer, lambda _: bytes(64)), means.payload(EPOCH, 0, groups), groups)
    )


async def nobodys_signature_is_taken(undefended):
    attack, node = ATTACKS["small-order"](kit()), validator(undefended)
    packets = [packet for _ in range(14) for packet in attack.act(AUTHOR, EPOCH)]
    return Verdict.ACCEPT in [await node.verdict(packet.data) for packet in packets]


async def another_swarms_round_is_taken(undefended):
    means = kit()
    groups = means.flawless(AUTHOR, EPOCH, 0, 1)
    payload = means.payload(EPOCH, 0, groups)
    envelope = seal(payload, issuer=AUTHOR.issuer, sign=AUTHOR.sign, network_id=bytes(32))
    return await takes(undefended, encode_message(envelope, tuple(group.body for group in groups)))


async def loose_encoding_is_taken(undefended):
    envelope, bodies = decode_message(message(), MANIFEST)
    return await takes(undefended, b"\x9f" + cbor2.dumps(envelope) + cbor2.dumps(list(bodies)) + b"\xff")


async def trick_is_paid_for(undefended):
    [spec] = [each for each in load_manifest("paper-nine").tasks if each.dataset == "propositional_logic"]
    trick = answered(copied_premises(build_task(spec.dataset, spec.config, 7).prompt))
    [scored] = await undefended.scorer().score([ScoreRequest(spec.dataset, spec.config, 7, (trick,))])
    return any(scored.levels)


async def flat_group_is_taken(undefended):
    means = kit()
    task = means.task(AUTHOR, EPOCH, 0, 0)
    flat = means.group(task, means.answers(task, [True] * 8), [True] * 8)
    return await takes(undefended, means.message(AUTHOR, EPOCH, 0, [flat]))


async def parts_are_trained_on(undefended):
    [spec] = [each for each in MANIFEST.tasks if each.dataset == "spell_backward"]
    graded = replace(MANIFEST, tasks=(replace(spec, levels=4),))
    attack = ATTACKS["poison-parts"](Kit(graded, [AUTHOR], SCORER.solve, random.Random(3)))
    [packet] = attack.act(AUTHOR, EPOCH)
    parts, accounts = undefended.parts, ledger(undefended)
    verifier = parts.verifier(context_of(graded, random.Random(1)), SCORER, accounts, wire=parts.wire)
    groups = verified(await verifier.verify(turn_of(verifier, open_message(packet.data, graded))))
    sampler = parts.sampler(accounts, random.Random(1), PassRates(), "trust")
    draw = sampler.draw([Offered(each) for each in groups], 4, epoch=EPOCH, strangers=1.0)
    return any(advantage > 0 for each in draw.groups for advantage in each.advantages)


async def round_is_taken_twice(undefended):
    node = validator(undefended)
    return [await node.verdict(message()) for _ in range(2)] == [Verdict.ACCEPT] * 2


async def second_content_is_taken(undefended):
    node = validator(undefended)
    return [await node.verdict(message(groups=n)) for n in (1, 2)] == [Verdict.ACCEPT] * 2


async def old_round_is_taken(undefended):
    return await validator(undefended).verdict(message(epoch=EPOCH - 4)) is Verdict.ACCEPT


def accusation():
    rounds = (decode_message(message(counter=counter), MANIFEST)[0] for counter in (0, 1))
    return encode_evidence(*(parse_envelope(each, network_id=MANIFEST.network_id) for each in rounds))


async def innocent_is_banned(undefended):
    node = validator(undefended)
    for number, own_key in enumerate((KEY, private_key(1))):  # of the accused itself nothing is believed
        node = validator(undefended, key=own_key)
        await node.ingest.handle_evidence(SENDER, accusation())
        if number == 0:
            banned = node.ledger.state(AUTHOR.peer) is PeerState.BANNED
        else:
            assert node.fatal == []
            assert node.ledger.state(AUTHOR.peer) is not PeerState.BANNED
    return banned


async def strangers_are_convicted_without_end(undefended):
    equivocation_handler = EquivocationHandler(ledger(undefended), limits=undefended.parts.limits)
    for number in range(constants.UNKNOWN_BANS):
        equivocation_handler.ban(Equivocation(key(number + 2).issuer, EPOCH, 0, b"proof"), publish=False)
    return equivocation_handler.hears(AUTHOR.issuer)


def liar(undefended):
    book = ledger(undefended)
    for _ in range(5):
        book.report("liar", Fact.FALSE_CLAIM)
    return book


async def banned_peer_comes_back(undefended):
    book = liar(undefended)
    assert not book.admits("liar")
    return book.admits("liar")


async def lies_cost_nothing(undefended):
    return liar(undefended).admits("liar")


async def carrier_is_blamed(undefended):
    means, node = kit(), validator(undefended)
    verifier = verifier_of(undefended, node)
    channel = Channel(partial(node.ingest.handle, shard=0), MANIFEST.max_message_bytes)
    if isinstance(verifier, BlamesCarriers):
        [channel] = verifier.noting({"rollouts": channel}).values()
    await channel.handle(SENDER, means.message(AUTHOR, EPOCH, 0, [means.lie(AUTHOR, EPOCH, 0, 0)]))
    await verifier.verify(node.book.draw(Tier.STRANGER))
    return bool(node.ledger.offences(SENDER)) and not node.ledger.offences(AUTHOR.peer)


async def crowded_link_has_most_turns(undefended):
    """One link brings 15 keys and another brings one; each is drawn, and comes again."""
    node = validator(undefended)
    links = {key(number).peer: "alone" if number == 2 else SENDER for number in range(2, 18)}
    for number in range(2, 18):
        await node.verdict(message(key(number)), links[key(number).peer])
    turns = Counter()
    for _ in range(100):
        drawn = node.book.draw(Tier.STRANGER).rollout
        link = links[peer_id(drawn.opened.issuer)]
        node.book.arrive(drawn, link=link, tier=Tier.STRANGER)
        turns[link] += 1
    return turns["alone"] < 25


async def large_rollout_has_one_turn(undefended):
    node = validator(undefended)
    await node.verdict(message(AUTHOR, groups=16))
    return all(node.book.draw(Tier.STRANGER).rollout.bodies)


async def strangers_evict_a_friend(undefended):
    small = with_limits(undefended, pending_places=4)
    node = validator(small, trusted=(AUTHOR.peer,))
    for number in range(1, 18):
        await node.verdict(message(key(number)), f"link {number}")
    drawn = [node.book.draw(tier) for tier in (Tier.FRIEND, *[Tier.STRANGER] * 4)]
    return AUTHOR.issuer not in {each.rollout.opened.issuer for each in drawn if each}


async def link_brings_strangers_without_end(undefended):
    burst = undefended.parts.limits.strangers_burst
    node = validator(with_limits(undefended, strangers_burst=burst / 128))
    verdicts = [await node.verdict(message(key(number))) for number in range(2, 8)]
    return verdicts == [Verdict.ACCEPT] * 6


async def one_peer_fills_the_inbox(undefended):
    node = validator(undefended)
    for counter in range(constants.PENDING_PER_PEER + 5):
        await node.verdict(message(counter=counter))
    return node.book.waiting > constants.PENDING_PER_PEER


async def untrusted_advances_as_it_likes(undefended):
    beyond = int(MANIFEST.max_rounds * constants.UNTRUSTED_COUNTERS)
    return await validator(undefended).verdict(message(counter=beyond)) is Verdict.ACCEPT


async def stranger_is_promoted_within_an_epoch(undefended):
    book = ledger(undefended)
    for _ in range(constants.HEALTHY_AFTER):
        book.report("stranger", Fact.VERIFIED_GROUP)
    book.at(1)
    return book.state("stranger") is PeerState.HEALTHY


async def sender_is_heard_without_end(undefended):
    node = validator(undefended)
    data = message()
    for _ in range(int(constants.MESSAGE_BURST) + 1):
        await node.verdict(data)
    return Ignored.SENDER_BUSY not in node.refused()


# Sampling.


def group(peer, counter, *, length=50):
    completions = tuple(Sampled("x" * length, "stop") for _ in range(8))
    return VerifiedGroup(
        peer, 10, counter, 0, "products", "?", completions, Levels(tuple(int(n < 4) for n in range(8)))
    )


def drawn(undefended, book, groups, count):
    sampler = undefended.parts.sampler(book, random.Random(0), PassRates(), "trust", limits=undefended.parts.limits)
    strangers = Exposure(limits=undefended.parts.limits).share
    return sampler.draw([Offered(each) for each in groups], count, epoch=10, strangers=strangers).groups


async def light_groups_set_the_measure(undefended):
    book = ledger(undefended, trusted=["friend"])
    light = [group("stranger", counter, length=1) for counter in range(20)]
    found = drawn(undefended, book, [group("friend", 0), *light], 21)
    return [each.weight for each in found if each.group.peer == "friend"] != [1.0]


async def untrusted_peers_take_the_round(undefended):
    groups = [group(f"stranger {number}", 0) for number in range(8)]
    return len(drawn(undefended, ledger(undefended), groups, 4)) == 4


async def group_outweighs_the_round(undefended):
    book = ledger(undefended, trusted=["a", "b"])
    groups = [group("a", 0, length=500), *(group("b", n) for n in range(8))]
    unit = loss_weight(external_advantages(groups[1].levels), groups[1].lengths)
    found = drawn(undefended, book, groups, 8)
    heaviest = max(each.weight * loss_weight(each.advantages, each.group.lengths) for each in found)
    return heaviest > 1.01 * constants.LOSS_WEIGHT_LIMIT * unit


# The network: real nodes on loopback, on real time.

NETWORK = "ab" * 32
TOPIC = f"/sapo/2/{NETWORK}/rollouts/0"
NOWHERE = "/ip4/127.0.0.9/tcp/4001"


async def accept(_sender, _data):
    return Verdict.ACCEPT


async def ignore(_sender, _rpc): ...


def network(number, defences=NETWORK_DEFENDED, **settings):
    issuer = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32).public_key().public_bytes_raw()
    given = NetworkSettings(
        bytes([number]) * 32,
        NETWORK,
        listen=("/ip4/127.0.0.1/tcp/0",),
        discover=False,
        defences=defences,
        **settings,
    )
    return Libp2pNetwork(
        given, peer_id(issuer), {TOPIC: Channel(accept, 1000)}, admit=lambda _: True, notify=lambda _: None
    )


async def wait_until(condition):
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await trio.sleep(0.02)


async def gossiping(undefended, harmed):
    """What `harmed(world, node, the peer that it dialled)` says of a node without a defence, on virtual time."""
    world = World()
    friend, node = world.node(2), world.node(1, defences=undefended.network)
    world.dial(node, friend)
    world.run(3)
    return harmed(world, node, friend)


async def attacked(undefended, harmed):
    """What `harmed(node, link of an attacker)` says of a node without a defence."""
    async with trio.open_nursery() as nursery:
        defences = undefended.network
        node = network(1, replace(defences, frame_seconds=defences.frame_seconds / 40))  # not to wait twenty seconds
        await nursery.start(node.run)
        async with running(bytes([7]) * 32, ("127.0.0.7", 0), ignore) as mallory:
            link = await mallory.dial(node.addresses[0])
            await link.subscribe(TOPIC)
            found = await harmed(node, link)
        nursery.cancel_scope.cancel()
    return found


def topic_of_both(node):
    return node.machine.topics[BOTH_FOLLOW]


def is_silenced(world, node, friend):
    topic_of_both(node).mesh.clear()
    return Wake(friend.name) not in node.machine.publish(BOTH_FOLLOW, b"m", world.now)


def is_told_nothing(world, node, friend):
    topic_of_both(node).pruned(friend.name, 60, world.now)
    node.machine.publish(BOTH_FOLLOW, b"m", world.now)
    return Wake(friend.name) not in node.machine.heartbeat(world.now)


def has_a_mesh_of_strangers(world, node, friend):
    for number in range(10, 15):
        world.dial(world.node(number), node)
    world.run(3)
    topic_of_both(node).mesh.discard(friend.name)
    node.machine.heartbeat(world.now)
    return friend.name not in node.mesh()


def keeps_who_offends(world, node, friend):
    node.machine.scores.offended(world.now, friend.name, Offence.EXCESS, 1000)
    node.machine.heartbeat(world.now)
    return friend.name in node.mesh()


def bears_any_flood(world, node, _friend):
    mallory = Mallory(world)
    world.dial(mallory, node)
    ids = [number.to_bytes(32, "big") for number in range(500)]
    for _ in range(50):
        mallory.control(node, ihave=[IHave(topic=BOTH_FOLLOW, ids=ids)])
    world.run(1)
    return mallory.name in node.machine.peers


def streams_have_no_end(world, node, _friend):
    mallory = Mallory(world)
    world.dial(mallory, node)
    return all(mallory.open(node) for _ in range(2 * GOSSIP_STREAMS))


async def frame_never_ends(node, link):
    await link.write(b"\x80\x80\x20")
    await wait_until(node.peers)
    await trio.sleep(1.5)
    return link.open


async def record_is_believed(node, link):
    await link.say_where([NOWHERE])
    await wait_until(node.peers)
    await trio.sleep(0.3)  # until the record has been read, too
    return node.peers()[0].addresses == (NOWHERE,)


async def liar_fills_the_book(undefended):
    async def never(_peer, _address): ...

    book = Dialer(
        never,
        frozenset,
        below_target=lambda: False,
        admit=lambda _: True,
        notify=lambda _: None,
        defences=undefended.network,
    )
    for number in range(BUCKET):
        book.want(f"peer {number}", ["a"], by="liar")
    return len(book.wanted()) == BUCKET


async def old_friends_are_forgotten(undefended):
    anchor = f"/ip4/127.0.0.1/tcp/4001/p2p/{AUTHOR.peer}"
    return network(1, undefended.network, anchors=(anchor,))._dialer.wanted() == ()


async def nothing_is_reserved(undefended):
    return network(1, undefended.network)._new_session().inbound._room() == CONNECTIONS


async def newcomer_is_refused(undefended):
    """One slot is held by a peer that does nothing, and another peer comes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sapo_node.net.host.CONNECTIONS", RESERVED_OUTBOUND + 1)
        node = network(1, undefended.network)
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            async with (
                running(bytes([7]) * 32, ("127.0.0.7", 0), ignore) as first,
                running(bytes([8]) * 32, ("127.0.0.8", 0), ignore) as second,
            ):
                await first.dial(node.addresses[0])
                try:
                    await second.dial(node.addresses[0])
                except LinkLost:
                    refused = True
                else:
                    refused = False
            nursery.cancel_scope.cancel()
    return refused


# Bodies that are fetched.

OTHER = key(90).peer


class Peers:
    """Two connected peers: the one that brought the envelopes never answers, and the other has the bodies."""

    def __init__(self, whole):
        self.whole = whole
        self.asked = 0

    def peers(self):
        follows = frozenset({rollouts_topic(MANIFEST, 0)})
        return [PeerInfo(each, (), outbound=True, connected_at=0.0, follows=follows) for each in (SENDER, OTHER)]

    async def ask(self, peer, _data):
        self.asked += 1
        await trio.sleep(60 if peer == SENDER else 0.1)
        return encode_delivery([self.whole])


async def fetching(undefended, harmed):
    node, whole = validator(undefended), message()
    bare = replace(open_message(whole, MANIFEST), bodies=(None,))
    await node.verdict(encode_message(bare.opened.envelope, bare.bodies), SENDER)
    peers = Peers(whole)
    window = ReplayWindow(node.database, MANIFEST)
    parts = {"message_store": node.message_store, "ledger": node.ledger}
    fetcher = undefended.parts.fetcher(node.swarm, window=window, **parts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run, peers)
        await trio.testing.wait_all_tasks_blocked()
        found = await harmed(undefended, node, fetcher, peers)
        nursery.cancel_scope.cancel()
    return found


async def silent_peer_keeps_a_body(_undefended, node, fetcher, _peers):
    turns, ended = [], trio.Event()
    fetcher.begin(node.book.draw(Tier.STRANGER), lambda turn: (turns.append(turn), ended.set()))
    await ended.wait()
    return bool(turns[0].missing)


async def requests_multiply(_undefended, node, fetcher, peers):
    [wanted] = node.message_store.listing(EPOCH, 1, b"", 1)
    async with trio.open_nursery() as asking:
        for number in range(8):
            asking.start_soon(fetcher.pass_on, key(number + 91).peer, replace(wanted, bodies=1), 1)
    return peers.asked > HOP_SOURCES


async def answers_have_no_end(undefended, node, fetcher, _peers):
    parts = {"message_store": node.message_store, "ledger": node.ledger, "fetcher": fetcher}
    responder = undefended.parts.responder(node.swarm, peers=list, **parts)
    wanted = encode_request(GetRequest(tuple(node.message_store.listing(EPOCH, 1, b"", 1))))
    most = int(BURST_BYTES / LEAST_BYTES)
    answers = [await responder.answer(SENDER, wanted) for _ in range(most + 1)]
    return None not in answers


async def withheld_body_stops_the_round(undefended, node, fetcher, peers):
    peers.peers = lambda: Peers.peers(peers)[:1]
    verifier = verifier_of(undefended, node)
    parts = {"book": node.book, "verifier": verifier, "ledger": node.ledger, "fetcher": fetcher}
    begun = trio.current_time()
    await undefended.parts.scheduler(**parts).verify_pending(4)
    return trio.current_time() - begun > WAIT_SECONDS


FETCH_HARMS = {
    "several sources": silent_peer_keeps_a_body,
    "one request a body": requests_multiply,
    "answer budget": answers_have_no_end,
    "turns beside withheld bodies": withheld_body_stops_the_round,
}

FILTER_HARMS = {
    "baseline": junk_counts_more,
    "n-gram": phrase_teaches,
    "length": long_text_teaches,
    "equation": false_step_teaches,
    "min-token-prob": partial(guess_teaches, "min-token-prob"),
    "answer-likelihood": partial(guess_teaches, "answer-likelihood"),
}

HARMS = {
    "re-verification": lie_is_taken,
    "strict signatures": nobodys_signature_is_taken,
    "signatures": forgery_is_taken,
    "bound signatures": another_swarms_round_is_taken,
    "strict decoding": loose_encoding_is_taken,
    "own scorers": trick_is_paid_for,
    "one-answer filter": second_answer_teaches,
    "measured by the healthy": light_groups_set_the_measure,
    "zero-advantage groups dropped": flat_group_is_taken,
    "external at level L": parts_are_trained_on,
    "replay window": round_is_taken_twice,
    "one content a counter": second_content_is_taken,
    "epoch window": old_round_is_taken,
    "proof of equivocation": innocent_is_banned,
    "evidence budget": strangers_are_convicted_without_end,
    "durable ledger": banned_peer_comes_back,
    "blame to the author": carrier_is_blamed,
    "link lottery": crowded_link_has_most_turns,
    "groups a turn": large_rollout_has_one_turn,
    "tier places": strangers_evict_a_friend,
    "inbox bounds": one_peer_fills_the_inbox,
    "untrusted class": untrusted_peers_take_the_round,
    "envelope quota": untrusted_advances_as_it_likes,
    "link rate": link_brings_strangers_without_end,
    "promotion limits": stranger_is_promoted_within_an_epoch,
    "flood publishing": partial(gossiping, harmed=is_silenced),
    "gossip repair": partial(gossiping, harmed=is_told_nothing),
    "dialled mesh peers": partial(gossiping, harmed=has_a_mesh_of_strangers),
    "frame deadline": partial(attacked, harmed=frame_never_ends),
    "stream caps": partial(gossiping, harmed=streams_have_no_end),
    "anchors": old_friends_are_forgotten,
    "reserved slots": nothing_is_reserved,
    "inbound eviction": newcomer_is_refused,
    "records where they are": partial(attacked, harmed=record_is_believed),
    "peer exchange limits": liar_fills_the_book,
    "scored mesh": partial(gossiping, harmed=keeps_who_offends),
    "control caps": partial(gossiping, harmed=bears_any_flood),
    "mass limit": group_outweighs_the_round,
    "costly lies": lies_cost_nothing,
    "sender rate": sender_is_heard_without_end,
}


def test_every_defence_of_the_catalogue_is_here():
    filters = {reason_of(filter_name) for filter_name in FILTER_HARMS}
    assert filters | FETCH_HARMS.keys() | HARMS.keys() == DEFENCES.keys()
    assert set(FILTER_HARMS) == set(FILTERS)


@pytest.mark.parametrize("filter_name", FILTER_HARMS)
@pytest.mark.slow
def test_without_a_filter_what_it_keeps_out_teaches(filter_name):
    assert not FILTER_HARMS[filter_name](())
    assert FILTER_HARMS[filter_name]((reason_of(filter_name),))


@pytest.mark.parametrize("name", FETCH_HARMS)
async def test_without_a_defence_of_fetched_bodies_the_harm_is_done(name, autojump_clock):
    assert not await fetching(Undefended(), FETCH_HARMS[name])
    assert await fetching(ablated([name]), FETCH_HARMS[name])


@pytest.mark.parametrize("name", HARMS)
@pytest.mark.slow
async def test_without_a_defence_the_harm_is_done(name):
    assert not await HARMS[name](Undefended())
    assert await HARMS[name](ablated([name]))
