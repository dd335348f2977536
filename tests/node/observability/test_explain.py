"""What is remembered of groups and refusals, and how it is told."""

import hashlib
import random
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

from books import book_of
from context import context_of
from fetching import turn_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.book import KEPT_BYTES, KEPT_GROUPS, KEPT_REFUSALS, newest, refusals
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import FILTERS, GroupReport, Refusal, Sampled
from sapo_node.groups.record import LocalGroup, NotDrawn, State, Unusable, VerifiedGroup
from sapo_node.ingest.validator import Ignored
from sapo_node.observability import explain
from sapo_node.observability.explain import SHOWN_CHARACTERS, facts_of
from sapo_node.observability.reasons import REASONS
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.sampling.weights import PassRates
from sapo_node.training.batch_log import external_id, local_id
from sapo_node.training.take_back import TAKEN_BACK
from sapo_node.training.trainer import NOTHING_LEFT, Trainer
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.decisions import COMMAND, CONFIG, Decision, decide
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Verifier
from sapo_protocol import Layer, LocalError, epoch_start, peer_id
from swarm_parts import OpenScorer, Oracle

ENVELOPE = "ab" * 32
KEEP_OUT = [name for name in REASONS if name.endswith(" filter")]
MESSAGE_LAYERS = [Layer.SIZE, Layer.FRAME, Layer.ENVELOPE, Layer.SIGNATURE, Layer.HEADER, Layer.BODY, Layer.EVIDENCE]


@pytest.fixture
def book(database):
    return book_of(database, now=lambda: 1000.0)


class Reporting(Oracle):
    """A policy whose reports are given."""

    reports: ClassVar = {}

    async def train(self, request):
        report = await super().train(request)
        return replace(report, groups={**report.groups, **self.reports})


@pytest.fixture
def policy(manifest):
    return Reporting(manifest, random.Random(0))


@pytest.fixture
def trainer(database, book, policy):
    return Trainer(database, book, policy, objective="positive-only", checkpoint_every=3)


@pytest.fixture
def train(trainer, policy):
    """Train on external groups, each with its report."""

    async def train(*trained):
        policy.reports = {external_id(weighted.group): report for weighted, report in trained}
        return await trainer.train([], [weighted for weighted, _ in trained])

    return train


@pytest.fixture
def verify(manifest, database, book):
    """Verify a rollout, and enter in the book what was found."""
    verifier = Verifier(context_of(manifest, random.Random(1)), OpenScorer(), Ledger(database))

    async def verify(opened):
        book.judge(opened, await verifier.verify(turn_of(verifier, opened)))

    return verify


def group(counter=0, text="so <answer>1</answer>"):
    completions = tuple(Sampled(text, "stop") for _ in range(8))
    return VerifiedGroup("a", 10, counter, 0, "products", "2*3?", completions, Levels((1,) * 4 + (0,) * 4))


def offered(book, *groups):
    for each in groups:
        book.offer(each, ENVELOPE)


def drawn(each, weight=1.0, masked=(), stopped=None):
    return WeightedGroup(each, weight, (1.0,) * 4 + (-1.0,) * 4, masked, stopped or {})


SAID = "first hail then hail <answer>1</answer>"


@pytest.mark.parametrize(
    ("masked", "rejected", "struck"),
    [
        (((6, 10), (16, 20)), {}, ["hail", "hail"]),
        ((), {0: "length"}, [SAID]),
        (((6, 10), (16, 20)), {0: "min-token-prob"}, [SAID]),
        ((), {}, None),
    ],
)
async def test_what_filters_masked_of_a_completion_is_kept_as_spans_of_its_text(
    train, database, masked, rejected, struck
):
    shown = group(text=SAID)
    await train((drawn(shown, 0.5, (masked,) * 8 if masked else ()), GroupReport(40, 9, None, rejected)))
    [entry] = newest(database, 1)
    spans = facts_of(entry)["completions"][0].get("spans")
    assert (spans and [SAID[begin:end] for begin, end in spans]) == struck


