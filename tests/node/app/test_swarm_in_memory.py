"""Whole swarms on virtual time: the node's real ingest, ledger, verification, book, sampler and rounds."""

import hashlib
import json
import random
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from books import offer
from row_parts import sums, task_from
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.attacks.reward import FalseClaim
from sapo_adversary.scoring import SharedScorer
from sapo_node.app.config import Config
from sapo_node.app.exchange import broadcast_evidence, follow_decisions, follow_shards, pull, resend
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA
from sapo_node.app.trained_model import remember
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.book import MAX_GROUPS, MAX_PER_PEER, newest
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import FILTERS, GroupReport, Ready, Refusal, RequestError, Sampled
from sapo_node.groups.record import NotDrawn, State, Unusable, VerifiedGroup
from sapo_node.ingest import shards
from sapo_node.net.in_memory import MemoryHub
from sapo_node.net.interface import Channel, NotRunningError
from sapo_node.net.memory_gossip import LinkQuality
from sapo_node.observability.overview import overview
from sapo_node.processes.clock import TrioClock
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.filters.length import KEPT
from sapo_node.sampling.weights import FORGETTING
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.storage.row_files import open_rows
from sapo_node.training.batch_log import trained_per_peer
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, Decision, decide
from sapo_protocol import epoch_at, rollouts_topic
from swarm_parts import KnowingScorer, Oracle, trained_groups

ROUND_SECONDS = 2.0
SAMPLING_STATE = "SELECT part, step, state FROM sampling_state"
ANSWERS = tuple(Sampled("so <answer>1</answer>", "stop") for _ in range(8))
VERIFIED = VerifiedGroup("a", 10, 0, 0, "products", "2*3?", ANSWERS, Levels((1,) * 4 + (0,) * 4))


