"""Bodies on demand: where they come from, and what peers that withhold, stall, lie or ask without end can do."""

from dataclasses import replace

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fetching import fetcher_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.book import Turn
from sapo_node.groups.record import Unusable
from sapo_node.ingest import fetch, sync
from sapo_node.ingest.sync import Responder
from sapo_node.net.interface import AskFailed, PeerInfo, Verdict
from sapo_node.trust.constants import Tier
from sapo_node.verification import verifier as verification
from sapo_node.verification.verifier import VerificationScheduler, Verifier
from sapo_protocol import (
    GetRequest,
    InventoryItem,
    decode_delivery,
    decode_request,
    encode_delivery,
    encode_message,
    encode_request,
    peer_id,
    rollouts_topic,
)
from sapo_protocol.limits import MAX_HOPS
from swarm_parts import OpenScorer

EPOCH = 5
BRINGER, ASKER, *OTHERS = [peer_id(bytes([number]) * 32) for number in range(40, 48)]


def round_of(author, counter=0, *, groups=1, right=3):
    """A true rollout with all bodies."""
    made = [right_and_wrong(author, k, epoch=EPOCH, counter=counter, right=right) for k in range(groups)]
    return rollout(author, [group for group, _, _ in made], [body for _, body, _ in made], epoch=EPOCH, counter=counter)


def bare(whole):
    return replace(whole, bodies=(None,) * len(whole.bodies))


def id_of(whole):
    return whole.opened.envelope_id


def message_of(whole):
    return encode_message(whole.opened.envelope, whole.bodies)


def answer_of(whole, request):
    """The delivery of the requested bodies of a rollout."""
    [wanted] = request.want
    bodies = tuple(body if wanted.bodies >> k & 1 else None for k, body in enumerate(whole.bodies))
    return encode_delivery([message_of(replace(whole, bodies=bodies))])


class Peers:
    """The connected peers of a node. Each answers after some seconds with a rollout, or as it is told."""

    def __init__(self, manifest, whole, *peers):
        self.whole = whole
        self.connected = [
            PeerInfo(each, (), outbound=True, connected_at=0.0, follows=frozenset({rollouts_topic(manifest, 0)}))
            for each in peers
        ]
        self.asked = []
        """The peer and the hops of each request."""
        self.open, self.most_open = 0, 0
        self.seconds = {}
        self.says = {}

    def peers(self):
        return self.connected

    async def ask(self, peer, data):
        request = decode_request(data)
        self.asked.append((peer, request.hops))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await trio.sleep(self.seconds.get(peer, 0.1))
        finally:
            self.open -= 1
        answer = self.says.get(peer, answer_of)(self.whole, request)
        if answer is None:
            raise AskFailed("no answer")
        return answer


def nothing(_whole, _request):
    return encode_delivery([])


def lies(whole, request):
    """A body whose last byte is another one."""
    [first, *rest] = whole.bodies
    return answer_of(replace(whole, bodies=(first[:-1] + bytes([first[-1] ^ 1]), *rest)), request)


class Node:
    """The parts of a node that fetch bodies, verify them and pass requests on."""

    def __init__(self, validator, author, nursery):
        self.validator, self.author = validator, author
        self.manifest, self.ledger, self.book = validator.manifest, validator.ledger, validator.book
        self._nursery = nursery
        swarm, message_store = validator.swarm, validator.message_store
        self.fetcher = fetcher_of(swarm, validator.database, self.ledger, message_store)
        self.verifier = Verifier(swarm, OpenScorer(), self.ledger)
        self.scheduler = VerificationScheduler(
            book=self.book, verifier=self.verifier, ledger=self.ledger, fetcher=self.fetcher
        )
        self.responder = self.new_responder()

    def new_responder(self):
        """A responder of which no peer has requested anything yet."""
        parts = {"message_store": self.validator.message_store, "ledger": self.ledger, "fetcher": self.fetcher}
        return Responder(self.validator.swarm, peers=list, **parts)

    async def receives_envelope(self, groups=1, right=3):
        """A rollout whose envelope the bringer has brought without bodies."""
        whole = round_of(self.author, groups=groups, right=right)
        assert await self.validator.verdict(message_of(bare(whole)), BRINGER) is Verdict.ACCEPT
        return whole

    async def is_connected(self, whole, *peers):
        """The network of these peers, from which the node fetches from now on."""
        network = Peers(self.manifest, whole, *peers)
        self._nursery.start_soon(self.fetcher.run, network)
        await trio.testing.wait_all_tasks_blocked()
        return network

    async def fetch(self, turn):
        """The turn with the bodies that came, and the seconds that it took."""
        done = []
        ended = trio.Event()
        begun = trio.current_time()
        self.fetcher.begin(turn, lambda turn: (done.append(turn), ended.set()))
        await ended.wait()
        return done[0], trio.current_time() - begun

    async def draw_and_fetch(self):
        return await self.fetch(self.book.draw(Tier.STRANGER))

    async def answer(self, request, peer=ASKER):
        return await self.responder.answer(peer, encode_request(request))


