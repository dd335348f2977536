"""The inbox against a dictionary: what waits, what makes room, and what a draw may give."""

import hashlib
from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sapo_node.ingest import pending
from sapo_node.ingest.pending import PendingQueue
from sapo_node.storage.database import Database
from sapo_node.trust.constants import MAX_AGE
from sapo_node.trust.defences import Defences
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
PER_PEER, IN_ALL = 3, 8
SMALL = Defences(pending_per_peer=PER_PEER, pending_rollouts=IN_ALL)

arriving = st.tuples(
    st.integers(0, len(KEYS) - 1),
    st.sampled_from([0, 4]),
    st.integers(0, 3),
    st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
)
"""Author, epoch, counter, and which of the two bodies came along."""


@cache
def rollout_of(author: int, epoch: int, counter: int) -> Rollout:
    """A signed round of two groups with both bodies."""
    texts = [f"{author} {epoch} {counter} {k}" for k in range(2)]
    bodies = [encode_body(Body((Completion(text, Finish.STOP),) * MANIFEST.completions)) for text in texts]
    claims = (True,) * MANIFEST.completions
    groups = tuple(GroupHeader(bytes(32), claims, hashlib.sha256(body).digest()) for body in bodies)
    payload = encode_header(Header(epoch, counter, groups))
    envelope = seal(payload, issuer=ISSUERS[author], sign=KEYS[author].sign, network_id=MANIFEST.network_id)
    return open_message(encode_message(envelope, tuple(bodies)), MANIFEST)


class InboxMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.database = Database(None, (pending.SCHEMA,))
        self.pending_queue = PendingQueue(self.database, MANIFEST, defences=SMALL)
        self.waiting: dict[bytes, Rollout] = {}
        """By envelope id, in the order of arrival."""

    @rule(rollouts=st.lists(arriving, min_size=1, max_size=6))
    def rollouts_come(self, rollouts):
        for rollout in rollouts:
            self.put(*rollout)

    @rule(author=st.integers(0, len(KEYS) - 1))
    def one_is_drawn(self, author):
        drawn = self.pending_queue.draw(PEERS[author])
        if drawn is None:
            assert PEERS[author] not in map(self.peer_of, self.waiting.values())
        else:
            newest = [key for key, each in self.waiting.items() if self.peer_of(each) == PEERS[author]][-1]
            assert self.waiting.pop(newest) == drawn

    @rule(epoch=st.sampled_from([0, 4, 5, 8, 9]))
    def an_epoch_begins(self, epoch):
        self.pending_queue.advance(epoch)
        self.waiting = {key: each for key, each in self.waiting.items() if epoch - each.header.epoch <= MAX_AGE}

    @rule(author=st.integers(0, len(KEYS) - 1))
    def a_peer_is_forgotten(self, author):
        self.pending_queue.forget(PEERS[author])
        self.waiting = {key: each for key, each in self.waiting.items() if self.peer_of(each) != PEERS[author]}

    @precondition(lambda self: self.waiting)
    @rule()
    def the_node_restarts(self):
        self.pending_queue = PendingQueue(self.database, MANIFEST, defences=SMALL)

    @invariant()
    def it_holds_what_waits_and_within_its_bounds(self):
        holders = [self.peer_of(each) for each in self.waiting.values()]
        assert self.stored() == set(self.waiting)
        assert len(self.pending_queue) == len(holders) <= IN_ALL
        assert self.pending_queue.peers() == sorted(set(holders))
        assert all(holders.count(peer) <= PER_PEER for peer in holders)

    def put(self, author, epoch, counter, keep):
        whole = rollout_of(author, epoch, counter)
        came = replace(whole, bodies=tuple(body if k else None for body, k in zip(whole.bodies, keep, strict=True)))
        known = self.waiting.get(came.opened.envelope_id)
        others = {envelope_id: each for envelope_id, each in self.waiting.items() if each is not known}
        self.pending_queue.put(came)
        if known:
            came = replace(came, bodies=tuple(a or b for a, b in zip(came.bodies, known.bodies, strict=True)))
        held = {peer: [key for key, each in others.items() if self.peer_of(each) == peer] for peer in PEERS}
        if len(held[PEERS[author]]) == PER_PEER:
            del others[held[PEERS[author]][0]]
        elif len(others) == IN_ALL:
            most = max(sorted(PEERS), key=lambda peer: len(held[peer]))
            del others[held[most][0]]
        self.waiting = {**others, came.opened.envelope_id: came}

    def stored(self) -> set[bytes]:
        return {row[0] for row in self.database.rows("SELECT envelope_id FROM inbox")}

    def peer_of(self, rollout: Rollout) -> str:
        return peer_id(rollout.opened.issuer)


def test_the_inbox_gives_the_newest_first_and_makes_room_where_most_is_held_and_oldest():
    """With its bounds made small enough to be met."""
    run_state_machine_as_test(InboxMachine, settings=settings())