def identity(number):
    return Identity(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


class Peer:
    """One honest node and what it plays with."""

    def __init__(
        self,
        number,
        manifest,
        hub,
        *,
        key_is_new=True,
        skill=0.3,
        luck=None,
        scorer=KnowingScorer,
        policy=Oracle,
        database=None,
        **settings,
    ):
        self.database = database or Database(None, SCHEMA)
        self.policy = policy(manifest, random.Random(number), skill=skill, seconds=ROUND_SECONDS)
        self.reports = []
        self.fatal = []
        clock = TrioClock(10 * manifest.epoch_seconds)
        rng = random.Random(number if luck is None else luck)
        self.node = build_node(
            replace(Config(external=4, eval_every=0), **settings),
            SwarmContext(manifest, clock, identity(number), rng),
            counters=Counters(self.database, manifest, now=clock.now(), key_is_new=key_is_new, rng=rng),
            database=self.database,
            scorer=scorer(self.policy.answers),
            policy=self.policy,
            on_fatal=self._stop,
        )
        self.network = hub.join(
            self.node.swarm.identity,
            self.node.channels,
            requests=self.node.requests(lambda: self.network.peers()),  # noqa: PLW0108 - there is none yet
            admit=self.node.admits,
            notify=self.node.notice,
        )

    def _stop(self, error):
        self.fatal.append(error)
        self.node.stopping.set()

    @property
    def id(self):
        return self.node.peer_id

    @property
    def external(self):
        return [report.external for report in self.reports]

    def state(self, other):
        return self.node.ledger.of(other).state


async def play(peers, rounds, *others):
    """Run all peers for so many rounds, beside whatever else."""
    async with trio.open_nursery() as nursery:
        for peer in peers:
            await nursery.start(peer.network.run)
            nursery.start_soon(broadcast_evidence, peer.node, peer.network.publish)
            nursery.start_soon(follow_shards, peer.node, peer.network)
        for other in others:
            nursery.start_soon(other)
        async with trio.open_nursery() as playing:
            for peer in peers:
                await trio.sleep(0.1)
                playing.start_soon(play_one, peer, rounds)
        nursery.cancel_scope.cancel()


async def play_one(peer, rounds):
    await run_node(peer.node, peer.network.publish, rounds=rounds, on_round=peer.reports.append)


@pytest.fixture
def fast(manifest):
    """Epochs of a minute: thirty rounds each."""
    return replace(manifest, epoch_seconds=60, max_rounds=60)


@pytest.mark.parametrize("size", [2, pytest.param(8, marks=pytest.mark.slow)])
async def test_a_swarm_of_newcomers_exchanges_within_a_few_rounds(fast, size, autojump_clock):
    hub = MemoryHub(seed=size)
    peers = [Peer(number, fast, hub) for number in range(1, size + 1)]
    await play(peers, 8)
    assert all(sum(peer.external) > 0 for peer in peers)


@pytest.mark.slow
async def test_strangers_exchange_at_once_and_become_healthy_over_epochs(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(number, fast, hub) for number in range(1, 4)]
    await play(peers, 90)
    assert any(peers[0].external[:3])
    assert sum(peers[0].external[:20]) / 20 > 3
    assert {peers[0].state(peer.id) for peer in peers[1:]} == {PeerState.HEALTHY}


async def test_nodes_exchange_and_verify_groups_on_the_rows_of_a_file(fast, tmp_path, autojump_clock):
    boxes = task_from(sums(400), tmp_path)
    swarm = replace(fast, tasks=(boxes,))
    rows = open_rows(swarm.tasks, tmp_path)
    hub = MemoryHub()
    peers = [Peer(number, swarm, hub, scorer=partial(KnowingScorer, rows=rows)) for number in (1, 2)]
    await play(peers, 8)
    assert all(sum(peer.external) > 0 for peer in peers)
    prompts = [row["prompt"] for row in sums(400)]
    assigned = {prompts[number] for number in rows["boxes"].split.assigned}
    for peer in peers:
        assert not peer.node.verifier.unusable.keys() & {Unusable.OTHER_TASK, Unusable.FALSE_CLAIM}
        assert {group.prompt for request in peer.policy.requests for group in request.placed} <= assigned


async def test_a_node_alone_just_learns_alone(fast, autojump_clock):
    (peer,) = peers = [Peer(1, fast, MemoryHub())]
    await play(peers, 5)
    assert peer.external == [0] * 5
    assert [step for step, _ in peer.policy.trained] == [1, 2, 3, 4, 5]


@pytest.mark.slow
async def test_the_book_names_every_group_that_was_trained_on(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(number, fast, hub) for number in range(1, 4)]
    await play(peers, 60)
    entries = newest(peers[0].database, 10_000)
    assert sum(each.state is State.TRAINED for each in entries) == sum(peers[0].external) > 0
    assert sum(each.state is State.OWN for each in entries) == 60 * 4


class Fragile(Oracle):
    """Dies of every batch that holds a group of somebody else."""

    async def train(self, request):
        if any(group.source == "external" for group in request.groups):
            raise WorkerFailed("died")
        return await super().train(request)


async def test_a_text_that_always_kills_the_learner_costs_the_node_that_batch_alone(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(1, fast, hub, policy=Fragile), Peer(2, fast, hub), Peer(3, fast, hub)]
    await play(peers, 12)
    assert len(peers[0].reports) == 12
    given_up = [report for report in peers[0].reports if report.drawn]
    assert given_up
    assert {(report.external, report.training.local_tokens) for report in given_up} == {(0, 0)}
    killers = [each for each in newest(peers[0].database, 10_000) if each.why == Refusal.KILLED_LEARNER]
    assert {each.state for each in killers} == {State.OWN, State.LEFT_OUT}
    assert len(killers) == sum(report.local + report.drawn for report in given_up)


async def test_what_filters_stop_and_what_grows_too_old_is_counted_as_left_out_once(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(1, fast, hub, filters=("equation",)), Peer(2, fast, hub)]
    answer = peers[1].policy.generate

    async def with_a_false_step(prompts, **settings):
        groups = await answer(prompts, **settings)
        return [tuple(replace(each, text=f"2 + 2 = 5. {each.text}") for each in group) for group in groups]

    peers[1].policy.generate = with_a_false_step
    await play(peers, 20)
    node, counts = peers[0].node, peers[0].node.history.counts()
    assert counts["equation filter"] > 0
    offer(node.book, [replace(VERIFIED, epoch=10, counter=counter) for counter in range(3)])
    node.epochs.enter(node.counters.epoch(node.swarm.clock.now()) + 1_000)
    node.tally.count()
    too_old = node.history.counts()
    assert too_old[NotDrawn.TOO_OLD] >= 3
    again = Peer(1, fast, MemoryHub(), database=peers[0].database).node
    again.tally.count()
    assert again.history.counts() == too_old


def leaves_undrawn(manifest, leaves):
    """What the book, and the counts, say of a group that is on offer no more."""
    peer = Peer(1, manifest, MemoryHub())
    offer(peer.node.book, [VERIFIED])
    leaves(peer.node)
    peer.node.tally.count()
    [entry] = [each for each in newest(peer.database, 10_000) if each.key == VERIFIED.key]
    counts = peer.node.history.counts()
    return entry.state, entry.why, counts.get(entry.why)


async def test_a_group_that_grows_too_old_on_offer_is_left_out(fast):
    told = leaves_undrawn(fast, lambda node: node.epochs.enter(1_000))
    assert told == (State.LEFT_OUT, NotDrawn.TOO_OLD, 1)


async def test_a_group_that_makes_room_for_newer_ones_of_its_peer_is_left_out(fast):
    newer = [replace(VERIFIED, counter=counter) for counter in range(1, MAX_PER_PEER + 1)]
    told = leaves_undrawn(fast, lambda node: offer(node.book, newer))
    assert told == (State.LEFT_OUT, NotDrawn.MADE_ROOM, 1)


async def test_a_group_that_makes_room_for_those_of_other_peers_is_left_out(fast):
    newer = [replace(VERIFIED, peer=f"peer {number}") for number in range(MAX_GROUPS)]
    told = leaves_undrawn(fast, lambda node: offer(node.book, newer))
    assert told == (State.LEFT_OUT, NotDrawn.MADE_ROOM, 1)


async def test_a_group_whose_peer_was_banned_while_the_node_was_stopped_is_left_out(fast):
    def banned(node):
        decide(node.database, Decision(VERIFIED.peer, PeerState.BANNED, COMMAND))
        Peer(1, fast, MemoryHub(), database=node.database).node.tally.count()

    assert leaves_undrawn(fast, banned) == (State.LEFT_OUT, NotDrawn.BANNED, 1)


async def test_a_node_that_starts_again_goes_on_with_what_its_filters_and_its_ratio_knew(fast, autojump_clock):
    first = Peer(1, fast, MemoryHub(), external="auto", filters=FILTERS)
    await play([first], 10)
    known = {part: (step, json.loads(state)) for part, step, state in first.database.rows(SAMPLING_STATE)}
    assert {step for step, _ in known.values()} == {10}
    again = Peer(1, fast, MemoryHub(), database=first.database, external="auto", filters=FILTERS)
    again.policy.step = first.policy.step
    await play([again], 1)
    later = {part: (step, json.loads(state)) for part, step, state in first.database.rows(SAMPLING_STATE)}
    assert {step for step, _ in later.values()} == {11}
    local = known["n-gram"][1]["local"]
    assert later["n-gram"][1]["local"][: len(local)] == local
    assert len(later["n-gram"][1]["local"]) == len(local) + 4
    assert all(
        lengths == later["length"][1]["characters"][task][: len(lengths)]
        for task, lengths in known["length"][1]["characters"].items()
        if len(later["length"][1]["characters"][task]) < KEPT
    )
    weights = [state["ratio"][1]["own"]["weight"] for state in (known, later)]
    assert weights[1] == pytest.approx(FORGETTING * weights[0] + 4)


async def test_the_ratio_learns_what_a_group_of_each_kind_takes(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(number, fast, hub, external="auto", filters=()) for number in range(1, 4)]
    for peer in peers:
        peer.policy.training_seconds = (50.0, 150.0)
    await play(peers, 10)
    ratio = dict(peers[0].database.rows("SELECT part, state FROM sampling_state"))["ratio"]
    local, external = (json.loads(ratio)[f"{kind}_seconds"] for kind in ("local", "external"))
    # The local groups were generated as well, in real seconds.
    assert 50 <= local["total"] / local["weight"] < 60
    assert external["total"] / external["weight"] == pytest.approx(150)


async def test_no_group_is_trained_on_twice(fast, autojump_clock):
    hub = MemoryHub(quality=LinkQuality(loss=0.1))
    peers = [Peer(number, fast, hub, filters=()) for number in range(1, 4)]
    await play(peers, 90)
    placed = [group for request in peers[0].policy.requests for group in request.placed]
    trained = [group.id for group in placed if group.source == "external"]
    assert len(trained) == sum(peers[0].external) > 50
    assert len(set(trained)) == len(trained)


class Emptying(Oracle):
    """A policy of whose filters the groups of `victim` leave nothing."""

    victim = ""

    async def train(self, request):
        report = await super().train(request)
        trained = trained_groups(request.groups, self.is_emptied)
        return replace(report, groups={each.id: GroupReport(0 if self.is_emptied(each.id) else 10) for each in trained})

    def is_emptied(self, name):
        return name.startswith(self.victim)


@pytest.mark.slow
async def test_groups_of_which_filters_leave_nothing_take_few_places_of_others(fast, autojump_clock):
    """Filters leave nothing of one of two peers. Without stand-ins the node trains on 125 groups."""
    hub = MemoryHub()
    peers = [Peer(1, fast, hub, policy=Emptying, external=4), *(Peer(n, fast, hub) for n in (2, 3))]
    peers[0].policy.victim = peers[1].id
    await play(peers, 60)
    assert sum(peers[0].external) > 140


def heard_by(peer, others):
    """How many of the rounds that others played a peer has."""
    (count,) = peer.database.row("SELECT count(*) FROM seen")
    return count / sum(len(other.reports) for other in others)


@pytest.mark.parametrize(("pulls", "least", "most"), [(False, 0.0, 0.9), (True, 1.0, 1.0)], ids=["gossip", "pulling"])
async def test_what_gossip_lost_is_pulled(manifest, pulls, least, most, autojump_clock):
    hub = MemoryHub(quality=LinkQuality(loss=0.3))
    peers = [Peer(number, manifest, hub) for number in (1, 2)]

    async def play_and_wait(peer):
        await play_one(peer, 20)
        await trio.sleep(300)

    async with trio.open_nursery() as nursery:
        for peer in peers:
            await nursery.start(peer.network.run)
            if pulls:
                nursery.start_soon(pull, peer.node, peer.network)
        async with trio.open_nursery() as playing:
            for peer in peers:
                playing.start_soon(play_and_wait, peer)
        nursery.cancel_scope.cancel()
    shares = [heard_by(peer, [other for other in peers if other is not peer]) for peer in peers]
    assert least <= min(shares)
    assert max(shares) <= most


async def sized_swarm(manifest, count, *, degree=None):
    """Peers of a swarm that leaves out bodies where it is large enough, after five rounds."""
    hub = MemoryHub(degree=degree)
    peers = [Peer(number, replace(manifest, inline_bytes=0), hub) for number in range(1, count + 1)]

    async def play_all():
        async with trio.open_nursery() as playing:
            for peer in peers:
                playing.start_soon(play_one, peer, 5)

    async with trio.open_nursery() as nursery:
        for peer in peers:
            await nursery.start(peer.network.run)
            nursery.start_soon(pull, peer.node, peer.network)
        await play_all()
        nursery.cancel_scope.cancel()
    return peers


def bodies_per_envelope(peer):
    """Bodies that came, by the number that were published."""
    received = [row[0].bit_count() for row in peer.database.rows("SELECT received FROM seen")]
    return sum(received) / len(received) / 4


async def test_bodies_travel_with_their_envelopes_among_eight_other_issuers(manifest, autojump_clock):
    for peer in await sized_swarm(manifest, 9):
        assert bodies_per_envelope(peer) == 1.0


async def test_a_larger_swarm_fetches_the_bodies_of_the_groups_that_it_verifies_and_no_others(manifest, autojump_clock):
    for peer in await sized_swarm(manifest, 14, degree=5):
        assert bodies_per_envelope(peer) < 0.7
        assert peer.external[-1] == 4
        assert peer.node.verifier.unusable[Unusable.NO_BODY] == 0


async def test_a_swarm_that_was_parted_catches_up_by_pulling(manifest, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(number, manifest, hub) for number in range(1, 5)]
    hub.partition([peer.id for peer in peers[:2]])

    async def heal():
        await trio.sleep(30)
        hub.heal()
        await trio.sleep(150)

    async with trio.open_nursery() as nursery:
        for peer in peers:
            await nursery.start(peer.network.run)
            nursery.start_soon(pull, peer.node, peer.network)
        async with trio.open_nursery() as playing:
            playing.start_soon(heal)
            for peer in peers:
                playing.start_soon(play_one, peer, 10)
        nursery.cancel_scope.cancel()
    assert [heard_by(peer, [other for other in peers if other is not peer]) for peer in peers] == [1.0] * 4


async def polluting(manifest, hub, number):
    """A polluter in the hub, as a task."""
    who = identity(number)
    key = Key(who.public_key, who.sign)
    attack = FalseClaim(Kit(manifest, [key], SharedScorer().solve, random.Random(number)))

    async def handle(_sender, _data):
        return Verdict.ACCEPT

    topic = rollouts_topic(manifest, 0)
    channels = {topic: Channel(handle, manifest.max_message_bytes)}
    network = hub.join(who, channels, admit=lambda _: True, notify=lambda _: None)
    clock = TrioClock(10 * manifest.epoch_seconds)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        while True:
            for packet in attack.act(key, epoch_at(manifest, clock.now())):
                await network.publish(topic, packet.data)
            await trio.sleep(ROUND_SECONDS)


async def test_a_polluter_is_found_out_banned_and_never_trained_on(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(number, fast, hub) for number in range(1, 4)]
    bad = identity(9).peer_id
    await play(peers, 60, lambda: polluting(fast, hub, 9))
    for peer in peers:
        assert peer.state(bad) is PeerState.BANNED
        assert bad not in trained_per_peer(peer.database)
        assert all(peer.state(other.id) is not PeerState.BANNED for other in peers)
    assert sum(map(sum, (peer.external for peer in peers))) > 0


@pytest.mark.slow
async def test_a_node_learns_nothing_from_whom_its_operator_banned_and_all_from_others(fast, autojump_clock):
    hub = MemoryHub()
    unwanted = identity(3).peer_id
    peers = [Peer(1, fast, hub, banned=(unwanted,)), Peer(2, fast, hub), Peer(3, fast, hub)]
    await play(peers, 60)
    assert set(trained_per_peer(peers[0].database)) == {"", peers[1].id}
    assert unwanted in trained_per_peer(peers[1].database)


async def test_a_ban_by_a_command_holds_from_the_next_round_on_also_for_what_waits(fast, autojump_clock, tmp_path):
    hub, file = MemoryHub(), tmp_path / "node.sqlite"
    with closing(Database(file, SCHEMA)) as database, closing(Database(file, SCHEMA)) as command:
        peers = [Peer(1, fast, hub, database=database), Peer(2, fast, hub)]
        unwanted, trained = peers[1].id, []

        async def operate():
            await trio.sleep(15 * ROUND_SECONDS)
            decide(command, Decision(unwanted, PeerState.BANNED, COMMAND))
            await trio.sleep(2 * ROUND_SECONDS)  # the round that ran has ended
            trained.append(trained_per_peer(database)[unwanted])

        await play(peers, 30, operate, partial(follow_decisions, peers[0].node))
        assert trained == [trained_per_peer(database)[unwanted]] != [(0, 0)]
        assert peers[0].node.book.per_peer() == {}


async def test_a_node_that_played_all_rounds_of_an_epoch_says_until_when_it_waits(fast, autojump_clock):
    (peer,) = peers = [Peer(1, replace(fast, max_rounds=2), MemoryHub())]
    waits = []

    async def look():
        await trio.sleep(30)
        waits.extend(peer.node.waits())

    await play(peers, 3, look)
    assert [(each["until"], "next epoch" in each["what"]) for each in waits] == [(11 * fast.epoch_seconds, True)]
    assert peer.node.waits() == []


async def test_a_node_before_the_genesis_waits_for_it_and_says_so(fast, autojump_clock, caplog):
    genesis = 12 * fast.epoch_seconds
    (peer,) = peers = [Peer(1, replace(fast, genesis=genesis), MemoryHub())]
    waits = []

    async def look():
        await trio.sleep(2)
        waits.extend(peer.node.waits())

    await play(peers, 1, look)
    assert [(each["until"], each["what"]) for each in waits] == [(genesis, "the beginning of the swarm")]
    assert peer.node.waits() == []
    assert genesis <= peer.node.swarm.clock.now() < genesis + fast.epoch_seconds
    assert not caplog.messages, "nothing is said of rounds that were played"


async def test_a_node_on_a_clock_from_before_the_genesis_begins_once_the_clock_is_set(fast, autojump_clock):
    (peer,) = peers = [Peer(1, replace(fast, genesis=10**9), MemoryHub())]

    async def set_clock():
        await trio.sleep(30)
        peer.node.swarm.clock.start += 10**9

    await play(peers, 1, set_clock)
    assert trio.current_time() < 60


async def test_a_node_that_only_listens_says_until_when(fast, autojump_clock):
    node = Peer(1, fast, MemoryHub(), key_is_new=False).node
    now, steady = node.swarm.clock.now(), node.swarm.clock.steady()
    [wait] = node.waits()
    assert wait["until"] == pytest.approx(now + node.counters.listening_seconds(now, steady), abs=1)


class DriftedScorer(KnowingScorer):
    """What a node has whose reasoning-gym words the questions of one dataset otherwise."""

    async def score(self, batch):
        return [
            replace(scored, digest=hashlib.sha256(scored.digest).digest()) if request.dataset == "products" else scored
            for request, scored in zip(batch, await super().score(batch), strict=True)
        ]


@pytest.mark.slow
async def test_a_node_of_another_library_version_is_no_liar_and_a_liar_among_its_peers_is_still_found(
    fast, autojump_clock
):
    hub = MemoryHub()
    peers = [Peer(number, fast, hub, scorer=DriftedScorer if number == 1 else KnowingScorer) for number in (1, 2, 3)]
    bad = identity(9).peer_id
    await play(peers, 60, lambda: polluting(fast, hub, 9))
    drifted, *others = peers
    for other in others:
        assert other.node.verifier.unusable[Unusable.OTHER_TASK] > 0
        assert other.state(drifted.id) in (PeerState.UNTRUSTED, PeerState.HEALTHY)
        assert other.node.ledger.of(drifted.id).evidence.bad == 0
        assert drifted.id in trained_per_peer(other.database)
        assert other.state(bad) is PeerState.BANNED


async def test_a_swarm_full_of_liars_leaves_a_node_as_it_would_be_alone(fast, autojump_clock):
    hub = MemoryHub()
    (peer,) = peers = [Peer(1, fast, hub)]
    await play(peers, 40, *[lambda number=number: polluting(fast, hub, number) for number in range(20, 27)])
    assert peer.external == [0] * 40
    assert len(peer.policy.trained) == 40


async def test_a_network_that_fails_while_publishing_costs_a_message_and_not_the_node(fast, autojump_clock):
    peer = Peer(1, fast, MemoryHub())
    sent = []

    async def publish(_topic, message):
        sent.append(message)
        if len(sent) % 2:
            raise NotRunningError("the network failed while publishing")

    await run_node(peer.node, publish, rounds=4, on_round=peer.reports.append)
    await resend(peer.node, publish)
    assert [report.step for report in peer.reports] == [1, 2, 3, 4]
    assert sent[4:] == sent[:4]


@pytest.mark.slow
async def test_a_partition_heals_and_the_exchange_goes_on(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(number, fast, hub) for number in range(1, 3)]

    async def weather():
        hub.partition([peers[0].id], [peers[1].id])
        await trio.sleep(40)
        heard_alone.append(len(peers[0].node.book.offered()))
        hub.heal()

    heard_alone = []
    await play(peers, 60, weather)
    assert heard_alone == [0]
    assert sum(peers[0].external) > 0


@pytest.mark.slow
async def test_a_key_older_than_its_state_trains_but_stays_silent_for_two_epochs(fast, autojump_clock):
    hub = MemoryHub()
    peers = [Peer(1, fast, hub), Peer(2, fast, hub, key_is_new=False)]
    await play(peers, 90)
    silent = [report.epoch for report in peers[1].reports if not report.published]
    speaking = [report.epoch for report in peers[1].reports if report.published]
    assert max(silent) in (11, 12)
    assert min(speaking) == 12


async def test_a_copied_key_stops_the_copy_and_nobody_is_banned(fast, autojump_clock):
    """The copy listens for two epochs, so it meets an envelope of the second before it ever publishes one. One of the
    first might be lost with an earlier state, and is no alarm.
    """
    hub = MemoryHub()
    original, witness = peers = [Peer(1, fast, hub), Peer(2, fast, hub)]
    copies_air = MemoryHub()
    copy = Peer(1, fast, copies_air, key_is_new=False)

    async def overhear():
        for seconds in (10, 65):
            await trio.sleep(seconds)
            alarms.append(list(copy.fatal))
            for message in original.node.counters.recent():
                await copy.node.ingest.handle(witness.id, message, shard=0)

    alarms = []
    await play(peers, 45, overhear)
    assert alarms == [[], []]
    assert "in use elsewhere" in str(copy.fatal[0])
    assert witness.state(original.id) is not PeerState.BANNED


async def equivocating(author, hub, who):
    """A peer that tells each of its two neighbours another story of its first round."""
    network = hub.join(who, {}, admit=lambda _: True, notify=lambda _: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        await trio.sleep(1)
        for neighbour in network.reachable():
            message = author.message(epoch=10, text=f"for {neighbour}")
            network.send(rollouts_topic(author.manifest, 0), message, [neighbour])
        await trio.sleep_forever()


async def test_an_equivocator_is_banned_by_nodes_that_never_met_it(fast, author, autojump_clock):
    hub = MemoryHub(degree=2)
    peers = [Peer(number, fast, hub) for number in range(1, 9)]
    bad = identity(9)
    author = replace(author, key=bad.key, manifest=fast)
    await play(peers, 10, lambda: equivocating(author, hub, bad))
    assert [peer.state(bad.peer_id) for peer in peers] == [PeerState.BANNED] * 8
    assert all(peer.state(other.id) is not PeerState.BANNED for peer in peers for other in peers)


async def test_what_a_connected_peer_signed_is_charged_to_its_own_link_whoever_brings_it(fast, author, autojump_clock):
    hub = MemoryHub()
    peer, issuer = Peer(1, fast, hub), identity(9)
    author = replace(author, key=issuer.key, manifest=fast)
    topic = rollouts_topic(fast, 0)
    channels = {topic: peer.node.channels[topic]}
    others = [hub.join(who, channels, admit=lambda _: True, notify=lambda _: None) for who in (issuer, identity(8))]
    async with trio.open_nursery() as nursery:
        for network in (peer.network, *others):
            await nursery.start(network.run)
        await trio.sleep(1)
        others[1].send(topic, author.message(epoch=10), [peer.id])
        await trio.sleep(1)
        links = peer.database.rows("SELECT link FROM arrived")
        nursery.cancel_scope.cancel()
    assert links == [(issuer.peer_id,)]


async def bridging(here, there, topic):
    """Carries what is said in one hub to the other, and back."""
    networks = []

    def carrier(number):
        async def handle(_sender, data):
            await networks[1 - number].publish(topic, data)
            return Verdict.IGNORE

        return {topic: Channel(handle, 1_000_000)}

    for number, hub in enumerate((here, there)):
        networks.append(hub.join(identity(7), carrier(number), admit=lambda _: True, notify=lambda _: None))
    async with trio.open_nursery() as nursery:
        for network in networks:
            await nursery.start(network.run)


@pytest.mark.slow
async def test_two_clones_of_one_node_do_not_get_their_operator_banned(fast, autojump_clock):
    """Both listen, and the one that waits longer hears the other and stops before it has published anything."""
    hubs = MemoryHub(seed=1), MemoryHub(seed=2)
    witnesses = [Peer(number, fast, hub) for number, hub in zip((2, 3), hubs, strict=True)]
    clones = [Peer(1, fast, hub, key_is_new=False, luck=luck) for luck, hub in enumerate(hubs)]
    await play([*witnesses, *clones], 80, lambda: bridging(*hubs, rollouts_topic(fast, 0)))
    assert sorted(len(clone.fatal) > 0 for clone in clones) == [False, True]
    assert all(witness.state(clones[0].id) is not PeerState.BANNED for witness in witnesses)


async def test_when_the_epochs_counters_are_spent_the_node_waits_for_the_next(manifest, autojump_clock):
    tight = replace(manifest, epoch_seconds=60, max_rounds=5)
    (peer,) = peers = [Peer(1, tight, MemoryHub())]
    await play(peers, 12)
    assert [report.epoch for report in peer.reports] == [10] * 5 + [11] * 5 + [12] * 2
    assert [report.counter for report in peer.reports] == [*range(5), *range(5), *range(2)]


async def test_a_node_without_a_policy_verifies_and_keeps_its_ledger(fast, autojump_clock):
    hub = MemoryHub()
    talker = Peer(1, fast, hub)
    watcher = Peer(2, fast, hub)
    watcher.node.policy = watcher.node.trainer = None

    async def watch():
        await run_node(watcher.node, watcher.network.publish)

    async with trio.open_nursery() as nursery:
        await nursery.start(talker.network.run)
        await nursery.start(watcher.network.run)
        nursery.start_soon(watch)
        await play_one(talker, 10)
        watcher.node.stopping.set()
        nursery.cancel_scope.cancel()
    assert watcher.node.ledger.of(talker.id).trust > 0.5


@pytest.mark.slow
async def test_the_same_seed_plays_the_same_swarm():
    from trio.testing import MockClock

    async def story():
        from sapo_protocol import load_manifest

        fast = replace(load_manifest("starter"), genesis=0, epoch_seconds=60, max_rounds=60)
        hub = MemoryHub(seed=5, quality=LinkQuality(loss=0.2))
        peers = [Peer(number, fast, hub) for number in range(1, 4)]
        await play(peers, 15)
        return [(report.reward, report.external) for peer in peers for report in peer.reports]

    def run():
        return trio.run(story, clock=MockClock(autojump_threshold=0))

    first, second = await trio.to_thread.run_sync(run), await trio.to_thread.run_sync(run)
    assert first == second


async def test_a_node_looks_at_held_out_questions_before_its_first_round_and_every_so_many(fast, autojump_clock):
    peer = Peer(1, fast, MemoryHub(), eval_every=3)
    phases = []
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.network.run)
        await run_node(peer.node, peer.network.publish, rounds=7, on_phase=phases.append)
        nursery.cancel_scope.cancel()
    evaluations = peer.node.history.evaluations()
    assert [each["step"] for each in evaluations] == [0, 3, 6]
    assert phases[:3] == ["evaluate", None, "generate"]
    assert all(0 < each["low"] <= each["pass_at_1"] <= each["high"] < 1 for each in evaluations)
    assert phases.count("evaluate") == 3


async def test_a_node_that_starts_again_does_not_repeat_its_first_look(fast, autojump_clock):
    peer = Peer(1, fast, MemoryHub(), eval_every=100)
    phases = []
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.network.run)
        for rounds in (0, 0, 2, 0):
            await run_node(peer.node, peer.network.publish, rounds=rounds, on_phase=phases.append)
        nursery.cancel_scope.cancel()
    assert phases.count("evaluate") == 1
    assert [each["step"] for each in peer.node.history.evaluations()] == [0]