@pytest.fixture
async def node(validator, author, nursery):
    return Node(validator, author, nursery)


@pytest.fixture
async def passing(node):
    """A node that has an envelope without its body: the rollout, and the network from which the node may get it."""
    whole = await node.receives_envelope()
    return whole, await node.is_connected(whole, ASKER, BRINGER)


@pytest.fixture
async def withheld(node):
    """Eight links of which each has brought an envelope of its own whose body no peer gives."""
    rounds = [round_of(withholding(node, number)) for number in range(8)]
    for whole in rounds:
        node.validator.ingest.begin_link(peer_id(whole.opened.issuer))
        await node.validator.verdict(message_of(bare(whole)), peer_id(whole.opened.issuer))
    network = await node.is_connected(rounds[0], BRINGER)
    network.seconds[BRINGER] = 60
    return rounds


def withholding(node, number):
    return replace(node.author, key=key_of(50 + number))


def key_of(number):
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


# Where bodies come from.


async def test_a_turn_gets_the_bodies_of_its_groups_from_the_issuer_if_it_is_connected(node, autojump_clock):
    whole = await node.receives_envelope(groups=2)
    issuer = peer_id(whole.opened.issuer)
    network = await node.is_connected(whole, *OTHERS, BRINGER, issuer)
    turn, _ = await node.draw_and_fetch()
    assert turn.rollout.bodies == whole.bodies
    assert network.asked == [(issuer, 0)]


async def test_nobody_passes_a_request_on_if_the_issuer_is_connected(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, *OTHERS, BRINGER, peer_id(whole.opened.issuer))
    network.says[peer_id(whole.opened.issuer)] = nothing
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0
    assert network.asked == [(peer_id(whole.opened.issuer), 0), (BRINGER, 0)]


async def test_a_connected_issuer_that_was_late_is_asked_again_however_many_others_there_are(node, autojump_clock):
    whole = await node.receives_envelope()
    issuer = peer_id(whole.opened.issuer)
    network = await node.is_connected(whole, *OTHERS, BRINGER, issuer)
    network.says = dict.fromkeys((*OTHERS, BRINGER), nothing)
    network.seconds[issuer] = fetch.HEDGE_SECONDS + 1
    await node.draw_and_fetch()
    network.seconds.clear()
    network.whole = second = round_of(node.author, counter=1)
    await node.validator.verdict(message_of(bare(second)), BRINGER)
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0


async def test_else_from_the_peer_that_brought_the_envelope(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, *OTHERS, BRINGER)
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0
    assert network.asked == [(BRINGER, MAX_HOPS)]


async def test_else_from_another_peer_of_the_topic(node, autojump_clock):
    whole = await node.receives_envelope()
    await node.is_connected(whole, OTHERS[0])
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0


async def test_a_body_that_is_here_is_not_requested(node, autojump_clock):
    whole = await node.receives_envelope()
    node.validator.message_store.put(whole)  # another peer has requested it here
    network = await node.is_connected(whole, BRINGER)
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0
    assert network.asked == []


async def test_a_fetched_body_is_served_to_others_and_not_accepted_again(node, autojump_clock):
    whole = await node.receives_envelope()
    await node.is_connected(whole, BRINGER)
    await node.draw_and_fetch()
    assert node.validator.message_store.message(InventoryItem(id_of(whole), 1)) == message_of(whole)
    assert await node.validator.verdict(message_of(whole)) is Verdict.IGNORE


async def test_a_group_whose_body_gossip_brings_meanwhile_is_verified_once(node, autojump_clock):
    whole = await node.receives_envelope()
    await node.is_connected(whole, BRINGER)
    drawn = node.book.draw(Tier.STRANGER)
    await node.validator.verdict(message_of(whole))
    turn, _ = await node.fetch(drawn)
    assert turn.groups == ()
    assert node.book.draw(Tier.STRANGER).groups == (0,)


