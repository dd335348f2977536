"""The whole validator against a list of what came through it: verdict, reason and who is charged are predicted.

The messages are real and signed. The model knows of each how it was made, and goes through the steps of the spec
(gossip) with lists and sets in the place of books.
"""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sapo_node.app.node import Parts
from sapo_node.app.state import SCHEMA
from sapo_node.gossip.verdict import Verdict
from sapo_node.ingest.validator import Ignored
from sapo_node.storage.counters import Slot
from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.constants import MAX_AGE, Fact, Tier
from sapo_node.trust.ledger import Account, Ledger
from sapo_node.trust.limits import Limits
from sapo_protocol import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Layer,
    encode_body,
    encode_header,
    encode_message,
    load_manifest,
    parse_envelope,
    peer_id,
    seal,
)
from sapo_protocol.cbor import encode
from validator_parts import ValidatorParts

EPOCH, SKEW, GROUPS, ROUNDS = 600, 30, 2, 8
MANIFEST = replace(load_manifest("starter"), genesis=0, epoch_seconds=EPOCH, completions=2, max_rounds=ROUNDS)
LINK_BURST, UNKNOWN_BANS = 5, 1
PARTS = Parts(limits=Limits(strangers_burst=LINK_BURST, strangers_per_second=1e-9, unknown_bans=UNKNOWN_BANS))
"""What a link may bring of strangers it may bring until the node starts again."""
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(5)]
ISSUERS = [key.public_key().public_bytes_raw() for key in KEYS]
PEERS = [peer_id(issuer) for issuer in ISSUERS]
KNOWN, GIVER, OWN = 0, 1, 4
"""A peer who has become healthy, an untrusted peer who gave something, and this node itself."""
SENDERS = [*(peer_id(bytes([n]) * 32) for n in (9, 10, 11)), PEERS[2]]


@dataclass(frozen=True)
class Content:
    """What an author signs for a round."""

    author: int
    epoch: int
    counter: int
    text: str

    @property
    def round(self) -> tuple[int, int, int]:
        return self.author, self.epoch, self.counter


@cache
def bodies_of(content: Content) -> tuple[bytes, ...]:
    texts = [f"{content} {k}" for k in range(GROUPS)]
    return tuple(encode_body(Body((Completion((text,), Finish.STOP),) * MANIFEST.completions)) for text in texts)


@cache
def envelope_of(content: Content) -> bytes:
    digests = [hashlib.sha256(body).digest() for body in bodies_of(content)]
    claims = tuple(number % 2 == 0 for number in range(MANIFEST.completions))
    groups = tuple(GroupHeader(bytes(32), claims, digest) for digest in digests)
    payload = encode_header(Header(content.epoch, content.counter, groups))
    sign = KEYS[content.author].sign
    return seal(payload, issuer=ISSUERS[content.author], sign=sign, network_id=MANIFEST.network_id)


@cache
def envelope_id_of(content: Content) -> bytes:
    return parse_envelope(envelope_of(content), network_id=MANIFEST.network_id).envelope_id


def forged(envelope: bytes) -> bytes:
    return envelope[:-1] + bytes([envelope[-1] ^ 1])


TRUE, LEFT_OUT, SWAPPED = "true", "left out", "swapped"


@dataclass(frozen=True)
class Message:
    """A rollout message, and all that was done to it on its way."""

    content: Content
    bodies: tuple[str, ...]
    is_forged: bool = False

    @property
    def present(self) -> set[int]:
        return {k for k, body in enumerate(self.bodies) if body != LEFT_OUT}

    def encoded(self) -> bytes:
        envelope, true = envelope_of(self.content), (*bodies_of(self.content), b"one too many")
        bodies = [{TRUE: true[k], LEFT_OUT: None, SWAPPED: b"of another"}[body] for k, body in enumerate(self.bodies)]
        return encode_message(forged(envelope) if self.is_forged else envelope, tuple(bodies))


@dataclass(frozen=True)
class Evidence:
    """An evidence message of two contents."""

    one: Content
    other: Content
    is_sorted: bool = True
    is_forged: bool = False

    def encoded(self) -> bytes:
        first, second = sorted((self.one, self.other), key=envelope_id_of, reverse=not self.is_sorted)
        return encode([envelope_of(first), forged(envelope_of(second)) if self.is_forged else envelope_of(second)])