async def test_a_look_that_fails_costs_no_round(fast, autojump_clock, caplog):
    peer = Peer(1, fast, MemoryHub(), eval_every=1)
    answer = peer.policy.generate

    async def fails_in_exams(prompts, **settings):
        if settings["completions"] == 1:
            raise WorkerFailed("the learner died")
        return await answer(prompts, **settings)

    peer.policy.generate = fails_in_exams
    await play([peer], 3)
    assert len(peer.reports) == 3
    assert peer.node.history.evaluations() == []
    assert (
        "the held-out evaluation after round 1 failed: the learner died; the node tries again after round 2"
        in caplog.text
    )


async def test_a_learner_that_died_in_an_evaluation_catches_up_before_the_next_round(fast, autojump_clock):
    peer = Peer(1, fast, MemoryHub(), eval_every=1)
    answer, weights = peer.policy.generate, []

    async def dies_in_exams(prompts, **settings):
        if settings["completions"] == 1:
            peer.policy.step = 0  # that of the checkpoint
            raise WorkerFailed("the learner died")
        weights.append(peer.policy.step)
        return await answer(prompts, **settings)

    peer.policy.generate = dies_in_exams
    await play([peer], 3)
    assert weights == [0, 1, 2]


async def test_an_evaluation_that_fails_is_made_up_after_waits_that_double(fast, autojump_clock):
    peer = Peer(1, fast, MemoryHub(), eval_every=10)
    measured, tried = peer.policy.generate, []

    async def fails_until_round_13(prompts, **settings):
        if settings.get("averaged") and peer.reports:
            tried.append(len(peer.reports))
            if len(peer.reports) < 13:
                raise WorkerFailed("the learner died")
        return await measured(prompts, **settings)

    peer.policy.generate = fails_until_round_13
    await play([peer], 21)
    assert [*dict.fromkeys(tried)] == [10, 11, 13, 20]
    assert [each["step"] for each in peer.node.history.evaluations()] == [0, 13, 20]