async def test_no_body_is_requested_of_a_group_that_claims_no_advantage(node, autojump_clock):
    whole = await node.receives_envelope(right=0)
    network = await node.is_connected(whole, BRINGER)
    await node.scheduler.verify_pending(4)
    assert network.asked == []
    assert node.verifier.unusable == {Unusable.CLAIMED_ZERO_ADVANTAGE: 1}


# Peers that lie, stall, or have nothing.


async def test_a_wrong_body_is_charged_to_the_peer_that_sent_it_and_another_peer_is_asked(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER, OTHERS[0])
    network.says[BRINGER] = lies
    turn, seconds = await node.draw_and_fetch()
    assert turn.missing == 0
    assert seconds == pytest.approx(0.2)
    assert node.ledger.of(BRINGER).evidence.bad > 0
    assert node.ledger.of(peer_id(whole.opened.issuer)).evidence.bad == 0


@pytest.mark.parametrize("answer", [nothing, lambda *_: None], ids=["an empty answer", "no answer"])
async def test_a_missing_body_is_charged_to_nobody_and_another_peer_is_asked(node, answer, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER, OTHERS[0])
    network.says[BRINGER] = answer
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0
    assert node.ledger.of(BRINGER).evidence.bad == 0


async def test_a_peer_that_stalls_costs_a_few_seconds(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER, OTHERS[0])
    network.seconds[BRINGER] = 60
    turn, seconds = await node.draw_and_fetch()
    assert turn.missing == 0
    assert seconds == pytest.approx(fetch.HEDGE_SECONDS + 0.1)


async def test_a_peer_that_stalled_is_asked_after_the_others(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER, OTHERS[0])
    network.seconds[BRINGER] = 60
    await node.draw_and_fetch()
    network.asked.clear()
    second = round_of(node.author, counter=1)
    await node.validator.verdict(message_of(bare(second)), BRINGER)
    network.whole = second
    turn, seconds = await node.draw_and_fetch()
    assert turn.missing == 0
    assert network.asked == [(OTHERS[0], MAX_HOPS)]
    assert seconds == pytest.approx(0.1)


async def test_the_bodies_of_a_part_are_kept_and_the_next_peer_is_asked_for_the_rest(node, autojump_clock):
    whole = await node.receives_envelope(groups=2)
    network = await node.is_connected(whole, BRINGER, OTHERS[0])
    network.says[BRINGER] = lambda whole, _: encode_delivery(
        [message_of(replace(whole, bodies=(whole.bodies[0], None)))]
    )
    network.says[OTHERS[0]] = lambda whole, request: (
        answer_of(whole, request) if request.want[0].bodies == 0b10 else None
    )
    turn, _ = await node.draw_and_fetch()
    assert turn.rollout.bodies == whole.bodies


async def test_a_withheld_body_ends_its_turn_in_bounded_time_after_a_bounded_number_of_requests(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER, *OTHERS)
    network.seconds = dict.fromkeys((BRINGER, *OTHERS), 60)
    turn, seconds = await node.draw_and_fetch()
    assert turn.missing == 1
    assert seconds <= fetch.FETCH_SECONDS
    assert len(network.asked) == fetch.SOURCES


async def test_fewer_peers_are_asked_for_the_next_bodies_of_an_issuer_that_withholds(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER, *OTHERS)
    network.says = dict.fromkeys((BRINGER, *OTHERS), nothing)
    await node.draw_and_fetch()
    network.asked.clear()
    await node.validator.verdict(message_of(bare(round_of(node.author, counter=1))), BRINGER)
    await node.draw_and_fetch()
    assert len(network.asked) == fetch.HOP_SOURCES


async def test_an_issuer_whose_bodies_come_again_no_longer_withholds(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER)
    network.says[BRINGER] = nothing
    turn, _ = await node.draw_and_fetch()
    assert not node.fetcher.expects(turn)
    network.says.clear()
    turn, _ = await node.fetch(turn)
    assert node.fetcher.expects(turn)


async def test_one_peer_has_two_requests_for_bodies_at_a_time(node, autojump_clock):
    whole = round_of(node.author)
    network = await node.is_connected(whole, BRINGER)
    network.seconds[BRINGER] = 1
    for _ in range(4):
        node.fetcher.begin(Turn(bare(whole), (0,)), lambda _: None)
    await trio.sleep(4)
    assert len(network.asked) > 2
    assert network.most_open == fetch.LINK_REQUESTS