async def test_spans_end_with_the_text_that_is_shown(train, book, database):
    long = group(text="x" * (SHOWN_CHARACTERS + 500))
    offered(book, long)
    spans = ((0, 2), (SHOWN_CHARACTERS - 1, SHOWN_CHARACTERS + 5), (SHOWN_CHARACTERS + 7, SHOWN_CHARACTERS + 9))
    await train((drawn(long, 0.5, (spans,) * 8), GroupReport(40)))
    [entry] = newest(database, 1)
    [first, *_] = facts_of(entry)["completions"]
    assert first["spans"] == [[0, 2], [SHOWN_CHARACTERS - 1, SHOWN_CHARACTERS]]
    assert first["silent"] == ["xx", "x"]
    assert entry.masked_spans()[0] == list(spans)


async def test_a_verified_group_is_on_offer_with_prompt_completions_and_levels(verify, author, database):
    claimed, body, task = right_and_wrong(author)
    opened = rollout(author, [claimed], [body])
    await verify(opened)
    [entry] = newest(database, 10)
    assert (entry.state, entry.peer) == (State.VERIFIED, peer_id(author.issuer))
    assert entry.envelope_id == opened.opened.envelope_id.hex()
    assert entry.prompt == task.prompt
    assert entry.levels == Levels((1,) * 3 + (0,) * 5)


async def test_a_false_claim_is_left_out_and_named(verify, author, database):
    claimed, body, _ = right_and_wrong(author)
    await verify(rollout(author, [replace(claimed, claims=(False, *claimed.claims[1:]))], [body]))
    [entry] = newest(database, 10)
    assert (entry.state, entry.why) == (State.LEFT_OUT, Unusable.FALSE_CLAIM)


async def test_a_message_with_the_other_bodies_of_an_envelope_changes_no_entry_of_the_first(
    verify, train, author, book, database
):
    parts = [right_and_wrong(author, k) for k in range(2)]
    groups, bodies = [part[0] for part in parts], [part[1] for part in parts]
    await verify(rollout(author, groups, [bodies[0], None]))
    [verified] = book.offered()
    await train((drawn(verified), GroupReport(40)))
    [before] = newest(database, 10, State.TRAINED)
    await verify(rollout(author, groups, [None, bodies[1]]))
    assert newest(database, 10, State.TRAINED) == [before]


async def test_a_body_that_comes_later_changes_the_entry_that_said_it_was_left_out(verify, author, database):
    group, body, _ = right_and_wrong(author)
    await verify(rollout(author, [group], [None]))
    await verify(rollout(author, [group], [body]))
    assert [(entry.state, entry.why) for entry in newest(database, 10)] == [(State.VERIFIED, "")]


async def test_a_group_that_was_trained_on_is_not_on_offer_again_when_its_envelope_comes_again(
    verify, train, author, book, database
):
    claimed, body, _ = right_and_wrong(author)
    opened = rollout(author, [claimed], [body])
    await verify(opened)
    [verified] = book.offered()
    await train((drawn(verified), GroupReport(40)))
    await verify(opened)
    assert book.offered() == []
    assert [entry.state for entry in newest(database, 10)] == [State.TRAINED]


async def test_of_one_envelope_every_group_is_told_with_what_would_change_it(verify, author, database):
    parts = [right_and_wrong(author, k, right=right) for k, right in enumerate((3, 8))]
    opened = rollout(author, [part[0] for part in parts], [part[1] for part in parts])
    await verify(opened)
    told = explain.envelope(database, opened.opened.envelope_id.hex()[:8])
    assert "group 0" in told.text
    assert "group 1" in told.text
    assert "What would change it" in told.text
    assert len(told.facts["groups"]) == 2


def test_an_envelope_that_waits_for_verification_says_so(author, book, database):
    claimed, body, _ = right_and_wrong(author)
    opened = rollout(author, [claimed], [body])
    book.arrive(opened, link="", tier=Tier.STRANGER)
    told = explain.envelope(database, opened.opened.envelope_id.hex()[:8])
    assert "wait for verification" in told.text
    assert told.facts["waits"]


