"""Nodes that do not train, on virtual time: who answers is no model, and the swarm learns from it all the same."""

import random
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

from sapo_node.app.config import Config
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA
from sapo_node.cli.tables import answer_table
from sapo_node.contributors.rounds import MAX_FAILED_ROUNDS
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import TaskAnswers
from sapo_node.ingest import validator
from sapo_node.net.in_memory import MemoryHub
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.training.batch_log import trained_per_peer
from sapo_node.training.rollout import AnswerFailed, NoText, RoundFailed, TaskSkipped
from sapo_node.trust.constants import PENDING_PER_PEER
from sapo_protocol import LocalError, TaskSpec, decode_body, open_message
from swarm_parts import KnowingScorer, Oracle

EPOCH = 60


@pytest.fixture
def fast(manifest):
    """Epochs of a minute; what an untrusted peer may share in one lasts for it at a round in two seconds."""
    return replace(manifest, epoch_seconds=EPOCH, max_rounds=60)


@dataclass
class Answerer:
    """Answers as an oracle does, after what `before` does with each call; knows nothing of training."""

    oracle: Oracle
    before: object = None
    asked: list = field(default_factory=list)

    async def generate(self, prompts, *, completions, max_tokens, seed):
        self.asked.append((trio.current_time(), tuple(prompts)))
        if self.before:
            await self.before(len(self.asked))
        return await self.oracle.generate(prompts, completions=completions, max_tokens=max_tokens, seed=seed)


class Member:
    """One node in a hub, which trains or contributes."""

    def __init__(
        self, number, manifest, hub, *, before=None, contributes=True, key_is_new=True, clock=None, **settings
    ):
        self.manifest = manifest
        self.database = Database(None, SCHEMA)
        oracle = Oracle(manifest, random.Random(number), seconds=2.0)
        self.answerer = Answerer(oracle, before)
        self.reports = []
        self.sent = []
        clock = clock or TrioClock(10 * manifest.epoch_seconds)
        rng = random.Random(number)
        identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
        self.node = build_node(
            replace(Config(external=4), **settings),
            SwarmContext(manifest, clock, identity, rng),
            counters=Counters(self.database, manifest, now=clock.now(), key_is_new=key_is_new, rng=rng),
            database=self.database,
            scorer=KnowingScorer(oracle.answers),
            policy=None if contributes else oracle,
            contributor=self.answerer if contributes else None,
            on_fatal=lambda error: None,
        )
        self.network = hub.join(identity, self.node.channels, admit=self.node.admits, notify=self.node.notice)

    @property
    def id(self):
        return self.node.peer_id

    async def publish(self, topic, message):
        self.sent.append((trio.current_time(), open_message(message, self.manifest)))
        await self.network.publish(topic, message)

    async def play(self, rounds):
        await run_node(self.node, self.publish, rounds=rounds, on_round=self._heard, on_contribution=self._heard)

    def _heard(self, report):
        self.reports.append(report)


async def play(rounds, *members):
    """Run all members until the first has played its rounds."""
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.network.run)
        for member in members[1:]:
            nursery.start_soon(member.play, None)
        await members[0].play(rounds)
        await trio.sleep(1)  # what was sent last arrives
        nursery.cancel_scope.cancel()


async def test_a_node_that_trains_learns_from_one_that_only_contributes(fast, autojump_clock):
    hub = MemoryHub()
    contributor = Member(1, fast, hub)
    learner = Member(2, fast, hub, contributes=False, trusted=(contributor.id,))
    await play(10, learner, contributor)
    groups, _ = trained_per_peer(learner.database)[contributor.id]
    assert groups > 5
    assert contributor.node.trainer is None


async def test_a_node_that_contributes_verifies_and_keeps_its_ledger(fast, autojump_clock):
    hub = MemoryHub()
    contributor, learner = Member(1, fast, hub), Member(2, fast, hub, contributes=False)
    await play(10, learner, contributor)
    assert contributor.node.ledger.of(learner.id).trust > 0.5


