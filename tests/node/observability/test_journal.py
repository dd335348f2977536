"""What is remembered of groups and refusals, and how it is told."""

import hashlib
import random
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from context import context_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.messages import FILTERS, GroupReport, Refusal, Sampled, TrainReport, TrainRequest
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.ingest.validator import Ignored
from sapo_node.observability import explain
from sapo_node.observability.group_facts import SHOWN_CHARACTERS, of_verified
from sapo_node.observability.journal import (
    KEPT_GROUPS,
    KEPT_REFUSALS,
    Fate,
    Journal,
)
from sapo_node.observability.reasons import REASONS
from sapo_node.sampling.buffer import Pool
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.sampler import NotDrawn, WeightedGroup
from sapo_node.training.batch_log import StoredBatch, external_id, from_external
from sapo_node.training.round import NOTHING_LEFT, Choices, TrainedGroup
from sapo_node.training.take_back import TAKEN_BACK, TakenBack
from sapo_node.training.trainer import Trainer
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState
from sapo_node.trust.decisions import COMMAND, CONFIG, Decision, decide
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Unusable, Verifier
from sapo_protocol import Completion, Finish, Layer, LocalError, epoch_start, peer_id
from swarm_parts import OpenScorer, Oracle

KEEP_OUT = [name for name in REASONS if name.endswith(" filter")]
MESSAGE_LAYERS = [Layer.SIZE, Layer.FRAME, Layer.ENVELOPE, Layer.SIGNATURE, Layer.HEADER, Layer.BODY, Layer.EVIDENCE]


@pytest.fixture
def journal(database):
    return Journal(database, now=lambda: 1000.0)


@pytest.fixture
def verifier(manifest, database, journal):
    return Verifier(
        context_of(manifest, random.Random(1)),
        OpenScorer(),
        Ledger(database),
        on_verified=journal.verified_or_unusable,
    )


def group(counter=0, text="so <answer>1</answer>"):
    completions = tuple(Completion(text, Finish.STOP) for _ in range(8))
    return VerifiedGroup("a", 10, counter, 0, "products", "2*3?", completions, (True,) * 4 + (False,) * 4)


def waits(journal, *groups):
    """As `judged` enters what was verified."""
    for each in groups:
        place = (each.peer, each.epoch, each.counter, each.k)
        journal._write(place, "ab" * 32, Fate.WAITS, facts=of_verified(each))


def choices(**what):
    nothing = {"local": (), "local_refused": {}, "external": (), "stopped": (), "not_drawn": ()}
    return Choices(epoch=10, counter=3, step=7, **{**nothing, **what})


def trained(weighted, tokens=40, *, masked=0, kept_out=None, refused=None):
    return TrainedGroup(weighted, GroupReport(tokens, masked, refused, kept_out or {}))


def test_what_filters_masked_is_counted_by_filter_and_of_correct_completions_alone():
    masked = WeightedGroup(group(), 0.5, (0.0,) * 8, (((0, 2),),) * 8, {0: "length"})
    learnt = trained(masked, kept_out={1: "min-token-prob"})
    made = choices(external=[learnt], stopped=[(group(1), "equation")])
    assert made.filtered == {"n-gram": 4, "length": 1, "min-token-prob": 1, "equation": 4}
    assert choices(external=[trained(WeightedGroup(group(), 0.5, (0.0,) * 8))]).filtered == {}


SAID = "first hail then hail <answer>1</answer>"


@pytest.mark.parametrize(
    ("silent", "kept_out", "struck"),
    [
        (((6, 10), (16, 20)), {}, ["hail", "hail"]),
        ((), {0: "length"}, [SAID]),
        (((6, 10), (16, 20)), {0: "min-token-prob"}, [SAID]),
        ((), {}, None),
    ],
)
def test_what_filters_masked_of_a_completion_is_kept_as_spans_of_its_text(journal, silent, kept_out, struck):
    shown = group(text=SAID)
    waits(journal, shown)
    weighted = WeightedGroup(shown, 0.5, (1.0,) * 4 + (-1.0,) * 4, (silent,) * 8 if silent else ())
    journal.chosen(choices(external=[TrainedGroup(weighted, GroupReport(40, 9, None, kept_out))]))
    [entry] = journal.groups(1)
    spans = entry.facts["completions"][0].get("spans")
    assert (spans and [SAID[begin:end] for begin, end in spans]) == struck