async def test_a_group_that_was_trained_on_says_with_which_weight_and_what_was_masked(train, book, database):
    shown = group(text="hail. so <answer>1</answer>")
    offered(book, shown)
    await train((drawn(shown, 0.5, (((0, 4),),) * 8), GroupReport(40)))
    [entry] = newest(database, 10)
    facts = facts_of(entry)
    assert (entry.state, entry.step, facts["weight"], facts["tokens"]) == (State.TRAINED, 1, 0.5, 40)
    assert facts["completions"][0]["silent"] == ["hail"]


async def test_a_group_that_was_trained_on_says_which_completions_a_filter_rejected(train, book, database):
    offered(book, group())
    rejected = {0: "min-token-prob", 1: "answer-likelihood", 3: "answer-likelihood"}
    await train((drawn(group(), stopped={2: "equation"}), GroupReport(40, rejected=rejected)))
    [entry] = newest(database, 10)
    assert [each.get("filter") for each in facts_of(entry)["completions"][:4]] == [
        "min-token-prob filter",
        "answer-likelihood filter",
        "equation filter",
        "answer-likelihood filter",
    ]
    told = explain.envelope(database, ENVELOPE).text
    assert "the answer-likelihood filter rejected 2 of its 4 correct completions" in told
    assert "the equation filter rejected 1 of its 4 correct completions" in told
    assert "the min-token-prob filter rejected 1 of its 4 correct completions" in told


LEFT_OUT = {
    "equation filter": GroupReport(rejected={0: "answer-likelihood", 1: "equation", 2: "equation", 3: "equation"}),
    NOTHING_LEFT: GroupReport(0, 30),
    **{reason: GroupReport(refused=reason) for reason in Refusal},
}


@pytest.mark.parametrize("why", LEFT_OUT)
async def test_a_group_of_which_no_token_was_trained_on_is_left_out_with_the_reason(train, book, database, why):
    offered(book, group())
    await train((drawn(group()), LEFT_OUT[why]))
    [entry] = newest(database, 10)
    assert (entry.state, entry.why, entry.step) == (State.LEFT_OUT, why, None)
    assert REASONS[why].means in explain.envelope(database, ENVELOPE).text
    assert book.left_out == {why: 1}


OWN = LocalGroup("products", "2*3?", bytes(32), (Sampled("6", "stop", (1,)),), Levels((1,)), (0.5,), 10, 3)


async def test_an_own_group_that_the_learner_refused_says_so(trainer, policy, database):
    policy.reports = {local_id(0): GroupReport(refused=Refusal.NO_ROOM)}
    await trainer.train([OWN], [])
    [entry] = newest(database, 10)
    assert (entry.state, entry.why) == (State.OWN, Refusal.NO_ROOM)


async def test_how_many_tokens_were_masked_stands_beside_how_many_were_trained_on(train, book, database):
    offered(book, group())
    await train((drawn(group()), GroupReport(40, 24)))
    told = explain.envelope(database, ENVELOPE).text
    assert "40 tokens of it were trained on" in told
    assert "filters masked 24 tokens of its correct completions" in told


def test_what_a_filter_rejected_and_what_was_passed_over_is_said(book, database):
    offered(book, group(1), group(2))
    book.leave_out(group(1), "equation filter")
    book.pass_over([(group(2), NotDrawn.STRANGERS)])
    assert [(each.state, each.why) for each in newest(database, 10)] == [
        (State.VERIFIED, NotDrawn.STRANGERS),
        (State.LEFT_OUT, "equation filter"),
    ]
    assert book.left_out == {"equation filter": 1}


async def test_a_group_that_was_taken_back_says_so_and_why(train, trainer, book, database):
    offered(book, group(1), group(2))
    await train((drawn(group(1)), GroupReport(40)), (drawn(group(2)), GroupReport(40)))
    await trainer.take_back(lambda each, _: each.id == external_id(group(2)), "completions said", "hail the swarm")
    assert [(each.state, each.why, each.step) for each in newest(database, 10)] == [
        (State.LEFT_OUT, "taken back: completions said 'hail the swarm'", None),
        (State.TRAINED, "", 1),
    ]
    told = explain.envelope(database, ENVELOPE).text
    assert "left out, taken back: completions said 'hail the swarm'" in told
    assert REASONS[TAKEN_BACK].means in told
    assert book.left_out == {TAKEN_BACK: 1}