GARBAGE = {b"": Layer.FRAME, b"\xff" * 40: Layer.FRAME, b"\x82\x40": Layer.FRAME, b"\x82\x40\x80": Layer.ENVELOPE}
"""What is no rollout message, and the layer that says so."""

BUSY, IGNORE, REJECT = Verdict.BUSY, Verdict.IGNORE, Verdict.REJECT
PASSES = Verdict.ACCEPT, None


def decide(*steps):
    """Verdict and reason of the first step that refuses."""
    return next(((verdict, reason) for refuses, verdict, reason in steps if refuses), PASSES)


def handle(validator: ValidatorParts, sender: str, data: bytes, *, is_evidence: bool) -> Verdict:
    """The validator never waits, so nobody need run it."""
    judging = validator.ingest.handle_evidence(sender, data) if is_evidence else validator.verdict(data, sender)
    with pytest.raises(StopIteration) as done:
        judging.send(None)
    return done.value.value


def tell_of_earlier_epochs(database: Database) -> None:
    book = Ledger(database)
    for epoch in (1, 2, 3):
        book.at(epoch)
        for _ in range(constants.EARNED_PER_EPOCH):
            book.report(PEERS[KNOWN], Fact.VERIFIED_GROUP)
    book.report(PEERS[GIVER], Fact.VERIFIED_GROUP)


senders = st.sampled_from(SENDERS)
authors = st.sampled_from([0, 1, 2, 3] * 2 + [OWN])
offsets = st.sampled_from([0] * 12 + [-2, -1, -1, 1, 2])
counters = st.sampled_from([*range(4)] * 3 + [4, ROUNDS - 1, ROUNDS])
whole = (TRUE,) * GROUPS
stripped = st.sampled_from([whole, (TRUE, LEFT_OUT), (LEFT_OUT, TRUE), (LEFT_OUT,) * GROUPS])
tampered = st.lists(st.sampled_from([TRUE, LEFT_OUT, SWAPPED]), max_size=GROUPS + 1).map(tuple)
mostly = st.sampled_from([True] * 6 + [False])
texts = st.sampled_from(["one", "two"])
signed = st.builds(Content, authors, offsets, counters, st.sampled_from(["one", "one", "one", "two"]))
"""Of an epoch counted from today's; perhaps the second content of its round, perhaps over a bound."""


class IngestMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.database = Database(None, SCHEMA)
        tell_of_earlier_epochs(self.database)
        self.now = 5.0 * EPOCH + 100
        self.other_node = ValidatorParts(Database(None, SCHEMA), MANIFEST, random.Random(0), parts=PARTS)
        """Its books are empty but for who sent what it rejects."""
        self.forgotten = 0
        """What was let through is no longer known of epochs before."""
        self.past: list[Content] = []
        """All that was ever signed and sent."""
        self.accepted: dict[tuple[int, int, int], Content] = {}
        """By round."""
        self.taken: dict[Content, set[int]] = {}
        """The bodies let through."""
        self.waiting: dict[Content, set[int]] = {}
        """Those of them that wait in the book."""
        self.drawn: list[tuple[Content, int]] = []
        self.banned_by_evidence: set[int] = set()
        self.own: set[Content] = set()
        self.the_node_starts_again()

    @rule(
        sender=senders,
        contents=st.lists(signed, min_size=1, max_size=3),
        parts=st.lists(stripped, max_size=2),
        is_drawn=st.booleans(),
    )
    def rollouts_come(self, sender, contents, parts, is_drawn):
        """Each perhaps with bodies left out, which then come later, or again, or when the first were verified."""
        for content in map(self.dated, contents):
            for bodies in [*parts, whole]:
                self.send(sender, Message(content, bodies))
                if is_drawn:
                    self.a_rollout_is_drawn_for_verification(Tier.STRANGER)

    @rule(sender=senders, data=st.data(), bodies=stripped)
    def one_comes_again_with_other_bodies_left_out(self, sender, data, bodies):
        if self.past:
            self.send(sender, Message(data.draw(st.sampled_from(self.past[-6:])), bodies))

    @rule(sender=senders, data=st.data(), bodies=tampered, is_forged=st.booleans())
    def one_comes_again_tampered_with(self, sender, data, bodies, is_forged):
        if self.past:
            self.send(sender, Message(data.draw(st.sampled_from(self.past[-6:])), bodies, is_forged))

    @rule(sender=senders, data=st.data(), text=texts)
    def its_author_signs_another_content_for_the_round(self, sender, data, text):
        if self.past:
            content = data.draw(st.sampled_from(self.past[-6:]))
            self.send(sender, Message(replace(content, text=f"not {text}"), whole))

    @rule(sender=senders, garbage=st.sampled_from(sorted(GARBAGE)), count=st.sampled_from([1, 1, 1, 1, 1, 25]))
    def garbage_comes(self, sender, garbage, count):
        for _ in range(count):
            is_welcome = self.validator.ledger.admits(sender)
            expected = (REJECT, GARBAGE[garbage]) if is_welcome else (IGNORE, Ignored.SENDER_BANNED)
            self.judge(sender, garbage, expected)

    @rule(sender=senders, offset=offsets, counter=st.integers(0, 1), is_kept=st.booleans())
    def the_own_key_signs(self, sender, offset, counter, is_kept):
        """Here, or in a copy of this node."""
        content = self.dated(Content(OWN, offset, counter, "one"))
        if is_kept and content not in self.own:
            self.validator.counters.keep(Slot(content.epoch, counter), envelope_id_of(content), b"message")
            self.own.add(content)
        self.send(sender, Message(content, whole))

    @rule(sender=senders, author=authors | st.just(OWN), is_right=st.tuples(mostly, mostly, mostly, mostly, mostly))
    def evidence_comes(self, sender, author, is_right):
        """Mostly two contents of one author for one round, in the right order, with two valid signatures."""
        two_contents, same_author, same_round, is_sorted, is_signed = is_right
        one = self.dated(Content(author, 0, 0, "one"))
        other = replace(one, text="two" if two_contents else "one", counter=0 if same_round else 1)
        other = other if same_author else replace(other, author=KNOWN)
        evidence = Evidence(one, other, is_sorted, not is_signed)
        expected, alarms = self.expected_of_evidence(sender, evidence), len(self.validator.fatal)
        self.judge(sender, evidence.encoded(), expected, is_evidence=True)
        if expected == PASSES:
            self.ban(one.author)
        assert len(self.validator.fatal) - alarms == int(expected == (IGNORE, Ignored.EQUIVOCATION))

    @rule(seconds=st.sampled_from([EPOCH, EPOCH // 2, EPOCH - SKEW - 101, EPOCH - SKEW - 100, 1]), is_noticed=mostly)
    def time_passes(self, seconds, is_noticed):
        """The node enters an epoch when its next round begins, which may be late."""
        self.now = max(4.0 * EPOCH, self.now + seconds)
        self.validator.clock.time = self.now
        if is_noticed:
            self.an_epoch_is_entered()

    @rule(tier=st.sampled_from(Tier))
    def a_rollout_is_drawn_for_verification(self, tier):
        turn = self.validator.book.draw(tier)
        if turn is None:
            assert tier not in {self.tier_of(content) for content in self.waiting}
            return
        rollout = turn.rollout
        (content,) = [each for each in self.waiting if envelope_id_of(each) == rollout.opened.envelope_id]
        assert self.tier_of(content) is tier
        fresh = self.waiting.pop(content)
        assert rollout.bodies == tuple(body if k in fresh else None for k, body in enumerate(bodies_of(content)))
        self.drawn += [(content, k) for k in fresh]

    @rule(author=st.integers(0, len(PEERS) - 1))
    def a_peer_connects(self, author):
        self.connected.add(PEERS[author])
        self.validator.ingest.begin_link(PEERS[author])

    @rule(author=st.integers(0, len(PEERS) - 1))
    def a_peer_disconnects(self, author):
        self.connected.discard(PEERS[author])
        self.validator.ingest.end_link(PEERS[author])

    @rule()
    def the_node_starts_again(self):
        self.validator = ValidatorParts(self.database, MANIFEST, random.Random(0), KEYS[OWN], parts=PARTS)
        self.validator.clock.time = self.now
        self.connected = set[str]()
        self.brought = Counter[str]()
        """Rollouts of strangers, by the link that brought them, but for those of connected peers and of its own."""
        self.an_epoch_is_entered()

    @invariant()
    def what_waits_is_what_was_let_through(self):
        waiting = {row[0] for row in self.database.rows("SELECT envelope_id FROM arrived")}
        assert waiting == {envelope_id_of(content) for content in self.waiting}

    @invariant()
    def no_body_is_drawn_twice(self):
        assert len(set(self.drawn)) == len(self.drawn)

    @invariant()
    def equivocators_are_convicted_and_nobody_else(self):
        for author, peer in enumerate(PEERS):
            assert (self.validator.ledger.banned_by_evidence(peer) is not None) is (author in self.banned_by_evidence)
            assert author not in self.banned_by_evidence or not self.validator.ledger.admits(peer)

    def today(self) -> int:
        return int(self.now) // EPOCH

    def dated(self, content: Content) -> Content:
        return replace(content, epoch=max(0, self.today() + content.epoch))

    def an_epoch_is_entered(self) -> None:
        today = self.today()
        self.validator.ledger.at(today)
        self.validator.ingest.advance(today)
        self.unknown_banned = 0
        self.forgotten = max(self.forgotten, today - 1)
        self.accepted = {each.round: each for each in self.accepted.values() if each.epoch >= self.forgotten}
        self.taken = {each: bodies for each, bodies in self.taken.items() if each.epoch >= self.forgotten}
        self.waiting = {each: bodies for each, bodies in self.waiting.items() if each.epoch >= today - MAX_AGE}

    def send(self, sender: str, message: Message) -> None:
        content = message.content
        self.past.append(content)
        expected, alarms = self.expected(sender, message), len(self.validator.fatal)
        is_heard = self.court_hears(content.author)
        # A node that stopped for an envelope takes those up to its epoch for its own.
        is_foreign = content not in self.own and not self.validator.counters._may_be_lost(content.epoch)
        self.judge(sender, message.encoded(), expected, epoch=content.epoch)
        if expected[1] is None:
            self.let_through(sender, message)
        if expected == (IGNORE, Ignored.EQUIVOCATION) and is_heard:
            self.ban(content.author)
        is_alarm = content.author == OWN and is_foreign and expected == (IGNORE, Ignored.DUPLICATE)
        assert len(self.validator.fatal) - alarms == int(is_alarm)

    def expected(self, sender: str, message: Message):
        """The steps of the spec, from what the model knows."""
        content, bodies, admits = message.content, message.bodies, self.validator.ledger.admits
        ahead = content.epoch * EPOCH - self.now
        is_new_here = content.author != KNOWN
        is_forwarded = content not in self.taken or len(message.present) == GROUPS
        verdict, reason = decide(
            (not admits(sender), IGNORE, Ignored.SENDER_BANNED),
            (content in self.taken and message.present <= self.taken[content], IGNORE, Ignored.DUPLICATE),
            (not admits(PEERS[content.author]), IGNORE, Ignored.ISSUER_BANNED),
            (message.is_forged, REJECT, Layer.SIGNATURE),
            (content.counter >= ROUNDS, REJECT, Layer.HEADER),
            (not -2 * EPOCH < ahead <= SKEW, IGNORE, Ignored.OUTSIDE_WINDOW),
            (content.epoch < self.forgotten, IGNORE, Ignored.OUTSIDE_WINDOW),
            (len(bodies) != GROUPS or SWAPPED in bodies, REJECT, Layer.BODY),
            (content.author == OWN, IGNORE, Ignored.DUPLICATE),
            (self.accepted.get(content.round, content) != content, IGNORE, Ignored.EQUIVOCATION),
            (is_new_here and content.counter >= ROUNDS / 2, IGNORE, Ignored.OVER_QUOTA),
            (self.is_charged(content) and self.brought[sender] >= LINK_BURST, BUSY, Ignored.LINK_BUSY),
        )
        return (Verdict.KEEP, reason) if verdict is Verdict.ACCEPT and not is_forwarded else (verdict, reason)

    def expected_of_evidence(self, sender: str, evidence: Evidence):
        one, other = evidence.one, evidence.other
        is_wrong_pair = one.author != other.author or one == other or not evidence.is_sorted
        return decide(
            (not self.validator.ledger.admits(sender), IGNORE, Ignored.SENDER_BANNED),
            (is_wrong_pair, REJECT, Layer.EVIDENCE),
            (not self.court_hears(one.author), IGNORE, Ignored.KNOWN_EVIDENCE),
            (evidence.is_forged, REJECT, Layer.SIGNATURE),
            (one.round != other.round, REJECT, Layer.EVIDENCE),
            (one.author == OWN, IGNORE, Ignored.EQUIVOCATION),
        )

    def is_charged(self, content: Content) -> bool:
        """Whether the link of the sender pays for a rollout: its author has none of its own, or that has ended."""
        return content.author != KNOWN and PEERS[content.author] not in self.connected

    def court_hears(self, author: int) -> bool:
        has_place = author in (KNOWN, GIVER) or self.unknown_banned < UNKNOWN_BANS
        return author not in self.banned_by_evidence and has_place

    def ban(self, author: int) -> None:
        self.banned_by_evidence.add(author)
        self.unknown_banned += author not in (KNOWN, GIVER)
        self.waiting = {each: bodies for each, bodies in self.waiting.items() if each.author != author}

    def let_through(self, sender: str, message: Message) -> None:
        content = message.content
        fresh = message.present - self.taken.setdefault(content, set())
        self.accepted[content.round] = content
        self.taken[content] |= fresh
        self.waiting.setdefault(content, set()).update(fresh)
        self.brought[sender] += self.is_charged(content)

    def judge(self, sender: str, data: bytes, expected, *, epoch: int = 0, is_evidence: bool = False) -> None:
        """Send it, compare verdict and reason, and see that no account changed but that of who is to blame."""
        verdict, reason = expected
        before, counts = self.accounts(), self.validator.ingest.refused.copy()
        assert handle(self.validator, sender, data, is_evidence=is_evidence) is verdict
        assert self.validator.ingest.refused - counts == ({reason: 1} if reason else {})
        after = self.accounts()
        changed = {peer for peer in after if after[peer] != before.get(peer)}
        if verdict is REJECT:
            blameless = before.get(sender, Account(sender))
            assert changed == {sender}
            assert after[sender].evidence == blameless.evidence.after(Fact.INVALID_MESSAGE)
            assert self.other_node_judges(data, epoch, is_evidence) is REJECT
        else:
            assert all(self.validator.ledger.banned_by_evidence(peer) for peer in changed)

    def other_node_judges(self, data: bytes, epoch: int, is_evidence) -> Verdict:
        """Of a new sender, in the epoch of the message: what is rejected is wrong by its bytes alone."""
        self.other_node.clock.time = epoch * EPOCH
        sender = f"sender {self.other_node.ingest.refused.total()}"
        return handle(self.other_node, sender, data, is_evidence=is_evidence)

    def tier_of(self, content: Content) -> Tier:
        return Tier.PROVEN if content.author == KNOWN else Tier.STRANGER

    def accounts(self) -> dict[str, Account]:
        return {account.peer: account for account in self.validator.ledger.accounts()}


def test_the_validator_does_what_the_steps_say_and_blames_nobody_else():
    """With its common budgets made small enough to be met."""
    run_state_machine_as_test(IngestMachine, settings=settings(max_examples=3 * settings().max_examples))


def test_a_clock_set_back_takes_no_round_twice():
    validator = ValidatorParts(Database(None, SCHEMA), MANIFEST, random.Random(0), parts=PARTS)
    message = Message(Content(1, 5, 0, "one"), whole).encoded()
    verdicts = []
    for now, entered in ((5.5, 5), (7.1, 7), (6.9, 7)):
        validator.clock.time = now * EPOCH
        validator.ingest.advance(entered)
        verdicts.append(handle(validator, SENDERS[0], message, is_evidence=False))
    assert verdicts == [Verdict.ACCEPT, IGNORE, IGNORE]


def test_each_epoch_has_a_budget_of_convictions():
    validator = ValidatorParts(Database(None, SCHEMA), MANIFEST, random.Random(0), parts=PARTS)
    one, other = (Evidence(*(Content(author, 5, 0, text) for text in ("a", "b"))).encoded() for author in (1, 2))
    verdicts = [handle(validator, SENDERS[0], evidence, is_evidence=True) for evidence in (one, other)]
    validator.ingest.advance(6)
    assert [*verdicts, handle(validator, SENDERS[0], other, is_evidence=True)] == [
        Verdict.ACCEPT,
        IGNORE,
        Verdict.ACCEPT,
    ]