async def test_an_evaluation_of_which_the_weights_could_not_be_kept_is_made_again(fast, autojump_clock):
    peer = Peer(1, fast, MemoryHub(), eval_every=2)
    keep, kept = peer.policy.keep_best, []

    async def refuses_in_round_2(step, needed):
        if step == 2:
            raise RequestError("no space")
        kept.append(step)
        await keep(step, needed)

    peer.policy.keep_best, peer.node.trainer.health.is_best = refuses_in_round_2, lambda _: True
    await play([peer], 4)
    assert kept == [0, 3, 4]


async def test_an_evaluation_that_the_end_of_the_node_interrupted_is_made_at_its_next_start(fast, autojump_clock):
    first = Peer(1, fast, MemoryHub(), eval_every=2)
    await play([first], 2)
    first.database.execute("DELETE FROM exams WHERE step = 2")
    again = Peer(1, fast, MemoryHub(), eval_every=2, database=first.database)
    again.policy.step = 2
    await play([again], 1)
    assert [each["step"] for each in again.node.history.evaluations()] == [0, 2]


async def test_a_node_that_is_told_to_stop_in_an_evaluation_asks_no_more_questions(fast, autojump_clock, caplog):
    peer = Peer(1, fast, MemoryHub(), eval_every=2)
    answer, asked = peer.policy.generate, []

    async def stops_in_the_exam_after_round_2(prompts, **settings):
        if settings.get("averaged") and peer.reports:
            asked.append(len(prompts))
            peer.node.stopping.set()
        return await answer(prompts, **settings)

    peer.policy.generate = stops_in_the_exam_after_round_2
    await play([peer], 5)
    assert len(peer.reports) == 2
    assert len(asked) == 1
    assert [each["step"] for each in peer.node.history.evaluations()] == [0]
    assert "the held-out evaluation after round 2 failed: the node is stopping" in caplog.text