async def test_a_group_of_a_round_that_a_kill_cut_after_its_batch_was_stored_is_trained_by_the_replay(
    trainer, book, database
):
    offered(book, group(1), group(2))
    trainer._commit([], [drawn(group(1))])  # never dispatched: the node is killed here
    assert [each.state for each in newest(database, 10)] == [State.VERIFIED, State.DRAWN]
    assert await trainer.recover() == 1
    told = [(each.counter, each.state, each.step) for each in newest(database, 10)]
    assert told == [(2, State.VERIFIED, None), (1, State.TRAINED, 1)]


async def test_a_replayed_step_counts_a_group_that_was_left_out_once(trainer, policy, book):
    offered(book, group())
    policy.reports = {external_id(group()): GroupReport(refused=Refusal.TOO_LONG)}
    await trainer.train([], [drawn(group())])
    policy.step = 0
    await trainer.recover()
    assert book.left_out == {Refusal.TOO_LONG: 1}


def test_long_completions_are_shown_in_part(book, database):
    offered(book, group(text="x" * 5_000))
    [entry] = newest(database, 1)
    assert len(facts_of(entry)["completions"][0]["text"]) == SHOWN_CHARACTERS


def test_only_the_newest_groups_are_kept_that_are_neither_on_offer_nor_in_a_stored_batch(book, database):
    offered(book, group(0), group(1))
    book.commit(1, group(1))
    for number in range(2, KEPT_GROUPS + 50):
        offered(book, group(number))
        book.leave_out(group(number), "equation filter")
    book.flush()  # as every node does; one that does not train has no round
    kept = [each.counter for each in newest(database, KEPT_GROUPS + 50)][::-1]
    assert kept == [0, 1, *range(50, KEPT_GROUPS + 50)]
    book.release(1)
    offered(book, group(KEPT_GROUPS + 50))
    book.flush()
    assert [each.counter for each in newest(database, KEPT_GROUPS + 50)][::-1][:2] == [0, 51]