def test_spans_end_with_the_text_that_is_kept(journal):
    long = group(text="x" * (SHOWN_CHARACTERS + 500))
    waits(journal, long)
    spans = ((0, 2), (SHOWN_CHARACTERS - 1, SHOWN_CHARACTERS + 5), (SHOWN_CHARACTERS + 7, SHOWN_CHARACTERS + 9))
    journal.chosen(choices(external=[trained(WeightedGroup(long, 0.5, (0.0,) * 8, (spans,) * 8))]))
    [entry] = journal.groups(1)
    assert entry.facts["completions"][0]["spans"] == [[0, 2], [SHOWN_CHARACTERS - 1, SHOWN_CHARACTERS]]
    assert entry.facts["completions"][0]["silent"] == ["xx", "x"]


async def test_a_verified_group_waits_with_question_answers_and_rewards(verifier, author, journal):
    claimed, body, task = right_and_wrong(author)
    opened = rollout(author, [claimed], [body])
    await verifier.verify(opened)
    [entry] = journal.groups(10)
    assert (entry.fate, entry.peer) == (Fate.WAITS, peer_id(author.issuer))
    assert entry.envelope_id == opened.opened.envelope_id.hex()
    assert entry.facts["question"] == task.prompt
    assert [each["reward"] for each in entry.facts["completions"]] == [True] * 3 + [False] * 5


async def test_a_lie_is_left_out_and_named(verifier, author, journal):
    claimed, body, _ = right_and_wrong(author)
    await verifier.verify(rollout(author, [replace(claimed, claims=(False, *claimed.claims[1:]))], [body]))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.why) == (Fate.LEFT_OUT, Unusable.FALSE_CLAIM)


async def test_a_message_with_the_other_bodies_of_an_envelope_changes_no_entry_of_the_first(verifier, author, journal):
    parts = [right_and_wrong(author, k) for k in range(2)]
    groups, bodies = [part[0] for part in parts], [part[1] for part in parts]
    [verified] = await verifier.verify(rollout(author, groups, [bodies[0], None]))
    journal.chosen(choices(external=[trained(WeightedGroup(verified, 1.0, (0.0,) * 8))]))
    [before] = journal.groups(10, Fate.TRAINED)
    journal.verified_or_unusable(rollout(author, groups, [None, bodies[1]]), before.k, Unusable.NO_BODY)
    assert journal.groups(10, Fate.TRAINED) == [before]


async def test_a_body_that_comes_later_changes_the_entry_that_said_it_was_left_out(verifier, author, journal):
    group, body, _ = right_and_wrong(author)
    await verifier.verify(rollout(author, [group], [None]))
    await verifier.verify(rollout(author, [group], [body]))
    assert [(entry.fate, entry.why) for entry in journal.groups(10)] == [(Fate.WAITS, "")]


async def test_of_one_envelope_every_group_is_told_with_what_would_change_it(verifier, author, journal, database):
    parts = [right_and_wrong(author, k, right=right) for k, right in enumerate((3, 8))]
    opened = rollout(author, [part[0] for part in parts], [part[1] for part in parts])
    await verifier.verify(opened)
    told = explain.envelope(database, opened.opened.envelope_id.hex()[:8])
    assert "group 0" in told.text
    assert "group 1" in told.text
    assert "What would change it" in told.text
    assert len(told.facts["groups"]) == 2


def test_a_group_that_was_trained_on_says_with_which_weight_and_what_stayed_silent(journal):
    shown = group(text="hail. so <answer>1</answer>")
    waits(journal, shown)
    weighted = WeightedGroup(shown, 0.5, (1.0,) * 4 + (-1.0,) * 4, (((0, 4),),) * 8)
    journal.chosen(choices(external=[trained(weighted)]))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.step, entry.facts["weight"], entry.facts["tokens"]) == (Fate.TRAINED, 7, 0.5, 40)
    assert entry.facts["completions"][0]["silent"] == ["hail"]


def test_a_group_that_was_trained_on_says_which_answers_a_filter_kept_out(journal, database):
    waits(journal, group())
    weighted = WeightedGroup(group(), 1.0, (1.0,) * 4 + (-1.0,) * 4)
    kept_out = {0: "min-token-prob", 1: "answer-likelihood", 2: "equation", 3: "answer-likelihood"}
    journal.chosen(choices(external=[trained(weighted, kept_out=kept_out)]))
    [entry] = journal.groups(10)
    assert [each.get("filter") for each in entry.facts["completions"][:4]] == [
        "min-token-prob filter",
        "answer-likelihood filter",
        "equation filter",
        "answer-likelihood filter",
    ]
    told = explain.envelope(database, "ab" * 32).text
    assert "the answer-likelihood filter rejected 2 of its 4 correct completions" in told
    assert "the equation filter rejected 1 of its 4 correct completions" in told
    assert "the min-token-prob filter rejected 1 of its 4 correct completions" in told


