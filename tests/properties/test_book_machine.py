"""The rollouts that wait, against a dictionary: what waits, what makes room, and what a draw may give."""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sapo_node.groups import book
from sapo_node.groups.book import Book, Turn
from sapo_node.storage.database import Database
from sapo_node.trust.constants import MAX_AGE, Tier
from sapo_node.trust.limits import Limits
from sapo_protocol import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Rollout,
    encode_body,
    encode_header,
    encode_message,
    load_manifest,
    open_message,
    peer_id,
    seal,
)

MANIFEST = replace(load_manifest("starter"), genesis=0)
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(4)]
ISSUERS = [key.public_key().public_bytes_raw() for key in KEYS]
PEERS = [peer_id(issuer) for issuer in ISSUERS]
PER_PEER, IN_TIER, MOST_CREDIT = 4, 6, 4
SMALL = Limits(pending_per_peer=PER_PEER, pending_places=IN_TIER, turn_groups=1)
links, tiers = st.sampled_from([*PEERS[:2], "c"]), st.sampled_from(Tier)

arriving = st.tuples(
    st.integers(0, len(KEYS) - 1),
    st.sampled_from([0, 4]),
    st.integers(0, 3),
    st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
)
"""Author, epoch, counter, and which of the two bodies came along."""


@dataclass(eq=False)
class Waiting:
    """A rollout in the queue, and how it came there."""

    rollout: Rollout
    link: str
    tier: Tier
    groups: set[int]

    @property
    def peer(self) -> str:
        return peer_id(self.rollout.opened.issuer)


@cache
def rollout_of(author: int, epoch: int, counter: int) -> Rollout:
    """A signed round of two groups with both bodies."""
    texts = [f"{author} {epoch} {counter} {k}" for k in range(2)]
    bodies = [encode_body(Body((Completion((text,), Finish.STOP),) * MANIFEST.completions)) for text in texts]
    claims = (True,) * MANIFEST.completions
    groups = tuple(GroupHeader(bytes(32), claims, hashlib.sha256(body).digest()) for body in bodies)
    payload = encode_header(Header(epoch, counter, groups))
    envelope = seal(payload, issuer=ISSUERS[author], sign=KEYS[author].sign, network_id=MANIFEST.network_id)
    return open_message(encode_message(envelope, tuple(bodies)), MANIFEST)


class WaitingMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.database = Database(None, (book.SCHEMA,))
        self.waiting: dict[bytes, Waiting] = {}
        """By envelope id, in the order of arrival."""
        self.the_node_restarts()

    @rule(rollouts=st.lists(arriving, min_size=1, max_size=6), link=links, tier=tiers)
    def rollouts_come(self, rollouts, link, tier):
        for rollout in rollouts:
            self.put(rollout, link, tier)

    @rule(tier=tiers, last=st.sets(st.sampled_from(PEERS)))
    def one_is_drawn(self, tier, last):
        drawn = self.book.draw(tier, last=last.__contains__)
        there = [each for each in self.waiting.values() if each.tier == tier]
        if drawn is None:
            assert not there
            return
        chosen = self.waiting[drawn.rollout.opened.envelope_id]
        assert chosen.tier is tier
        assert chosen is [each for each in there if (each.link, each.peer) == (chosen.link, chosen.peer)][-1]
        assert chosen.peer not in last or all(each.peer in last for each in there)
        self.one_group_is_taken(chosen, drawn)

    def one_group_is_taken(self, chosen: Waiting, turn: Turn) -> None:
        """With its body, if that is here. The other group waits on in the same place, as what arrived last."""
        envelope_id = turn.rollout.opened.envelope_id
        del self.waiting[envelope_id]
        [k] = turn.groups
        assert k in chosen.groups
        assert turn.rollout.bodies[k] == chosen.rollout.bodies[k]
        chosen.groups -= {k}
        assert bool(book.waiting_of(self.database, envelope_id.hex())) is bool(chosen.groups)
        if chosen.groups:
            left = tuple(None if number == k else body for number, body in enumerate(chosen.rollout.bodies))
            chosen.rollout = replace(chosen.rollout, bodies=left)
            self.waiting[envelope_id] = chosen

    @rule(epoch=st.sampled_from([0, 4, 5, 8, 9]))
    def an_epoch_begins(self, epoch):
        self.book.advance(epoch)
        self.keep(lambda each: epoch - each.rollout.header.epoch <= MAX_AGE)

    @rule(author=st.integers(0, len(KEYS) - 1))
    def a_peer_is_forgotten(self, author):
        self.book.forget(PEERS[author])
        self.keep(lambda each: each.peer != PEERS[author])

    @rule(author=st.integers(0, len(KEYS) - 1), groups=st.sampled_from([0, 0, 1, 2, 4]))
    def a_rollout_was_verified(self, author, groups):
        self.book.lottery.credit(PEERS[author], groups)
        credit = self.credit.pop(PEERS[author], 0)
        self.credit[PEERS[author]] = max(0, min(MOST_CREDIT, credit + groups if groups else credit - 1))

    @rule(link=links)
    def a_link_ends(self, link):
        self.book.end_link(link)
        for each in self.waiting.values():
            each.link = "" if each.link == link else each.link

    @rule()
    def the_node_restarts(self):
        for each in self.waiting.values():
            each.link = ""
        self.credit: dict[str, int] = {}
        self.book = Book(self.database, MANIFEST, rng=random.Random(0), limits=SMALL)

    @invariant()
    def it_holds_what_waits_and_within_its_bounds(self):
        assert self.stored() == set(self.waiting)
        assert self.book.waiting == len(self.waiting)
        assert all(count <= IN_TIER for count in Counter(each.tier for each in self.waiting.values()).values())
        assert all(count <= PER_PEER for count in Counter(each.peer for each in self.waiting.values()).values())

    def put(self, rollout, link, tier):
        author, epoch, counter, keep = rollout
        whole = rollout_of(author, epoch, counter)
        came = replace(whole, bodies=tuple(body if k else None for body, k in zip(whole.bodies, keep, strict=True)))
        known = self.waiting.pop(came.opened.envelope_id, None)
        groups = {k for k, kept in enumerate(keep) if kept} if known else {0, 1}
        self.book.arrive(came, link=link, tier=tier, groups=sum(1 << k for k in groups))
        if known:
            groups |= known.groups
            bodies = tuple(a or b for a, b in zip(came.bodies, known.rollout.bodies, strict=True))
            came = replace(came, bodies=bodies)
        others, dropped = list(self.waiting.values()), self.dropped()
        of_peer = [each for each in others if each.peer == PEERS[author]]
        if len(of_peer) == PER_PEER:
            dropped.remove(of_peer[0])
            others.remove(of_peer[0])
        in_tier = [each for each in others if each.tier == tier]
        if len(in_tier) == IN_TIER:
            self.gave_way(dropped.pop(), in_tier)
        assert dropped == []
        gone = self.dropped()
        self.keep(lambda each: each not in gone)
        self.waiting[came.opened.envelope_id] = Waiting(came, link, tier, groups)

    def dropped(self) -> list[Waiting]:
        stored = self.stored()
        return [each for key, each in self.waiting.items() if key not in stored]

    def gave_way(self, dropped: Waiting, in_tier: list[Waiting]) -> None:
        """It was the oldest of an issuer that held most beyond its credit on its link, and that link held most in the
        tier. Rollouts that the peer of the link signed give way only where no others wait there.
        """
        links = Counter(each.link for each in in_tier)
        issuers = Counter(each.peer for each in in_tier if each.link == dropped.link)
        others = {peer: held - self.credit.get(peer, 0) for peer, held in issuers.items() if peer != dropped.link}
        others = others or dict(issuers)
        assert links[dropped.link] == max(links.values())
        assert dropped.peer in others
        assert others[dropped.peer] == max(others.values())
        assert dropped is next(each for each in in_tier if (each.link, each.peer) == (dropped.link, dropped.peer))

    def keep(self, stays) -> None:
        self.waiting = {key: each for key, each in self.waiting.items() if stays(each)}

    def stored(self) -> set[bytes]:
        return {row[0] for row in self.database.rows("SELECT envelope_id FROM arrived")}


def test_the_book_gives_the_newest_first_and_makes_room_where_most_is_held_and_oldest():
    """With its bounds made small enough to be met."""
    run_state_machine_as_test(WaitingMachine, settings=settings())
