"""What a round does if it raises an alarm, or if the node ends before it has decided to take steps back."""

import random
from dataclasses import replace

import pytest

from books import book_of, offer
from context import context_of
from fetching import fetcher_of
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.book import Book
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.external import ExternalSampler
from sapo_node.storage.counters import Slot
from sapo_node.storage.database import StateError
from sapo_node.training.batch_log import stored_batch
from sapo_node.training.round import Replay, Rounds
from sapo_node.training.take_back import taken_back
from sapo_node.training.trainer import Trainer
from sapo_node.trust.constants import STRANGERS_SHARE, Fact, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import VerificationScheduler, Verifier
from sapo_protocol import load_manifest
from swarm_parts import OpenScorer, Oracle

EPOCH = 5


class Answers:
    """What this node contributes: one group with so many correct completions of eight."""

    right = 6

    async def generate(self, slot, _prompts):
        levels = Levels(tuple(int(number < self.right) for number in range(8)))
        completions = tuple(Sampled(f"text {number}", "stop", (number,)) for number in range(8))
        group = LocalGroup("products", "What?", bytes(32), completions, levels, local_advantages(levels))
        return [replace(group, counter=slot.counter) if slot else group]


def group_of(peer, counter):
    completions = tuple(Sampled(f"theirs {number}", "stop") for number in range(8))
    levels = Levels(tuple(int(number < 4) for number in range(8)))
    return VerifiedGroup(peer, EPOCH, counter, 0, "products", "What else?", completions, levels)


@pytest.fixture
def start(database, manifest, rng):
    """Start the parts of a node that play rounds, each time on the same state."""
    policy = Oracle(manifest, rng)

    def start(answers, book=None, replay=None, held_out=(), trusted=()):
        ledger, book = Ledger(database, trusted=trusted), book or book_of(database)
        swarm = context_of(manifest, rng)
        return book, Rounds(
            contribution=answers,
            scheduler=VerificationScheduler(
                book=book,
                verifier=Verifier(swarm, OpenScorer(), ledger),
                ledger=ledger,
                fetcher=fetcher_of(swarm, database, ledger),
            ),
            book=book,
            external=ExternalSampler(
                database, ledger, rng, local=1, external=2, filters=("baseline",), selection="trust"
            ),
            trainer=Trainer(database, book, policy, objective="positive-only", checkpoint_every=50),
            replay=replay,
            held_out=held_out,
            now=lambda: 0.0,
        )

    return start


def prove(database, peer):
    """Let a peer have earned its state."""
    ledger = Ledger(database)
    for epoch in (EPOCH - 2, EPOCH - 1):
        ledger.at(epoch)
        for _ in range(8):
            ledger.report(peer, Fact.VERIFIED_GROUP)
    ledger.at(EPOCH)
    assert ledger.tier(peer) is Tier.PROVEN


async def play(rounds, counters):
    return [await rounds.play(Slot(EPOCH, counter), share=False) for counter in counters]


async def test_an_alarm_is_raised_again_if_the_node_ended_before_it_decided_to_take_steps_back(start, database):
    answers = Answers()
    book, rounds = start(answers)
    offer(book, (group_of("stranger", counter) for counter in range(40)))
    await play(rounds, range(12))
    answers.right = 0
    await play(rounds, range(12, 16))
    assert taken_back(database) == []  # the fifth bad round raises the alarm

    class FullDisk(Book):
        def pass_over(self, groups):
            raise StateError("the disk is full")

    _, rounds = start(answers, FullDisk(database, load_manifest("starter"), rng=random.Random(0)))
    with pytest.raises(StateError):
        await play(rounds, [16])
    _, rounds = start(answers)
    await play(rounds, [17])
    [taken] = taken_back(database)
    assert (taken.reason, taken.peers) == ("the local reward fell", 1)


@pytest.mark.parametrize(("trusted", "peers"), [([], [1]), (["proven"], [])], ids=["proven", "friend"])
async def test_a_fallen_reward_takes_back_the_groups_of_a_proven_peer_unless_the_operator_trusts_it(
    start, database, trusted, peers
):
    prove(database, "proven")
    answers = Answers()
    book, rounds = start(answers, trusted=trusted)
    offer(book, (group_of("proven", counter) for counter in range(40)))
    await play(rounds, range(12))
    answers.right = 0
    await play(rounds, range(12, 17))
    assert [each.peers for each in taken_back(database)] == peers


async def test_a_reward_that_falls_without_others_is_no_alarm(start, database):
    answers = Answers()
    _, rounds = start(answers)
    await play(rounds, range(12))
    answers.right = 0
    await play(rounds, range(12, 24))
    assert taken_back(database) == []
    assert rounds._external.strangers_share == STRANGERS_SHARE


async def test_a_local_group_of_a_held_out_prompt_counts_in_the_figures_and_is_not_trained_on(start, database):
    _, rounds = start(Answers(), held_out={"What?"})
    [report] = await play(rounds, [0])
    [group] = stored_batch(database, report.step).request.groups
    assert (report.reward, report.informative) == (0.75, 1)
    assert group.advantages == (0.0,) * 8


async def test_a_round_without_a_correct_completion_trains_again_on_those_of_the_one_before(start, database):
    answers = Answers()
    _, rounds = start(answers, replay=Replay())
    await play(rounds, [0])
    answers.right = 0
    reports = await play(rounds, [1, 2])
    assert [report.replayed for report in reports] == [1, 0]
    groups = [
        [(each.id, len(each.completions)) for each in stored_batch(database, step).request.groups] for step in (2, 3)
    ]
    assert groups == [[("local/0", 8), ("replay/0", 6)], [("local/0", 8)]]


async def test_after_an_alarm_nothing_is_replayed_that_was_sampled_before_it(start):
    answers, replay = Answers(), Replay()
    book, rounds = start(answers, replay=replay)
    offer(book, (group_of("stranger", counter) for counter in range(40)))
    await play(rounds, range(12))
    answers.right = 0
    await play(rounds, range(12, 16))
    waiting = Answers()
    replay.beside(await waiting.generate(None, 1) * 4)
    await play(rounds, [16])
    assert replay.beside(await answers.generate(None, 1)) == []