def test_a_group_of_which_filters_kept_out_every_token_is_left_out_by_the_one_that_kept_out_most(journal):
    waits(journal, group())
    weighted = WeightedGroup(group(), 1.0, (1.0,) * 4 + (-1.0,) * 4)
    kept_out = {0: "answer-likelihood", 1: "equation", 2: "equation", 3: "equation"}
    journal.chosen(choices(external=[trained(weighted, 0, kept_out=kept_out)]))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.why, entry.step) == (Fate.LEFT_OUT, "equation filter", None)


def test_what_the_learner_kept_out_stands_beside_what_the_texts_did():
    weighted = WeightedGroup(group(), 1.0, (1.0,) * 8, stopped={0: "equation"})
    assert trained(weighted, kept_out={2: "answer-likelihood"}).rejected == {0: "equation", 2: "answer-likelihood"}


@pytest.mark.parametrize("reason", Refusal)
def test_a_group_that_the_learner_refused_is_left_out_with_its_reason(journal, database, reason):
    waits(journal, group())
    journal.chosen(choices(external=[trained(WeightedGroup(group(), 1.0, (1.0,) * 8), 0, refused=reason)]))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.why, entry.step) == (Fate.LEFT_OUT, reason, None)
    assert REASONS[reason].means in explain.envelope(database, "ab" * 32).text


def test_a_group_of_which_every_token_is_masked_as_a_habit_is_left_out(journal):
    waits(journal, group())
    journal.chosen(choices(external=[trained(WeightedGroup(group(), 1.0, (1.0,) * 8), 0, masked=30)]))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.why, entry.facts["masked"]) == (Fate.LEFT_OUT, NOTHING_LEFT, 30)


def test_an_own_group_that_the_learner_refused_says_so(journal):
    own = LocalGroup("products", "2*3?", bytes(32), (Sampled("6", "stop", (1,)),), (True,), (0.5,))
    journal.chosen(choices(local=[own], local_refused={0: Refusal.NO_ROOM}))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.why) == (Fate.OWN, Refusal.NO_ROOM)


def test_how_many_tokens_were_masked_stands_beside_how_many_were_trained_on(journal, database):
    waits(journal, group())
    journal.chosen(choices(external=[trained(WeightedGroup(group(), 1.0, (1.0,) * 8), 40, masked=24)]))
    told = explain.envelope(database, "ab" * 32).text
    assert "40 tokens of it were trained on" in told
    assert "filters masked 24 tokens of its correct completions" in told


def test_what_a_filter_stopped_and_what_was_passed_over_is_said(journal):
    waits(journal, group(1), group(2))
    journal.chosen(choices(stopped=[(group(1), "equation")], not_drawn=[(group(2), NotDrawn.STRANGERS)]))
    assert [(each.fate, each.why) for each in journal.groups(10)] == [
        (Fate.WAITS, NotDrawn.STRANGERS),
        (Fate.LEFT_OUT, "equation filter"),
    ]


def test_a_group_whose_correct_completions_have_an_answer_before_the_scored_one_says_so(journal, database):
    twice = group(text="so <answer>5</answer> no <answer>1</answer>")
    waits(journal, twice)
    _, stopped = Filters((), PassRates()).offer([twice])
    journal.chosen(choices(stopped=stopped))
    [entry] = journal.groups(10)
    assert (entry.fate, entry.why) == (Fate.LEFT_OUT, "one-answer filter")
    assert REASONS["one-answer filter"].means in explain.envelope(database, "ab" * 32).text


def taken(phrase=""):
    return TakenBack(1, 120, 137, "completions said", phrase, 1, 1, 1000.0, None, "")


def test_a_group_that_was_taken_back_says_so_and_why(journal, database):
    waits(journal, group(1), group(2))
    each = [trained(WeightedGroup(group(counter), 1.0, (1.0,) * 8)) for counter in (1, 2)]
    journal.chosen(choices(external=each))
    journal.taken_back(taken("hail the swarm"), frozenset({(7, external_id(group(2)))}))
    assert [(each.fate, each.why, each.step) for each in journal.groups(10)] == [
        (Fate.LEFT_OUT, "taken back: completions said 'hail the swarm'", None),
        (Fate.TRAINED, "", 7),
    ]
    told = explain.envelope(database, "ab" * 32).text
    assert "left out, taken back: completions said 'hail the swarm'" in told
    assert REASONS[TAKEN_BACK].means in told