def test_of_large_groups_fewer_are_kept(book, database):
    large = "x" * (KEPT_BYTES // 100 // 8)
    for number in range(150):
        offered(book, group(number, large))
        book.leave_out(group(number), "equation filter")
    book.flush()
    assert 90 < len(newest(database, 150)) < 101


def test_only_the_newest_refusals_are_kept(book, database):
    for number in range(KEPT_REFUSALS + 20):
        book.refused(f"sender {number}", None, Layer.FRAME)
        if number % 1_000 == 0:
            book.flush()
    book.flush()
    kept = refusals(database, KEPT_REFUSALS + 20)
    assert len(kept) == KEPT_REFUSALS
    assert kept[0].sender == f"sender {KEPT_REFUSALS + 19}"


@pytest.mark.parametrize("reason", [*MESSAGE_LAYERS, *Ignored, *Unusable, *NotDrawn, *Refusal, NOTHING_LEFT, *KEEP_OUT])
def test_every_reason_has_a_meaning_and_says_what_would_change_it(reason):
    assert REASONS[reason].means
    assert REASONS[reason].change


def test_the_filters_without_a_reason_keep_no_answer_out():
    kept, stopped = Filters(["baseline", "n-gram"], PassRates()).offer([group(text="2+2=5")])
    assert ([each.rejected for each in kept], stopped) == ([{}], [])
    assert {f"{filter_name} filter" for filter_name in FILTERS} - {*KEEP_OUT} == {"baseline filter", "n-gram filter"}


def test_every_refusal_of_an_envelope_that_is_kept_counts(database, book):
    for number in range(60):
        sealed = SimpleNamespace(envelope_id=bytes(32), issuer=bytes(32))
        book.refused(f"carrier {number % 2}", sealed, Ignored.OVER_QUOTA)
    book.flush()
    assert "refused 60 times, from 2 peers" in explain.envelope(database, "000000").text


def test_a_prefix_of_two_envelopes_names_both_and_explains_neither(database, book):
    for sealed in [SimpleNamespace(envelope_id=b"abc" + bytes([end] * 29), issuer=bytes(32)) for end in (1, 2)]:
        book.refused("carrier", sealed, Ignored.OVER_QUOTA)
    book.flush()
    with pytest.raises(LocalError, match=r"2 envelopes begin with '616263', as 6162630101.* and 6162630202"):
        explain.envelope(database, "616263")
    assert "refused once, from 1 peer: " in explain.envelope(database, "61626301").text


def test_of_an_envelope_of_this_node_the_groups_of_its_round_are_told(database, book):
    book.enter(7, OWN)
    database.execute("INSERT INTO signed VALUES (?, 10, 3)", b"\xab" * 32)
    told = explain.envelope(database, "abABab").text
    assert told == "round 3 of epoch 10, by this node\ngroup 0 (products, 1 of 1 correct): own"


@pytest.mark.parametrize(("asked", "said"), [("xyz", "hexadecimal"), ("ab", "at least 6"), ("ab" * 20, "no envelope")])
def test_an_id_that_cannot_be_answered_says_why(database, asked, said):
    with pytest.raises(LocalError, match=said):
        explain.envelope(database, asked)


def test_a_refused_envelope_is_told_with_its_reason(database, book, author):
    claimed, body, _ = right_and_wrong(author)
    opened = rollout(author, [claimed], [body]).opened
    sealed = opened  # of both only id and issuer are asked
    book.refused("carrier", sealed, Ignored.OVER_QUOTA)
    book.flush()
    told = explain.envelope(database, opened.envelope_id.hex())
    assert "issuer over its quota" in told.text
    assert "`sapo-node peers trust PEER`" in told.text


@pytest.mark.parametrize(("facts", "said"), [([], "untrusted"), ([Fact.FALSE_CLAIM] * 8, "banned")])
def test_a_peer_is_explained_by_its_standing(database, manifest, facts, said):
    name = "12D3KooWExample"
    ledger = Ledger(database)
    for fact in [Fact.VERIFIED_GROUP, *facts]:
        ledger.report(name, fact)
    told = explain.peer(database, name, manifest)
    assert said in told.text
    assert told.facts["peer"] == name


def test_a_peer_is_explained_with_the_share_of_its_groups_that_filters_accept(database, manifest):
    ledger = Ledger(database)
    ledger.judged([("a", 1.0)])
    assert "Of its groups that the filters judged lately" not in explain.peer(database, "a", manifest).text
    ledger.judged([("a", 0.0)])
    told = explain.peer(database, "a", manifest)
    assert "Of its groups that the filters judged lately, they accepted 49%." in told.text
    assert told.facts["accepted"] == pytest.approx(0.487)


def test_a_peer_is_explained_with_the_ids_of_its_newest_envelopes(book, database, manifest):
    Ledger(database).report("a", Fact.VERIFIED_GROUP)
    for counter in range(7):
        book.offer(group(counter), f"{counter:02x}" * 32)
    told = explain.peer(database, "a", manifest)
    ids = told.facts["envelopes"]
    assert ids == [f"{counter:02x}" * 32 for counter in (6, 5, 4, 3, 2)]
    for envelope_id in ids:
        assert envelope_id[:12] in told.text
        assert explain.envelope(database, envelope_id[:12]).facts["groups"]


@pytest.mark.parametrize("part", ["…Example", "12D3KooWEx", "KooWExample", "12D3KooWExample"])
def test_a_part_of_its_id_is_enough_to_name_a_peer(database, manifest, part):
    Ledger(database).report("12D3KooWExample", Fact.VERIFIED_GROUP)
    assert explain.peer(database, part, manifest).facts["peer"] == "12D3KooWExample"


async def test_a_peer_is_explained_by_what_filters_rejected_of_all_its_groups(train, book, database, manifest):
    Ledger(database).report("a", Fact.VERIFIED_GROUP)
    groups = [group(counter, text="hail. so <answer>1</answer>") for counter in range(3)]
    offered(book, *groups)
    masked = (((0, 4),),) * 4 + ((),) * 4
    rejected = [{0: "equation"}, {0: "equation", 1: "equation"}, {}]
    reports = [GroupReport(40, rejected=each) for each in rejected]
    await train(*zip((drawn(each, 1.0, masked) for each in groups), reports, strict=True))
    told = explain.peer(database, "a", manifest)
    assert "3 groups were trained on" in told.text
    assert "the n-gram filter masked 1 phrase" in told.text
    assert told.facts["masked_phrases"] == {"hail": 12}
    assert "the equation filter rejected 3 of its 12 correct completions" in told.text


def test_a_peer_that_nobody_knows_is_said_to_be_unknown(database, manifest):
    with pytest.raises(LocalError, match="sapo-node peers"):
        explain.peer(database, hashlib.sha256(b"").hexdigest(), manifest)


def test_a_name_that_means_many_peers_is_said_to(database, manifest):
    ledger = Ledger(database)
    for name in ("12D3KooWa", "12D3KooWb"):
        ledger.report(name, Fact.VERIFIED_GROUP)
    with pytest.raises(LocalError, match="2 peers begin or end with '12D3KooW'"):
        explain.peer(database, "12D3KooW", manifest)


def test_a_banned_peer_says_for_what_and_until_when(database, manifest):
    at = epoch_start(manifest, 10) + 60
    ledger = Ledger(database, epoch=10, now=lambda: at)
    for fact in [Fact.FORGED_SIGNATURE] * 3 + [Fact.FALSE_CLAIM] * 4:
        ledger.report("a", fact)
    told = explain.peer(database, "a", manifest)
    ends = epoch_start(manifest, 10 + constants.BAN_EPOCHS)
    assert f"3 forged signatures, the last {explain.moment(at)}" in told.text
    assert f"4 false claims, the last {explain.moment(at)}" in told.text
    assert f"4 false claims, 3 forged signatures; ends {explain.moment(ends)}" in told.text
    assert (told.facts["decided_by"], told.facts["until"]) == ("evidence", ends)


WORDS = {
    (COMMAND, PeerState.HEALTHY): (
        "by `sapo-node peers trust`: for fun.",
        "until `sapo-node peers untrust PEER` takes that back",
    ),
    (COMMAND, PeerState.BANNED): (
        "by `sapo-node peers ban`: for fun.",
        "until `sapo-node peers unban PEER` takes that back",
    ),
    (CONFIG, PeerState.HEALTHY): ("by `trusted` in the configuration", "no longer in `trusted`"),
    (CONFIG, PeerState.BANNED): ("by `banned` in the configuration", "no longer in `banned`"),
}


@pytest.mark.parametrize(("source", "state"), WORDS)
def test_a_decision_of_the_operator_says_how_it_was_made_and_how_it_ends_and_blames_nobody(
    database, manifest, source, state
):
    decide(database, Decision("a", state, source, 7.0, "for fun"))
    told = explain.peer(database, "a", manifest).text
    assert f"State: {state} since {explain.moment(7.0)} by" in told
    assert all(words in told for words in WORDS[source, state])
    assert "Seen of it: no offence." in told


@pytest.mark.parametrize(("days", "form"), [(0, "%H:%M"), (1, "%a %H:%M"), (40, "%d %b %Y %H:%M")])
def test_a_moment_names_the_day_where_it_is_not_today(days, form):
    at = time.time() - days * 86_400
    assert explain.moment(at) == time.strftime(form, time.localtime(at))


@pytest.mark.parametrize("at", [1e300, -1e300, float("nan")])
def test_a_time_beyond_the_calendar_is_told_as_one(at):
    assert explain.moment(at) == "at no time of this calendar"