async def test_a_round_that_nobody_needs_is_trained_on_and_is_neither_sent_nor_stored_for_peers(
    fast, monkeypatch, autojump_clock
):
    monkeypatch.setattr(validator, "FEW_ISSUERS", -1)  # the swarm of one node counts as a large one
    member = Member(1, replace(fast, inline_bytes=1_024), MemoryHub(), contributes=False, eval_every=0)
    await play(50, member)
    sent = {(rollout.header.epoch, rollout.header.counter) for _, rollout in member.sent}
    assert {(report.epoch, report.counter) for report in member.reports if report.published} == sent
    assert {counter % 2 for epoch, counter in sent if epoch == 11} == {0}
    assert {report.counter % 2 for report in member.reports if report.epoch == 11} == {0, 1}
    assert len(member.node.counters.recent()) == len(sent) < 50 == member.answerer.oracle.step
    assert len(member.node.message_store.listing(11, 1, b"", 1_024)) == sum(epoch == 11 for epoch, _ in sent)


async def test_what_was_shared_is_counted_by_task_with_what_was_right(fast, autojump_clock):
    member = Member(1, fast, MemoryHub())
    await play(5, member)
    tasks = member.node.history.answers()
    assert sum(task.groups for task in tasks) == 5 * 4
    assert sum(task.completions for task in tasks) == 5 * 4 * fast.completions
    claims = [group.claims for _, rollout in member.sent for group in rollout.header.groups]
    assert sum(task.right for task in tasks) == sum(map(sum, claims)) > 0
    assert sum(task.informative for task in tasks) == sum(len(set(each)) == 2 for each in claims)


async def test_what_was_shared_is_counted_by_configuration_where_a_dataset_has_several(fast, autojump_clock):
    tasks = tuple(TaskSpec("products", {"min_digits": n, "max_digits": n}, 1) for n in (1, 4))
    member = Member(1, replace(fast, tasks=tasks), MemoryHub())
    await play(5, member)
    assert [task.dataset for task in member.node.history.answers()] == ["products 1", "products 2"]


async def test_rounds_come_no_faster_than_a_newcomers_counters_last(fast, autojump_clock):
    member = Member(1, fast, MemoryHub())
    member.answerer.oracle.seconds = 0.0
    await play(30, member)
    assert {rollout.header.epoch for _, rollout in member.sent} == {10}
    assert max(rollout.header.counter for _, rollout in member.sent) < fast.max_rounds / 2
    assert trio.current_time() == pytest.approx(EPOCH, abs=4)


async def test_rounds_come_no_faster_than_a_peer_keeps_their_rollouts(fast, autojump_clock):
    member = Member(1, replace(fast, max_rounds=6_000), MemoryHub())
    member.answerer.oracle.seconds = 0.0
    await play(8, member)
    times = [time for time, _ in member.sent]
    assert [after - before for before, after in pairwise(times)] == pytest.approx([EPOCH / PENDING_PER_PEER] * 7)


def answering(member, *rounds):
    """Make a member answer, in each round, the prompts named by their places k and no other."""
    oracle, calls = member.answerer.oracle, iter(rounds)
    generate = oracle.generate

    async def some(prompts, **options):
        groups, given = await generate(prompts, **options), next(calls, range(len(prompts)))
        return [group if k in given else (Sampled("", "length"),) * len(group) for k, group in enumerate(groups)]

    oracle.generate = some


async def test_a_round_without_a_text_is_not_shared_counts_as_played_and_the_next_ones_wait_longer(
    fast, autojump_clock, caplog
):
    member = Member(1, fast, MemoryHub())
    member.answerer.oracle.seconds = 0.0
    answering(member, [], [], [], range(4), [])
    await play(5, member)
    ((_, rollout),) = member.sent
    assert rollout.header.counter == 3
    assert len(member.answerer.asked) == 5
    pauses = [float(re.search(r"in (\d+) s", line)[1]) for line in caplog.messages if "has a text" in line]
    assert pauses == [1, 2, 4, 1]