class Decaying(Oracle):
    """Its averaged weights are nearly always correct until round 5, and hardly ever after it, until it goes back."""

    async def generate(self, prompts, *, completions, max_tokens, seed, averaged=False):
        went_back = any(request.restart is not None for request in self.requests)
        self.skill = 0.9 if averaged and (self.step <= 5 or went_back) else 0.1
        return await super().generate(prompts, completions=completions, max_tokens=max_tokens, seed=seed)


async def test_a_node_whose_policy_decays_goes_back_to_its_best_weights_and_learns_slower(fast, autojump_clock, caplog):
    peer = Peer(1, fast, MemoryHub(), eval_every=5, policy=Decaying)
    await play([peer], 16)
    starts = {request.step: request.restart for request in peer.policy.requests if request.restart is not None}
    assert list(starts) == [11]
    assert starts[11] in {0, 5}
    assert [request.rate_scale for request in peer.policy.requests] == [1.0] * 10 + [0.5] * 6
    assert [report.rate_scale for report in peer.reports] == [1.0] * 10 + [0.5] * 6
    assert "round 10: mean held-out pass@1 fell to 0." in caplog.text
    [alarm] = overview(peer.database).health_alarms
    assert (alarm.kind, alarm.step) == ("held-out", 10)


@pytest.mark.parametrize(
    ("changed", "raised"),
    [({}, ["held-out"]), ({"max_tokens": 40}, []), ({"thinking": True}, []), ({"examples": 1}, [])],
)
async def test_evaluations_before_the_model_was_asked_in_another_way_are_not_compared(
    fast, autojump_clock, changed, raised
):
    first = Peer(1, fast, MemoryHub(), eval_every=2, skill=0.9)
    await play([first], 2)
    again = Peer(1, fast, MemoryHub(), eval_every=2, skill=0.05, database=first.database, **changed)
    await play([again], 2)
    assert [each["step"] for each in again.node.history.evaluations()] == [0, 2, 4]
    assert [alarm.kind for alarm in overview(again.database).health_alarms] == raised


