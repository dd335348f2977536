"""Assignment and epochs against arithmetic by hand: the digest over bytes written out here, time in whole numbers."""

import hashlib
import math
import struct
from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from sapo_protocol import TaskSpec, assign, epoch_at, epoch_start, in_window, load_manifest
from sapo_protocol.limits import MAX_EPOCH_SECONDS, MAX_UINT, MIN_EPOCH_SECONDS

STARTER = replace(load_manifest("starter"), genesis=0)
SKEW = 30

weights = st.lists(st.integers(1, 2**32) | st.integers(1, 3), min_size=1, max_size=6)
issuers = st.binary(min_size=32, max_size=32)
uints = st.integers(0, MAX_UINT) | st.integers(0, 300) | st.sampled_from([23, 24, 255, 256, 65_535, 65_536, 2**32])
lengths = st.sampled_from([5, 29, 30, 31, 600]) | st.integers(MIN_EPOCH_SECONDS, MAX_EPOCH_SECONDS)
geneses = st.integers(0, 2**40)


def catalogue(task_weights):
    """Entries that differ in nothing but their place and weight."""
    return replace(STARTER, tasks=tuple(TaskSpec("products", {"max_digits": n}, w) for n, w in enumerate(task_weights)))


def head(major, number):
    """The head of a deterministic CBOR item: the shortest of its five forms."""
    if number < 24:
        return bytes([major * 32 + number])
    for info, form, bound in ((24, ">B", 2**8), (25, ">H", 2**16), (26, ">I", 2**32)):
        if number < bound:
            return bytes([major * 32 + info]) + struct.pack(form, number)
    return bytes([major * 32 + 27]) + struct.pack(">Q", number)


def digest_by_hand(network_id, issuer, epoch, counter, k):
    domain = b"sapo/task/2"
    written = head(4, 6) + head(3, len(domain)) + domain
    written += head(2, 32) + network_id + head(2, 32) + issuer
    return hashlib.sha256(written + head(0, epoch) + head(0, counter) + head(0, k)).digest()


@given(weights, issuers, uints, uints, st.integers(0, 15))
@example([1, 2**32, 1], bytes(32), 0, 0, 0)
def test_dataset_and_seed_are_read_off_the_digest(task_weights, issuer, epoch, counter, k):
    manifest = catalogue(task_weights)
    digest = digest_by_hand(manifest.network_id, issuer, epoch, counter, k)
    (ticket, seed) = struct.unpack(">QI", digest[:12])
    ticket %= sum(task_weights)
    place = next(n for n in range(len(task_weights)) if ticket < sum(task_weights[: n + 1]))
    assigned = assign(manifest, issuer, epoch, counter, k)
    assert (assigned.spec, assigned.seed) == (manifest.tasks[place], seed % 2**31)


@given(issuers, uints, st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_over_all_tickets_each_entry_gets_its_weight(issuer, epoch, small_weights):
    """The rounds are told apart by their ticket, computed by hand; all rounds of one ticket get one entry, and the
    tickets of an entry are as many as it weighs."""
    manifest = catalogue(small_weights)
    entry_of = {}
    for counter in range(150):
        digest = digest_by_hand(manifest.network_id, issuer, epoch, counter, 0)
        ticket = int.from_bytes(digest[:8], "big") % sum(small_weights)
        spec = assign(manifest, issuer, epoch, counter, 0).spec
        assert entry_of.setdefault(ticket, spec) == spec
    if len(entry_of) == sum(small_weights):  # all tickets came up, as they nearly always do
        assert [list(entry_of.values()).count(spec) for spec in manifest.tasks] == small_weights
        assert [entry_of[ticket] for ticket in sorted(entry_of)] == sorted(entry_of.values(), key=manifest.tasks.index)


inputs = st.tuples(st.sampled_from([0, 1]), issuers, uints, uints, uints)


def seed_of(genesis, issuer, epoch, counter, k):
    return assign(replace(STARTER, genesis=genesis), issuer, epoch, counter, k).seed


@given(inputs, st.lists(inputs, max_size=3))
def test_an_assignment_is_the_same_whatever_was_derived_before(one, others):
    first = seed_of(*one)
    for other in others:
        seed_of(*other)
    assert seed_of(*one) == first


@given(inputs, inputs, st.integers(0, 4))
def test_each_input_alone_changes_the_seed(one, other, which):
    """But for a chance of one in two thousand million."""
    assume(one[which] != other[which])
    changed = (*one[:which], other[which], *one[which + 1 :])
    assert seed_of(*changed) != seed_of(*one)


def moments(genesis, length):
    """Clock readings anywhere, and just around the ends of epochs and the skew ahead of them."""
    ends = st.integers(0, 2**20).map(lambda epoch: genesis + epoch * length)
    shifts = st.sampled_from([0, -1, 1, -SKEW, -SKEW - 1, -SKEW + 1])
    around = st.builds(lambda end, shift, way: max(0.0, math.nextafter(end + shift, way)), ends, shifts, WAYS)
    return st.floats(0, 2**41) | around | st.builds(lambda end, shift: max(0.0, float(end + shift)), ends, shifts)


WAYS = st.sampled_from([-math.inf, math.inf])
clocks = st.tuples(geneses, lengths).flatmap(lambda pair: st.tuples(*map(st.just, pair), moments(*pair)))


def swarm(genesis, length):
    return replace(STARTER, genesis=genesis, epoch_seconds=length)


@given(clocks)
@example((0, 600, 600.0))
@example((0, 600, math.nextafter(600.0, 0)))
@example((1_000, 600, 999.5))
def test_an_epoch_lasts_from_its_start_to_just_before_the_next(clock):
    genesis, length, now = clock
    epoch = epoch_at(swarm(genesis, length), now)
    assert genesis + epoch * length <= Fraction(now) < genesis + (epoch + 1) * length


@given(geneses, lengths, st.integers(0, 2**20))
def test_an_epoch_is_the_one_that_runs_at_its_start(genesis, length, epoch):
    manifest = swarm(genesis, length)
    assert epoch_start(manifest, epoch) == genesis + epoch * length
    assert epoch_at(manifest, epoch_start(manifest, epoch)) == epoch


@given(clocks, st.integers(-3, 3))
@example((0, 600, 570.0), 1)
@example((0, 600, math.nextafter(570.0, 0)), 1)
@example((0, 600, 1_200.0), 0)
@example((0, 5, 0.0), 2)
def test_an_epoch_is_taken_from_the_skew_ahead_of_it_until_the_next_one_is_over(clock, distance):
    """And never two epochs ahead, however short they are."""
    genesis, length, now = clock
    manifest = swarm(genesis, length)
    epoch = epoch_at(manifest, now) + distance
    start, end = genesis + epoch * length, genesis + (epoch + 2) * length
    opens = max(start - SKEW, start - length)
    assert in_window(manifest, epoch, now) is (opens <= Fraction(now) < end)


@given(clocks, uints)
def test_an_epoch_far_from_now_is_outside_the_window_however_large_its_number(clock, epoch):
    genesis, length, now = clock
    manifest = swarm(genesis, length)
    assume(abs(epoch - epoch_at(manifest, now)) > 1)
    assert not in_window(manifest, epoch, now)