# A round beside withheld bodies.


async def test_a_round_waits_a_few_seconds_for_withheld_bodies_and_verifies_all_others(node, withheld, autojump_clock):
    for number, link in enumerate(OTHERS):
        node.validator.ingest.begin_link(link)
        whole = round_of(replace(node.author, key=key_of(70 + number)))
        await node.validator.verdict(message_of(whole), link)
    begun = trio.current_time()
    await node.scheduler.verify_pending(100)
    assert trio.current_time() - begun == pytest.approx(verification.WAIT_SECONDS)
    assert sum(node.book.per_peer().values()) == len(OTHERS)


async def test_a_round_does_not_wait_for_issuers_that_withheld_before(node, withheld, autojump_clock):
    await node.scheduler.verify_pending(100)
    await trio.sleep(fetch.FETCH_SECONDS)
    for number, whole in enumerate(withheld):
        second = round_of(withholding(node, number), counter=1)
        await node.validator.verdict(message_of(bare(second)), peer_id(whole.opened.issuer))
    begun = trio.current_time()
    await node.scheduler.verify_pending(100)
    assert trio.current_time() == begun


async def test_a_withheld_body_is_a_turn_without_a_group_and_no_offence(node, withheld, database, autojump_clock):
    await node.scheduler.verify_pending(100)
    await trio.sleep(fetch.FETCH_SECONDS)
    await node.scheduler.verify_pending(100)
    assert database.rows("SELECT why, count(*) FROM groups GROUP BY why") == [(Unusable.NO_BODY, len(withheld))]
    assert all(node.ledger.of(peer_id(whole.opened.issuer)).evidence.bad == 0 for whole in withheld)


async def test_bodies_that_come_after_a_round_are_verified_in_the_next(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER)
    network.seconds[BRINGER] = verification.WAIT_SECONDS + 0.5
    await node.scheduler.verify_pending(4)
    assert node.book.per_peer() == {}
    await trio.sleep(verification.WAIT_SECONDS)
    await node.scheduler.verify_pending(4)
    assert node.book.per_peer() == {peer_id(node.author.issuer): 1}


async def test_a_round_that_drew_ahead_waits_for_no_body_that_came_meanwhile(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER)
    network.seconds[BRINGER] = 2.0
    node.scheduler.draw_ahead(4)
    await trio.sleep(network.seconds[BRINGER])
    begun = trio.current_time()
    await node.scheduler.verify_pending(4)
    assert trio.current_time() == begun
    assert node.book.per_peer() == {peer_id(node.author.issuer): 1}


async def test_a_round_that_drew_ahead_waits_no_more_for_bodies_that_are_late(node, withheld, autojump_clock):
    node.scheduler.draw_ahead(4)
    await trio.sleep(fetch.HEDGE_SECONDS)
    whole = round_of(replace(node.author, key=key_of(70)))
    node.validator.ingest.begin_link(OTHERS[0])
    await node.validator.verdict(message_of(whole), OTHERS[0])
    begun = trio.current_time()
    turn = await node.scheduler._next(Tier.STRANGER, begun + verification.WAIT_SECONDS)
    assert trio.current_time() == begun
    assert turn.rollout == whole


# Requests that are passed on.


def wanting(whole, hops):
    return GetRequest((InventoryItem(id_of(whole), 1),), hops)


@pytest.mark.parametrize("hops", [1, MAX_HOPS])
async def test_a_body_that_is_not_here_is_fetched_from_its_bringer_with_a_hop_less(node, passing, hops, autojump_clock):
    whole, network = passing
    request = wanting(whole, hops)
    [delivered] = decode_delivery(await node.answer(request), request, node.manifest)
    assert delivered.message == message_of(whole)
    assert network.asked == [(BRINGER, hops - 1)]


async def test_a_request_without_hops_is_not_passed_on(node, passing, autojump_clock):
    whole, network = passing
    await node.answer(wanting(whole, 0))
    assert network.asked == []


async def test_a_request_is_never_passed_back_to_the_peer_that_made_it(node, passing, autojump_clock):
    whole, network = passing
    network.connected = network.connected[:1]
    await node.answer(wanting(whole, 4))
    assert network.asked == []