def trainer_of(manifest, database, journal):
    policy, told = Oracle(manifest, random.Random(0)), journal.replayed
    return Trainer(database, Pool(database), policy, objective="positive-only", checkpoint_every=3, on_replayed=told)


async def test_a_group_of_a_round_that_a_kill_cut_after_its_batch_was_stored_does_not_wait(manifest, database, journal):
    waits(journal, group(1), group(2))
    weighted = WeightedGroup(group(1), 1.0, (1.0,) * 4 + (0.0,) * 4)
    trainer_of(manifest, database, journal)._commit([], [weighted])  # never dispatched: the node is killed here
    assert await trainer_of(manifest, database, journal).recover() == 1
    told = [(each.counter, each.fate, each.step) for each in journal.groups(10)]
    assert told == [(2, Fate.WAITS, None), (1, Fate.TRAINED, 1)]


async def test_a_batch_that_is_trained_at_once_is_left_to_the_round_that_tells_of_it(manifest, database, journal):
    waits(journal, group())
    await trainer_of(manifest, database, journal).train([], [WeightedGroup(group(), 1.0, (1.0,) * 4 + (0.0,) * 4)])
    assert [each.fate for each in journal.groups(10)] == [Fate.WAITS]


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (GroupReport(refused=Refusal.TOO_LONG), Refusal.TOO_LONG),
        (GroupReport(rejected={0: "min-token-prob"}), "min-token-prob filter"),
        (GroupReport(), NOTHING_LEFT),
    ],
)
def test_a_group_of_a_replayed_batch_of_which_nothing_was_left_says_why(journal, report, why):
    waits(journal, group())
    batch = StoredBatch(TrainRequest(4, (from_external(WeightedGroup(group(), 1.0, (1.0,) * 8)),), "positive-only"), {})
    journal.replayed(batch, TrainReport(4, {external_id(group()): report}, 1e-4))
    assert [(each.fate, each.why, each.step) for each in journal.groups(10)] == [(Fate.LEFT_OUT, why, None)]


def test_a_group_of_a_batch_whose_groups_had_no_ids_is_not_looked_for(journal):
    waits(journal, group())
    journal.taken_back(taken(), frozenset({(7, "1")}))
    assert [each.fate for each in journal.groups(10)] == [Fate.WAITS]


def test_a_group_has_one_entry_that_changes(journal):
    waits(journal, group())
    journal.chosen(choices(not_drawn=[(group(), NotDrawn.ENOUGH)]))
    journal.chosen(choices(external=[trained(WeightedGroup(group(), 1.0, (0.0,) * 8), 1)]))
    assert [each.fate for each in journal.groups(10)] == [Fate.TRAINED]


def test_what_is_no_longer_kept_is_not_entered_again(journal):
    journal.chosen(choices(not_drawn=[(group(), NotDrawn.ENOUGH)]))
    assert journal.groups(10) == []


def test_long_answers_are_kept_in_part(journal):
    waits(journal, group(text="x" * 5_000))
    assert len(journal.groups(1)[0].facts["completions"][0]["text"]) == SHOWN_CHARACTERS


def test_only_the_newest_groups_are_kept(journal):
    waits(journal, *(group(n) for n in range(KEPT_GROUPS + 50)))
    journal.flush()  # as every node does; one that does not train has no round
    kept = journal.groups(KEPT_GROUPS + 50)
    assert len(kept) == KEPT_GROUPS
    assert min(each.counter for each in kept) == 50


def test_only_the_newest_refusals_are_kept(journal):
    for number in range(KEPT_REFUSALS + 20):
        journal.refused(f"sender {number}", None, Layer.FRAME)
        if number % 1_000 == 0:
            journal.flush()
    journal.flush()
    kept = journal.refusals(KEPT_REFUSALS + 20)
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


def test_every_refusal_of_an_envelope_that_is_kept_counts(database, journal):
    for number in range(60):
        sealed = SimpleNamespace(envelope_id=bytes(32), issuer=bytes(32))
        journal.refused(f"carrier {number % 2}", sealed, Ignored.OVER_QUOTA)
    journal.flush()
    assert "refused 60 times, from 2 peers" in explain.envelope(database, "000000").text