async def test_a_node_with_another_policy_plays_from_round_1_and_uses_no_counter_twice(fast, autojump_clock):
    first = Peer(1, fast, MemoryHub(), eval_every=2)
    ready = Ready(0, 1_000, "tiny", "cpu", None, None, fingerprint="first")
    remember(first.database, Config(), ready)
    await play([first], 2)
    remember(first.database, Config(), replace(ready, fingerprint="second"))
    again = Peer(1, fast, MemoryHub(), eval_every=2, database=first.database)
    await play([again], 2)
    assert [request.step for request in again.policy.requests] == [1, 2]
    assert [each["step"] for each in again.node.history.evaluations()] == [0, 2]
    slots = [(report.epoch, report.counter) for report in (*first.reports, *again.reports)]
    assert len(set(slots)) == 4


@pytest.mark.slow
async def test_a_swarm_on_several_topics_exchanges_as_on_one(fast, autojump_clock):
    hub = MemoryHub()
    spread = replace(fast, shards=4)
    peers = [Peer(number, spread, hub) for number in range(1, 7)]
    await play(peers, 15)
    assert all(sum(peer.external) > 0 for peer in peers)
    assert all(not peer.node.ingest.refused for peer in peers)
    assert all(peer.node.subscriptions.shards == frozenset(range(4)) for peer in peers)


@pytest.mark.slow
async def test_nodes_that_hear_a_part_of_the_swarm_learn_from_it(fast, autojump_clock, monkeypatch):
    monkeypatch.setattr(shards, "MESSAGES_PER_SECOND", 0.6)  # of two that seven nodes publish
    hub = MemoryHub()
    spread = replace(fast, shards=4)
    peers = [Peer(number, spread, hub) for number in range(1, 8)]
    await play(peers, 40)
    for peer in peers:
        assert len(peer.node.subscriptions.shards) < 4
        assert len(issuers_of(peer, epoch=10)) == len(peers) - 1
        assert len(issuers_of(peer, epoch=11)) < len(peers) - 1
        assert sum(peer.external[-10:]) > 0
        assert not peer.node.ingest.refused


def issuers_of(peer, epoch):
    """Whom a node heard in an epoch."""
    return {issuer for (issuer,) in peer.database.rows("SELECT issuer FROM seen WHERE epoch = ?", epoch)}
