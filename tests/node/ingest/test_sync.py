"""What a peer can be asked for, what it costs whoever asks, and what becomes of what is delivered."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from context import KEY
from fetching import fetcher_of
from rollouts import right_and_wrong, rollout
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.book import Book
from sapo_node.ingest import sync
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.sync import Responder, Synchroniser
from sapo_node.ingest.validator import FEW_ISSUERS
from sapo_node.net.interface import TARGET_PEERS, AskFailed, PeerInfo
from sapo_node.trust.constants import Fact
from sapo_node.trust.ledger import Ledger
from sapo_protocol import (
    GetRequest,
    InventoryItem,
    ListRequest,
    PeerAddress,
    PeersRequest,
    decode_delivery,
    decode_listing,
    decode_peers,
    decode_request,
    encode_delivery,
    encode_listing,
    encode_message,
    encode_peers,
    encode_request,
    peer_id,
    rollouts_topic,
    shard_of,
)
from sapo_protocol.pull import ALL_SHARDS

ASKER = peer_id(bytes([4]) * 32)
EPOCH = 5


def round_of(author, counter, *, epoch=EPOCH, groups=1, without=()):
    """A true rollout; the bodies of groups in `without` are left out."""
    made = [right_and_wrong(author, k, epoch=epoch, counter=counter) for k in range(groups)]
    bodies = [None if k in without else body for k, (_, body, _) in enumerate(made)]
    return rollout(author, [group for group, _, _ in made], bodies, epoch=epoch, counter=counter)


def id_of(one):
    return one.opened.envelope_id


def message_of(one):
    return encode_message(one.opened.envelope, one.bodies)


def asked(*rollouts, bodies=0xFFFF):
    return GetRequest(tuple(InventoryItem(each, bodies) for each in sorted(map(id_of, rollouts))))


# The shelf.


def test_a_shelf_lists_an_epoch_by_id_with_the_bodies_that_are_there(author):
    message_store = MessageStore(author.manifest)
    rounds = [round_of(author, 0), round_of(author, 1, groups=2, without=(0,)), round_of(author, 2)]
    for each in rounds:
        message_store.put(each)
    message_store.put(round_of(author, 3, epoch=EPOCH + 1))
    listed = {id_of(rounds[0]): 0b1, id_of(rounds[1]): 0b10, id_of(rounds[2]): 0b1}
    whole = [InventoryItem(each, listed[each]) for each in sorted(listed)]
    assert message_store.listing(EPOCH, ALL_SHARDS, b"", 10) == whole
    assert message_store.listing(EPOCH, ALL_SHARDS, whole[0].envelope_id, 1) == whole[1:2]


def test_bodies_that_come_later_are_put_beside_the_earlier(author):
    message_store, whole = MessageStore(author.manifest), round_of(author, 0, groups=2)
    message_store.put(round_of(author, 0, groups=2, without=(0,)))
    message_store.put(round_of(author, 0, groups=2, without=(1,)))
    assert message_store.message(InventoryItem(id_of(whole), 0b11)) == message_of(whole)


def test_only_the_wanted_bodies_are_in_a_message(author):
    message_store, whole = MessageStore(author.manifest), round_of(author, 0, groups=2)
    message_store.put(whole)
    second = message_of(replace(whole, bodies=(None, whole.bodies[1])))
    assert message_store.message(InventoryItem(id_of(whole), 0b10)) == second


def test_a_full_shelf_forgets_what_came_first(author):
    rounds = [round_of(author, counter) for counter in range(4)]
    message_store = MessageStore(author.manifest, max_bytes=3 * len(message_of(rounds[0])))
    for each in rounds:
        message_store.put(each)
    assert message_store.message(InventoryItem(id_of(rounds[0]), 1)) is None
    assert len(message_store.listing(EPOCH, ALL_SHARDS, b"", 10)) == 3


def test_what_is_too_old_to_be_asked_for_goes(author):
    message_store = MessageStore(author.manifest)
    message_store.put(round_of(author, 0))
    message_store.forget_before(EPOCH + 1)
    assert message_store.listing(EPOCH, ALL_SHARDS, b"", 10) == []


def test_a_listing_reads_no_envelope_that_it_does_not_list(author, monkeypatch):
    swarm = replace(author.manifest, shards=32)
    author = replace(author, manifest=swarm)
    message_store = MessageStore(swarm)
    for counter in range(8):
        message_store.put(round_of(author, counter))
    own = shard_of(swarm, author.issuer, EPOCH)
    read = []
    monkeypatch.setattr(message_store, "_kept", Reads(message_store._kept, read))
    assert message_store.listing(EPOCH, ALL_SHARDS & ~(1 << own), b"", 512) == []
    assert read == []
    assert len(message_store.listing(EPOCH, ALL_SHARDS, b"", 3)) == len(read) == 3


class Reads(dict):
    """A dict that notes the keys that are read."""

    def __init__(self, kept, read):
        super().__init__(kept)
        self.read = read

    def __getitem__(self, key):
        self.read.append(key)
        return super().__getitem__(key)


def test_only_what_the_asked_shards_carry_is_listed(author):
    swarm = replace(author.manifest, shards=4)
    author = replace(author, manifest=swarm)
    message_store, whole = MessageStore(swarm), round_of(author, 0)
    message_store.put(whole)
    own = 1 << shard_of(swarm, author.issuer, EPOCH)
    assert message_store.listing(EPOCH, own, b"", 10) == [InventoryItem(id_of(whole), 1)]
    assert message_store.listing(EPOCH, ALL_SHARDS & ~own, b"", 10) == []


# Who gives.


def giver_of(validator, *, message_store=None, peers=list, **options):
    swarm = replace(validator.swarm, manifest=validator.manifest, rng=random.Random(0))
    message_store = message_store or validator.message_store
    return Responder(
        swarm,
        message_store=message_store,
        ledger=validator.ledger,
        peers=peers,
        fetcher=fetcher_of(swarm, validator.database, validator.ledger, message_store),
        **options,
    )


@pytest.fixture
def responder(validator):
    return giver_of(validator)


async def test_what_was_accepted_can_be_had(validator, responder, author):
    whole = round_of(author, 0)
    assert await validator.verdict(message_of(whole)) is Verdict.ACCEPT
    request = asked(whole)
    (delivered,) = decode_delivery(await responder.answer(ASKER, encode_request(request)), request, author.manifest)
    assert delivered.message == message_of(whole)
    listing = ListRequest(EPOCH)
    assert decode_listing(await responder.answer(ASKER, encode_request(listing)), listing) == (
        InventoryItem(id_of(whole), 1),
    )


async def test_a_peer_that_is_given_a_rollout_of_this_node_is_counted_and_one_of_others_is_not(validator, author):
    fetched = []
    responder = giver_of(validator, on_fetched=lambda *given: fetched.append(given))
    own, other = round_of(replace(author, key=KEY), 0), round_of(author, 1)
    for whole in (own, other):
        validator.message_store.put(whole)
    for whole in (other, own, own):
        await responder.answer(ASKER, encode_request(asked(whole)))
    assert fetched == [(ASKER, 1, len(own.bodies))] * 2


async def test_only_bodies_that_are_here_count_as_fetched(validator, author):
    fetched = []
    responder = giver_of(validator, on_fetched=lambda *given: fetched.append(given))
    own = round_of(replace(author, key=KEY), 0)
    validator.message_store.put(own)
    for bodies in (0, 0b1, 0xFFFF):
        await responder.answer(ASKER, encode_request(asked(own, bodies=bodies)))
    assert fetched == [(ASKER, 1, count) for count in (0, 1, len(own.bodies))]


async def test_a_request_that_is_none_is_charged_to_who_asks(validator, responder):
    assert await responder.answer(ASKER, b"\xa0") is None
    assert validator.ledger.of(ASKER).evidence.bad > 0


async def test_a_banned_peer_gets_no_answer(validator, responder):
    for _ in range(10):
        validator.ledger.report(ASKER, Fact.FALSE_CLAIM)
    assert await responder.answer(ASKER, encode_request(ListRequest(EPOCH))) is None


async def test_who_has_used_up_its_bytes_gets_nothing_until_there_are_more(validator, responder, author, monkeypatch):
    whole = round_of(author, 0)
    size = len(encode_delivery([message_of(whole)]))
    monkeypatch.setattr(sync, "ASSURED_BURST_BYTES", 0.0)
    monkeypatch.setattr(sync, "BURST_BYTES", 1.5 * size + 20)
    responder = giver_of(validator)
    validator.message_store.put(whole)
    request = encode_request(asked(whole))
    assert len(await responder.answer(ASKER, request)) == size
    assert await responder.answer(ASKER, request) in (None, encode_delivery([]))
    assert len(await responder.answer(peer_id(bytes([5]) * 32), request)) == size
    validator.clock.time += size / sync.BYTES_PER_SECOND
    assert len(await responder.answer(ASKER, request)) == size


async def test_all_askers_together_get_no_more_than_their_share(validator, author, monkeypatch):
    whole = round_of(author, 0)
    monkeypatch.setattr(sync, "ASSURED_BURST_BYTES", 0.0)
    monkeypatch.setattr(sync, "ALL_BURST_BYTES", 1.5 * len(message_of(whole)) + 20)
    responder = giver_of(validator)
    validator.message_store.put(whole)
    answers = [await responder.answer(peer_id(bytes([n]) * 32), encode_request(asked(whole))) for n in (4, 5)]
    assert [answer in (None, encode_delivery([])) for answer in answers] == [False, True]


async def test_peers_that_request_without_end_keep_no_answer_from_another(validator, author, monkeypatch):
    whole = round_of(author, 0)
    monkeypatch.setattr(sync, "ALL_BURST_BYTES", 100_000.0)
    responder = giver_of(validator)
    validator.message_store.put(whole)
    for n in range(10, 14):
        while await responder.answer(peer_id(bytes([n]) * 32), encode_request(ListRequest(EPOCH))) is not None:
            pass
    assert await responder.answer(ASKER, encode_request(asked(whole))) == encode_delivery([message_of(whole)])


async def test_asking_without_end_for_what_is_not_there_comes_to_an_end(validator, responder, author):
    request = encode_request(asked(round_of(author, 0)))
    answers = 0
    while await responder.answer(ASKER, request) is not None:
        answers += 1
    assert answers == sync.BURST_BYTES // sync.LEAST_BYTES
    validator.clock.time += 1
    assert await responder.answer(ASKER, request) == encode_delivery([])


# Who asks.


class Server:
    """A peer that answers requests from its own shelf, or as it is told."""

    peer = peer_id(bytes([6]) * 32)

    def __init__(self, validator, *rollouts):
        self.message_store = MessageStore(validator.manifest)
        for each in rollouts:
            self.message_store.put(each)
        self.responder = giver_of(validator, message_store=self.message_store, peers=lambda: self.peers)
        self.asked = []
        self.says = {}
        self.peers = []
        self.named = []
        self.seconds = 0
        """How long it takes to answer."""

    async def ask(self, peer, request):
        await trio.sleep(self.seconds)
        self.asked.append(request)
        answer = self.says.get(len(self.asked), await self.responder.answer(peer, request))
        if answer is None:
            raise AskFailed("no answer")
        return answer


@dataclass
class OnePeer:
    """The network of a node that is connected with a server alone."""

    server: Server

    async def ask(self, peer, request):
        return await self.server.ask(peer, request)

    def peers(self):
        return [PeerInfo(self.server.peer, (), outbound=True, connected_at=0.0)]

    def try_address(self, *told):
        self.server.named.append(told)


def synchroniser(validator, manifest, server=None, *, network=None):
    return Synchroniser(
        replace(validator.swarm, manifest=manifest, rng=random.Random(0)),
        network or OnePeer(server),
        ingest=validator.ingest,
        ledger=validator.ledger,
        counters=validator.counters,
        subscriptions=ShardSubscriptions(manifest, validator.ledger, random.Random(0)),
    )


def waiting(validator, manifest):
    return Book(validator.book._database, manifest, rng=random.Random(0)).waiting


async def test_what_a_peer_holds_and_this_node_does_not_is_asked_for_and_judged(validator, author, manifest):
    here, *missing = rounds = [round_of(author, counter) for counter in range(4)]
    await validator.verdict(message_of(here))
    server = Server(validator, *rounds, round_of(author, 0, epoch=EPOCH - 1))
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert waiting(validator, manifest) == 1 + len(missing) + 1
    assert validator.ingest.pulled == len(missing) + 1
    assert validator.refused() == {}


async def test_nothing_is_asked_for_that_is_here(validator, author, manifest):
    whole = round_of(author, 0)
    await validator.verdict(message_of(whole))
    server = Server(validator, whole)
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert server.asked == [encode_request(ListRequest(each, shards=1)) for each in (EPOCH, EPOCH - 1)]


async def test_only_the_bodies_that_are_missing_are_asked_for(validator, author, manifest):
    whole = round_of(author, 0, groups=2)
    await validator.verdict(message_of(round_of(author, 0, groups=2, without=(1,))))
    server = Server(validator, whole)
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert encode_request(asked(whole, bodies=0b10)) in server.asked
    assert validator.message_store.bodies(id_of(whole)) == 0b11


async def test_a_node_that_knows_many_issuers_pulls_envelopes_without_bodies(validator, author, manifest):
    for number in range(1, FEW_ISSUERS + 1):
        key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        await validator.verdict(message_of(round_of(replace(author, key=key), 0)))
    known, missing = round_of(author, 0), round_of(author, 1)
    await validator.verdict(message_of(replace(known, bodies=(None,))))
    server = Server(validator, known, missing)
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert [each for each in map(decode_request, server.asked) if isinstance(each, GetRequest)] == [
        asked(missing, bodies=0)
    ]


async def test_this_nodes_own_envelopes_are_not_asked_for(validator, author, manifest):
    whole = round_of(author, 0)
    validator.message_store.put(whole)  # as the node does with what it publishes
    server = Server(validator, whole)
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert len(server.asked) == 2


async def test_what_came_and_was_not_taken_is_not_asked_of_the_same_peer_again(
    validator, author, manifest, autojump_clock
):
    # Its counter is beyond what an untrusted peer may advance.
    beyond = round_of(author, int(manifest.max_rounds * 0.9))
    server = Server(validator, beyond)
    asks = synchroniser(validator, manifest, server)
    for _ in range(2):
        await asks.pull(server.peer)
    assert server.asked.count(encode_request(asked(beyond, bodies=1))) == 1


@pytest.mark.parametrize(
    "answer",
    [b"\xff", encode_listing([InventoryItem(bytes([2]) * 32, 1), InventoryItem(bytes([1]) * 32, 1)])],
    ids=["no listing", "ids in no order"],
)
async def test_a_wrong_listing_is_charged_to_who_sent_it_and_nothing_more_is_asked(validator, manifest, answer):
    server = Server(validator)
    server.says[1] = answer
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert validator.ledger.of(server.peer).evidence.bad > 0
    assert len(server.asked) == 1


async def test_a_message_that_was_not_asked_for_is_charged_to_who_sent_it(validator, author, manifest):
    server = Server(validator, round_of(author, 0))
    server.says[2] = encode_delivery([message_of(round_of(author, 1))])
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert validator.ledger.of(server.peer).evidence.bad > 0
    assert waiting(validator, manifest) == 0


async def test_a_message_with_a_broken_signature_is_charged_to_who_sent_it_not_to_its_author(
    validator, author, manifest
):
    whole = round_of(author, 0)
    envelope = whole.opened.envelope
    broken = encode_message(envelope[:-1] + bytes([envelope[-1] ^ 1]), whole.bodies)
    server = Server(validator, whole)
    server.says[2] = encode_delivery([broken])
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert validator.ledger.of(server.peer).evidence.bad > 0
    assert validator.ledger.of(peer_id(author.issuer)).evidence.bad == 0


async def test_who_lists_without_end_and_delivers_nothing_is_asked_once_each_time(validator, manifest):
    server = Server(validator)
    server.says[1] = encode_listing([InventoryItem(number.to_bytes(32, "big"), 1) for number in range(1, 1_025)])
    await synchroniser(validator, manifest, server).pull(server.peer)
    # Two parts of the list, one request for messages, and the list of the epoch before.
    assert len(server.asked) == 4


async def test_a_peer_that_gives_no_answer_costs_nobody_anything(validator, manifest):
    server = Server(validator)
    server.says[1] = None
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert validator.ledger.of(server.peer).evidence.bad == 0


class SlowPeers:
    """The network of a node with eight peers, of which some answer each request after 24 s. Time is virtual."""

    def __init__(self, slow):
        names = [peer_id(bytes([number]) * 32) for number in range(40, 48)]
        self.slow = frozenset(names[:slow])
        self.connected = [PeerInfo(each, (), outbound=True, connected_at=0.0) for each in names]
        self.listed = Counter()

    def peers(self):
        return self.connected

    async def ask(self, peer, data):
        request = decode_request(data)
        self.listed[peer] += isinstance(request, ListRequest) and request.epoch == EPOCH
        await trio.sleep(24 if peer in self.slow else 0.1)
        return encode_listing([])

    @property
    def honest(self):
        """How often the others were asked what they hold."""
        return sum(count for peer, count in self.listed.items() if peer not in self.slow)


async def pulled(validator, manifest, slow):
    network = SlowPeers(slow)
    with trio.move_on_after(7_200):
        await synchroniser(validator, manifest, network=network).run()
    return network


async def test_peers_that_answer_slowly_leave_the_others_at_least_half_of_their_turns(
    validator, manifest, autojump_clock
):
    alone = await pulled(validator, manifest, 0)
    among = await pulled(validator, manifest, 4)
    assert among.honest >= alone.honest / 4
    assert all(among.listed[each] > 0 for each in among.slow)


async def test_a_node_whose_peers_are_all_slow_asks_them_all_the_same(validator, manifest, autojump_clock):
    assert sum((await pulled(validator, manifest, 8)).listed.values()) > 60


async def test_what_came_before_the_deadline_of_a_peer_stays(validator, author, manifest, autojump_clock):
    """The delivery of the newest epoch comes in time, and the listing of the epoch before does not."""
    server = Server(validator, round_of(author, 0), round_of(author, 0, epoch=EPOCH - 1))
    server.seconds = 12
    begun = trio.current_time()
    await synchroniser(validator, manifest, server).pull(server.peer)
    assert trio.current_time() - begun == sync.PEER_SECONDS
    assert waiting(validator, manifest) == 1
    assert validator.ledger.of(server.peer).evidence.bad == 0


# Who else is there.


def info(manifest, number, address="/ip4/192.0.2.7/tcp/4001", *, shard=0):
    return PeerInfo(
        peer_id(bytes([number]) * 32),
        (address,) if address else (),
        outbound=True,
        connected_at=0.0,
        follows=frozenset({rollouts_topic(manifest, shard)}),
    )


async def test_a_peer_names_those_it_is_connected_with_and_where_they_are(validator, manifest):
    server = Server(validator)
    server.peers = [info(manifest, 20), info(manifest, 21, "/ip4/192.0.2.8/tcp/4001"), info(manifest, 22, None)]
    await synchroniser(validator, manifest, server).meet(server.peer)
    named = {(server.peer, each.peer_id, each.addresses[0]) for each in server.peers[:2]}
    assert set(server.named) == named


async def test_a_peer_without_an_address_that_reserved_is_named_by_a_circuit(validator, manifest):
    server = Server(validator)
    guest = replace(info(manifest, 20, None), reserved=True)
    server.peers = [guest]
    await synchroniser(validator, manifest, server).meet(server.peer)
    assert server.named == [(server.peer, guest.peer_id, "/p2p-circuit")]


async def test_those_in_good_standing_are_named_first_and_who_asks_is_not(validator):
    trusted = info(validator.manifest, 29)
    validator.ledger = Ledger(validator.ledger._database, trusted=(trusted.peer_id,))
    peers = [*(info(validator.manifest, number) for number in range(20, 29)), trusted]
    responder = giver_of(validator, peers=lambda: peers)
    request = PeersRequest(2)
    answer = decode_peers(await responder.answer(peers[0].peer_id, encode_request(request)), request)
    named = {peer_id(each.key) for each in answer}
    assert len(named) == 2
    assert trusted.peer_id in named
    assert peers[0].peer_id not in named


async def test_only_who_follows_what_is_asked_about_is_named(validator):
    validator.manifest = replace(validator.manifest, shards=4)
    peers = [info(validator.manifest, 20 + shard, shard=shard) for shard in range(4)]
    responder = giver_of(validator, peers=lambda: peers)
    request = PeersRequest(16, shards=0b0110)
    answer = decode_peers(await responder.answer(ASKER, encode_request(request)), request)
    assert {peer_id(each.key) for each in answer} == {peers[1].peer_id, peers[2].peer_id}


@pytest.fixture
def parted(validator, manifest):
    """Who asks in a swarm of four shards, of which it follows the last two, and a server that knows nobody."""
    swarm = replace(manifest, shards=4)
    validator.manifest = swarm
    server = Server(validator)
    asker = synchroniser(validator, swarm, server)
    asker._subscriptions.shards = frozenset({2, 3})
    return asker, server


def company(swarm, shard, count=TARGET_PEERS):
    return [info(swarm, 20 + 10 * shard + number, shard=shard) for number in range(count)]


async def test_who_lacks_company_asks_for_those_who_follow_the_same(parted, validator):
    asker, server = parted
    asker._network.peers = lambda: company(validator.manifest, 2)
    server.peers = [*company(validator.manifest, 1), *company(validator.manifest, 3)]
    await asker.meet(server.peer)
    assert [decode_request(request).shards for request in server.asked] == [0b1000]
    assert {peer for _, peer, _ in server.named} == {each.peer_id for each in company(validator.manifest, 3)}


async def test_who_is_named_nobody_new_asks_for_somebody_else(parted, validator):
    asker, server = parted
    known = company(validator.manifest, 3, count=1)
    asker._network.peers = lambda: known
    server.peers = [*known, *company(validator.manifest, 1)]
    await asker.meet(server.peer)
    assert [decode_request(request).shards for request in server.asked] == [0b1100, ALL_SHARDS]
    assert len(server.named) == 2


async def test_who_has_company_or_follows_all_asks_for_anybody(parted, validator):
    asker, server = parted
    asker._network.peers = lambda: [*company(validator.manifest, 2), *company(validator.manifest, 3)]
    await asker.meet(server.peer)
    asker._subscriptions.shards = frozenset(range(4))
    asker._network.peers = list
    await asker.meet(server.peer)
    assert [decode_request(request).shards for request in server.asked] == [ALL_SHARDS] * 2


class Joining:
    """The network of a node that dialled one peer, which names others. Time is virtual."""

    def __init__(self, manifest, answer=()):
        self.connected = [info(manifest, 20)]
        self.answer = encode_peers(answer)
        self.asked = []
        self.tried = []

    def peers(self):
        return self.connected

    async def ask(self, _peer, data):
        if not isinstance(decode_request(data), PeersRequest):
            return encode_listing([])
        self.asked.append(trio.current_time())
        return self.answer

    def try_address(self, _by, peer, _address):
        self.tried.append(peer)


async def joins(validator, manifest, network, seconds):
    with trio.move_on_after(seconds):
        await synchroniser(validator, manifest, network=network).run()


async def test_who_joins_asks_for_peers_soon_and_then_less_and_less_often(validator, manifest, autojump_clock):
    network = Joining(manifest)
    begun = trio.current_time()
    await joins(validator, manifest, network, 3_600)
    soon = [at for at in network.asked if at < begun + 15]
    assert soon[0] - begun <= 1.5 * sync.FIRST_INTERVAL
    assert 3 <= len(soon) <= 6
    assert len(network.asked) < 3_600 / sync.INTERVAL * 1.2 + len(soon)


async def test_who_finds_its_first_peer_late_asks_it_soon(validator, manifest, autojump_clock):
    network = Joining(manifest)
    met, network.connected = network.connected, []

    async def connect():
        await trio.sleep(100)
        network.connected = met

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await joins(validator, manifest, network, 105)
    assert network.asked


async def test_strangers_that_dial_in_are_not_asked_for_peers(validator, manifest, autojump_clock):
    network = Joining(manifest)
    network.connected = [replace(each, outbound=False) for each in network.connected]
    await joins(validator, manifest, network, 600)
    assert not network.asked


async def test_the_peers_of_an_answer_are_tried_in_random_order(validator, manifest):
    network = Joining(manifest, [PeerAddress(bytes([key]) * 32, "/ip4/192.0.2.7/tcp/1") for key in range(1, 17)])
    asker = synchroniser(validator, manifest, network=network)
    await asker.meet("peer")
    first = network.tried.copy()
    network.tried.clear()
    await asker.meet("peer")
    assert sorted(first) == sorted(network.tried)
    assert first != network.tried


async def test_wrong_introductions_are_charged_to_who_sent_them(validator, manifest):
    server = Server(validator)
    server.says[1] = encode_listing([])[:0]
    await synchroniser(validator, manifest, server).meet(server.peer)
    assert validator.ledger.of(server.peer).evidence.bad > 0
