"""The replay window against a dictionary: each round is accepted once, and each of its bodies is taken once."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sapo_node.ingest import validator
from sapo_node.ingest.validator import ReplayWindow
from sapo_node.storage.database import Database
from sapo_protocol import Header, Opened, load_manifest

ISSUERS = (b"A" * 32, b"B" * 32)
EPOCHS, COUNTERS, CONTENTS, BODIES = range(5), range(2), ("one", "two"), range(3)


@dataclass(frozen=True)
class Key:
    issuer: bytes
    epoch: int
    counter: int

    def header(self) -> Header:
        return Header(self.epoch, self.counter, ())

    def opened(self, content: str) -> Opened:
        name = f"{self.issuer!r} {self.epoch} {self.counter} {content}".encode()
        return Opened(self.issuer, b"id of " + name, b"", b"envelope of " + name)


KEYS = tuple(Key(issuer, epoch, counter) for issuer in ISSUERS for epoch in EPOCHS for counter in COUNTERS)


@dataclass
class Entry:
    content: str
    bodies: set[int]


def bits(bodies: set[int]) -> int:
    return sum(2**k for k in bodies)


MANIFEST = load_manifest("starter")


class ReplayMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.database = Database(None, (validator.SCHEMA,))
        self.window = ReplayWindow(self.database, MANIFEST)
        self.entries: dict[Key, Entry] = {}
        self.taken: list[tuple[Key, int]] = []
        self.closed_below = 0

    @rule(
        key=st.sampled_from(KEYS),
        content=st.sampled_from(CONTENTS),
        bodies=st.sets(st.sampled_from(BODIES)),
    )
    def an_envelope_arrives(self, key, content, bodies):
        """Taken in as the validator does it: not before the window, not against the first, each body at most once."""
        if not self.window.remembers(key.epoch):
            return
        opened = key.opened(content)
        first, received = self.window.first(key.issuer, key.header()), self.window.received(opened.envelope_id)
        if first is not None and first != opened.envelope:
            assert self.entries[key].content != content
            assert received is None
            return
        known = self.entries.setdefault(key, Entry(content, set()))
        fresh = {k for k in bodies if not (received or 0) >> k & 1}
        self.window.accept(opened, key.header(), received=(received or 0) | bits(bodies))
        self.taken += [(key, k) for k in sorted(fresh)]
        known.bodies |= bodies

    @rule(epoch=st.sampled_from(EPOCHS))
    def an_epoch_is_forgotten(self, epoch):
        self.window.forget_before(epoch)
        self.closed_below = max(self.closed_below, epoch)
        self.entries = {key: entry for key, entry in self.entries.items() if key.epoch >= epoch}

    @rule()
    def the_node_restarts(self):
        self.window = ReplayWindow(self.database, MANIFEST)

    @invariant()
    def it_holds_the_first_envelope_of_each_round_and_the_bodies_that_came_with_it(self):
        for key in KEYS:
            entry = self.entries.get(key)
            expected = key.opened(entry.content).envelope if entry else None
            assert self.window.first(key.issuer, key.header()) == expected
            for content in CONTENTS:
                came = bits(entry.bodies) if entry and entry.content == content else None
                assert self.window.received(key.opened(content).envelope_id) == came

    @invariant()
    def what_was_forgotten_is_known_to_be(self):
        assert [self.window.remembers(epoch) for epoch in EPOCHS] == [epoch >= self.closed_below for epoch in EPOCHS]

    @invariant()
    def no_body_was_taken_twice(self):
        assert len(set(self.taken)) == len(self.taken)


def test_the_replay_window_does_what_a_dictionary_would():
    run_state_machine_as_test(ReplayMachine, settings=settings())