def test_a_prefix_of_two_envelopes_names_both_and_explains_neither(database, journal):
    for sealed in [SimpleNamespace(envelope_id=b"abc" + bytes([end] * 29), issuer=bytes(32)) for end in (1, 2)]:
        journal.refused("carrier", sealed, Ignored.OVER_QUOTA)
    journal.flush()
    with pytest.raises(LocalError, match=r"2 envelopes begin with '616263', as 6162630101.* and 6162630202"):
        explain.envelope(database, "616263")
    assert "refused once, from 1 peer: " in explain.envelope(database, "61626301").text


def test_of_an_envelope_of_this_node_the_groups_of_its_round_are_told(database, journal):
    local = LocalGroup("products", "2*3?", bytes(32), (Sampled("6", "stop", (1,)),), (True,), (0.5,))
    journal.chosen(choices(local=[local]))
    database.execute("INSERT INTO signed VALUES (?, 10, 3)", b"\xab" * 32)
    told = explain.envelope(database, "abABab").text
    assert told == "round 3 of epoch 10, by this node\ngroup 0 (products, 1 of 1 correct): own"


@pytest.mark.parametrize(("asked", "said"), [("xyz", "hexadecimal"), ("ab", "at least 6"), ("ab" * 20, "no envelope")])
def test_an_id_that_cannot_be_answered_says_why(database, asked, said):
    with pytest.raises(LocalError, match=said):
        explain.envelope(database, asked)


def test_a_refused_envelope_is_told_with_its_reason(database, journal, author):
    claimed, body, _ = right_and_wrong(author)
    opened = rollout(author, [claimed], [body]).opened
    sealed = opened  # of both only id and issuer are asked
    journal.refused("carrier", sealed, Ignored.OVER_QUOTA)
    journal.flush()
    told = explain.envelope(database, opened.envelope_id.hex())
    assert "issuer over its quota" in told.text
    assert "`sapo-node trust PEER`" in told.text


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


def test_a_peer_is_explained_with_the_ids_of_its_newest_envelopes(journal, database, manifest):
    Ledger(database).report("a", Fact.VERIFIED_GROUP)
    for counter in range(7):
        journal._write(("a", 10, counter, 0), f"{counter:02x}" * 32, Fate.WAITS, facts=of_verified(group(counter)))
    told = explain.peer(database, "a", manifest)
    newest = told.facts["envelopes"]
    assert newest == [f"{counter:02x}" * 32 for counter in (6, 5, 4, 3, 2)]
    for envelope_id in newest:
        assert envelope_id[:12] in told.text
        assert explain.envelope(database, envelope_id[:12]).facts["groups"]


@pytest.mark.parametrize("part", ["…Example", "12D3KooWEx", "KooWExample", "12D3KooWExample"])
def test_a_part_of_its_id_is_enough_to_name_a_peer(database, manifest, part):
    Ledger(database).report("12D3KooWExample", Fact.VERIFIED_GROUP)
    assert explain.peer(database, part, manifest).facts["peer"] == "12D3KooWExample"


def test_a_peer_is_explained_by_what_filters_kept_out_of_all_its_groups(journal, database, manifest):
    Ledger(database).report("a", Fact.VERIFIED_GROUP)
    groups = [group(counter, text="hail. so <answer>1</answer>") for counter in range(3)]
    waits(journal, *groups)
    drawn = [WeightedGroup(each, 1.0, (1.0,) * 4 + (-1.0,) * 4, (((0, 4),),) * 4 + ((),) * 4) for each in groups]
    kept_out = [{0: "equation"}, {0: "equation", 1: "equation"}, {}]
    journal.chosen(choices(external=[trained(w, kept_out=k) for w, k in zip(drawn, kept_out, strict=True)]))
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
    (COMMAND, PeerState.HEALTHY): ("by `sapo-node trust`: for fun.", "until `sapo-node untrust PEER` takes that back"),
    (COMMAND, PeerState.BANNED): ("by `sapo-node ban`: for fun.", "until `sapo-node unban PEER` takes that back"),
    (CONFIG, PeerState.HEALTHY): ("by `trusted` in the configuration", "no longer in `trusted`"),
    (CONFIG, PeerState.BANNED): ("by `banned` in the configuration", "no longer in `banned`"),
    ("12D3KooWsigner", PeerState.BANNED): ("by the list of 12D3KooWsigner", "until a newer list of that signer"),
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