async def test_rounds_of_which_none_has_a_text_end_with_an_error_that_says_so(fast, autojump_clock):
    async def empty(_):
        raise NoText("give more tokens")

    member = Member(1, fast, MemoryHub(), before=empty)
    with pytest.raises(ExceptionGroup) as caught:
        await play(3, member)
    assert caught.group_contains(LocalError, match="give more tokens; the node shared nothing")
    assert (len(member.answerer.asked), member.sent) == (3, [])


async def test_rounds_whose_completions_cannot_be_scored_end_after_some_in_a_row(fast, autojump_clock):
    member = Member(1, fast, MemoryHub())
    member.node.scorer.score = unscored
    with pytest.raises(ExceptionGroup) as caught:
        await play(None, member)
    assert caught.group_contains(RoundFailed)
    assert member.node.counters.reserve(member.node.swarm.clock.now()).counter == MAX_FAILED_ROUNDS


async def unscored(requests):
    return [None] * len(requests)


async def test_a_program_that_skips_round_after_round_is_told_now_and_then(fast, autojump_clock, caplog):
    async def skipping(call):
        if call <= 9:
            raise TaskSkipped("no idea")

    member = Member(1, fast, MemoryHub(), before=skipping)
    await play(1, member)
    assert len(member.sent) == 1
    told = [line for line in caplog.messages if "no idea" in line]
    assert told == [f"no idea ({count} in a row)" for count in (1, 2, 4, 8)]


async def test_a_contributor_that_fails_stands_as_a_problem_until_it_gives_completions(fast, autojump_clock, caplog):
    seen = []

    async def failing(call):
        seen.append(member.node.standing.get("contributor"))
        if call <= 2:
            raise AnswerFailed(f"broken {call}")

    member = Member(1, fast, MemoryHub(), before=failing)
    await play(1, member)
    assert seen == [None, "broken 1", "broken 2"]
    assert "contributor" not in member.node.standing
    assert [record.levelname for record in caplog.records if "broken" in record.message] == ["ERROR"] * 2


async def test_only_the_unanswered_groups_before_an_answered_one_are_shared(fast, autojump_clock):
    member = Member(1, fast, MemoryHub())
    answering(member, [1])
    await play(1, member)
    ((_, rollout),) = member.sent
    assert len(rollout.header.groups) == 2
    assert sum(task.groups for task in member.node.history.answers()) == 1


async def test_answers_that_cross_the_end_of_an_epoch_are_still_taken(fast, autojump_clock):
    async def slowly(_):
        await trio.sleep(25)

    hub = MemoryHub()
    contributor, witness = Member(1, fast, hub, before=slowly), Member(2, fast, hub, contributes=False)
    await play(3, contributor, witness)
    sent, late = contributor.sent[-1]
    assert (sent > EPOCH, late.header.epoch) == (True, 10)
    assert witness.node.ingest.accepted == 3


async def test_answers_that_peers_would_no_longer_take_are_not_shared(fast, autojump_clock):
    async def dozing(call):
        if call == 1:
            await trio.sleep(2 * EPOCH)

    member = Member(1, fast, MemoryHub(), before=dozing)
    await play(1, member)
    assert len(member.answerer.asked) == 2
    ((_, rollout),) = member.sent
    assert rollout.header.counter == 1


class StoppedClock:
    """A machine's clock, which goes on while the machine sleeps and trio's time does not."""

    def __init__(self, now):
        self.time = now

    def now(self):
        return self.time + trio.current_time()

    steady = now


async def test_answers_given_before_the_machine_slept_for_epochs_are_not_shared(fast, autojump_clock):
    clock = StoppedClock(10 * EPOCH)

    async def sleeping(call):
        if call == 1:
            clock.time += 5 * EPOCH

    member = Member(1, fast, MemoryHub(), before=sleeping, clock=clock)
    await play(1, member)
    ((_, rollout),) = member.sent
    assert rollout.header.epoch == 15