async def test_many_peers_that_request_one_body_cause_one_request(node, passing, autojump_clock):
    whole, network = passing
    answers = []

    async def ask(peer):
        answers.append(await node.answer(wanting(whole, 2), peer))

    async with trio.open_nursery() as asking:
        for peer in (ASKER, *OTHERS):
            asking.start_soon(ask, peer)
    assert answers == [encode_delivery([message_of(whole)])] * (1 + len(OTHERS))
    assert len(network.asked) == 1


async def test_a_node_that_passes_a_request_on_answers_before_the_asker_gives_up(node, passing, autojump_clock):
    whole, network = passing
    network.connected = Peers(node.manifest, whole, BRINGER, *OTHERS).connected
    network.seconds = dict.fromkeys((BRINGER, *OTHERS), 60)
    begun = trio.current_time()
    assert await node.answer(wanting(whole, 2)) is not None
    assert trio.current_time() - begun <= fetch.ANSWER_SECONDS + 2 * fetch.HOP_SECONDS


async def test_a_request_is_passed_on_to_a_second_peer_while_the_first_stalls(node, passing, autojump_clock):
    whole, network = passing
    network.connected = [*network.connected, *Peers(node.manifest, whole, OTHERS[0]).connected]
    network.seconds[BRINGER] = 60
    begun = trio.current_time()
    assert await node.answer(wanting(whole, 2)) == encode_delivery([message_of(whole)])
    assert network.asked == [(BRINGER, 1), (OTHERS[0], 1)]
    assert trio.current_time() - begun == pytest.approx(fetch.HOP_SECONDS + 0.1)


async def test_a_request_that_comes_back_over_another_peer_ends(node, autojump_clock):
    whole = await node.receives_envelope()
    network = await node.is_connected(whole, BRINGER)
    direct = network.ask

    async def ask(peer, data):
        await node.responder.answer(OTHERS[0], data)  # the bringer knows no other peer that may have the body
        return await direct(peer, data)

    network.ask = ask
    turn, _ = await node.draw_and_fetch()
    assert turn.missing == 0


async def test_a_request_that_fails_is_passed_on_to_two_peers(node, passing, autojump_clock):
    whole, network = passing
    network.connected = Peers(node.manifest, whole, BRINGER, *OTHERS).connected
    network.says = dict.fromkeys((BRINGER, *OTHERS), nothing)
    await node.answer(wanting(whole, 4))
    assert len(network.asked) == fetch.HOP_SOURCES


async def test_a_request_that_brought_nothing_is_not_passed_on_again(node, passing, autojump_clock):
    whole, network = passing
    network.says[BRINGER] = nothing
    await node.answer(wanting(whole, 4))
    network.asked.clear()
    await node.answer(wanting(whole, 4), OTHERS[0])
    assert network.asked == []


async def test_a_request_that_brought_nothing_does_not_stop_one_that_goes_farther(node, passing, autojump_clock):
    whole, network = passing
    network.says[BRINGER] = nothing
    await node.answer(wanting(whole, 1))
    network.asked.clear()
    await node.answer(wanting(whole, 2), OTHERS[0])
    assert network.asked != []


async def test_a_peer_without_bytes_for_the_longest_message_makes_nobody_fetch(
    node, passing, autojump_clock, monkeypatch
):
    """The envelope fits its bytes, and the largest message does not."""
    whole, network = passing
    monkeypatch.setattr(sync, "BURST_BYTES", node.manifest.max_message_bytes - 1)
    node.responder = node.new_responder()
    assert await node.answer(wanting(whole, 4)) is not None
    assert network.asked == []


async def test_bytes_that_were_set_aside_for_an_answer_come_back(node, passing, autojump_clock):
    _, network = passing
    network.says[BRINGER] = nothing
    requests = 2 * int(sync.BURST_BYTES // node.manifest.max_message_bytes)
    for counter in range(1, requests + 1):
        whole = round_of(node.author, counter=counter)
        await node.validator.verdict(message_of(bare(whole)), BRINGER)
        await node.answer(wanting(whole, 1))
    assert len(network.asked) == requests


async def test_a_body_that_an_issuer_gives_only_to_its_friends_comes_through_them(node, passing, autojump_clock):
    """This node is such a friend: it asks the issuer rather than the peer that brought the envelope."""
    whole, network = passing
    issuer = peer_id(node.author.issuer)
    network.connected = [*network.connected, *Peers(node.manifest, whole, issuer).connected]
    assert await node.answer(wanting(whole, 1)) == encode_delivery([message_of(whole)])
    assert network.asked == [(issuer, 0)]