async def test_who_fails_is_asked_the_same_again_with_longer_and_longer_pauses(fast, autojump_clock):
    async def failing(call):
        if call < 4:
            raise AnswerFailed("not now")

    member = Member(1, fast, MemoryHub(), before=failing)
    await play(1, member)
    times, prompts = zip(*member.answerer.asked, strict=True)
    assert len(set(prompts)) == 1
    assert [round(after - before) for before, after in pairwise(times)] == [1, 2, 4]
    ((_, rollout),) = member.sent
    assert rollout.header.counter == 0


async def test_a_node_goes_on_serving_while_who_answers_fails_for_ever(fast, autojump_clock):
    async def failing(_):
        raise AnswerFailed("never")

    hub = MemoryHub()
    contributor, learner = Member(1, fast, hub, before=failing), Member(2, fast, hub, contributes=False)
    await play(12, learner, contributor)
    assert contributor.sent == []
    assert contributor.node.verifier.verified > 0
    assert len({prompts for _, prompts in contributor.answerer.asked}) <= 1 + trio.current_time() / (EPOCH / 2)


async def test_a_skipped_question_is_left_out_and_the_next_one_asked(fast, autojump_clock):
    async def skipping(call):
        if call == 1:
            raise TaskSkipped("no idea")

    member = Member(1, fast, MemoryHub(), before=skipping)
    await play(1, member)
    ((_, rollout),) = member.sent
    assert rollout.header.counter == 1


async def test_nobody_is_asked_before_the_node_may_publish(fast, autojump_clock):
    member = Member(1, fast, MemoryHub(), key_is_new=False)
    listening = member.node.counters.listening_seconds(10 * EPOCH, 0.0)
    await play(1, member)
    assert listening >= 2 * EPOCH
    assert member.answerer.asked[0][0] >= listening


async def test_stopping_does_not_wait_for_who_answers(fast, autojump_clock):
    async def thinking(_):
        await trio.sleep(50)

    member = Member(1, fast, MemoryHub(), before=thinking)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, None, member)
        await trio.sleep(5)
        member.node.stopping.set()
    assert trio.current_time() < 10
    assert member.sent == []


async def test_the_label_of_a_shared_group_is_its_models_name_and_never_a_whole_path(fast, autojump_clock):
    for model, label in (("/home/somebody/models/tiny", "tiny"), ("ü" * 40, "ü" * 32), ("person", "person")):
        member = Member(1, fast, MemoryHub(), model=model, train=False)
        await play(1, member)
        ((_, rollout),) = member.sent
        assert {decode_body(body, fast).model for body in rollout.bodies} == {label}


async def test_a_round_that_no_message_holds_is_shared_without_its_longest_texts(fast, autojump_clock):
    narrow = replace(fast, max_message_bytes=2_000)
    member = Member(1, narrow, MemoryHub(), local=8)
    await play(1, member)
    ((_, rollout),) = member.sent
    shared = [body for body in rollout.bodies if body]
    assert 0 < len(shared) < len(rollout.header.groups) == 8


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_of_a_contributor_counts_what_it_shared_and_claims_nothing_about_what_others_made_of_it(width):
    console = Console(width=width)
    with console.capture() as shown:
        console.print(answer_table([TaskAnswers("products", 9, 7, 72, 28)]))
    text = " ".join(shown.get().split())
    assert "9 │ 7 │ 72 │ 28 (39%)".replace(" ", "") in text.replace(" ", "")
    assert "teach" not in text
    assert "Nodes do not report what they trained on." in text


class WrongForAMoment(TrioClock):
    """A clock that is a day ahead from the fourth second to the thirtieth."""

    def now(self):
        return super().now() + (86_400 if 3.1 < trio.current_time() < 30 else 0)


async def test_no_round_is_shared_for_an_epoch_that_a_wrong_clock_says(fast, autojump_clock):
    member = Member(1, fast, MemoryHub(), clock=WrongForAMoment(10 * EPOCH))
    await play(3, member)
    assert {rollout.header.epoch for _, rollout in member.sent} == {10, 11}
