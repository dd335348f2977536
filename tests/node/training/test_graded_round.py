"""A round in a swarm whose only task has four levels: what a node claims, trains on, counts and is evaluated by."""

from dataclasses import dataclass, replace

import pytest

from books import book_of
from context import context_of
from sapo_node.app.state import SCHEMA
from sapo_node.feed.policy import batch_of
from sapo_node.groups.book import newest
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled, TrainRequest
from sapo_node.groups.record import LOCAL, by_task
from sapo_node.observability.explain import facts_of
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import BatchLog, Member, StoredBatch, from_local, stored_batch
from sapo_node.training.evaluation import measure
from sapo_node.training.rollout import Contribution
from sapo_node.training.round import Replay
from sapo_protocol import decode_header, decode_message, open_envelope, parse_envelope
from swarm_parts import KnowingScorer

LEVELS = (4, 3, 1, 0)


@dataclass
class Partial:
    """Writes as many letters of each answer in place as LEVELS says, in turn."""

    answers: dict

    async def generate(self, prompts, *, completions, max_tokens, seed, averaged=False):
        return [
            tuple(self._said(self.answers[prompt.text], LEVELS[n % len(LEVELS)]) for n in range(completions))
            for prompt in prompts
        ]

    def _said(self, answer, level):
        return Sampled(f"<answer>{answer[:level]}{'?' * (4 - level)}</answer>", "stop", (1,))


@pytest.fixture
def graded(manifest):
    [spec] = [each for each in manifest.tasks if each.dataset == "spell_backward"]
    config = {"min_word_len": 4, "max_word_len": 4}
    return replace(manifest, tasks=(replace(spec, config=config, levels=4),), completions=4)


@pytest.fixture
async def played(graded, rng):
    """The groups of a round, and the message that it shared."""
    sent, answers = [], {}
    scorer = KnowingScorer(answers)

    async def publish(message):
        sent.append(message)

    counters = Counters(Database(None, SCHEMA), graded, now=graded.genesis, key_is_new=True, rng=rng)
    contribution = Contribution(
        context_of(graded, rng),
        answerer=Partial(answers),
        scorer=scorer,
        counters=counters,
        publish=publish,
        max_tokens=9,
        model="",
    )
    slot = counters.reserve(graded.genesis)
    local = await contribution.generate(slot, 2)
    await contribution.share(slot, local)
    return local, sent[0]


async def test_a_node_claims_the_levels_that_its_completions_earn(played, graded):
    _, message = played
    envelope, _ = decode_message(message, graded)
    header = decode_header(open_envelope(parse_envelope(envelope, network_id=graded.network_id)).payload, graded)
    assert [group.claims for group in header.groups] == [LEVELS] * 2


async def test_local_advantages_follow_the_levels(played):
    local, _ = played
    best, better, worse, worst = local[0].advantages
    assert best > better > 0 > worse > worst


async def test_what_was_shared_counts_correct_completions_alone(played):
    local, _ = played
    [counted] = by_task(local)
    assert (counted.groups, counted.informative, counted.completions, counted.right) == (2, 2, 8, 2)


async def test_an_evaluation_tells_correct_completions_and_the_mean_reward(graded):
    answers = {}
    found = await measure(graded, Partial(answers), KnowingScorer(answers), prompts=3, samples=4, max_tokens=9)
    assert found.pass_at_1.point == 0.25
    assert found.as_dict()["reward"] == 0.5


async def test_a_trainer_gets_level_and_reward_of_each_completion(played):
    local, _ = played
    [group] = batch_of(TrainRequest(1, (from_local(local[0], 0),)), ()).groups
    assert group.levels == 4
    assert [each.level for each in group.completions] == list(LEVELS)
    assert [each.reward for each in group.completions] == [1.0, 0.75, 0.25, 0.0]


async def test_the_book_keeps_the_levels_and_people_see_them(played):
    local, _ = played
    database = Database(None, SCHEMA)
    book_of(database).enter(1, local[0])
    [entry] = newest(database, 1)
    assert entry.levels == Levels(LEVELS, 4)
    facts = facts_of(entry)
    assert facts["levels"] == 4
    assert [each["level"] for each in facts["completions"]] == list(LEVELS)
    assert [each["correct"] for each in facts["completions"]] == [True, False, False, False]


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_a_stored_batch_gives_a_replayed_group_back_with_the_completions_above_its_mean(played, is_forgotten):
    local, _ = played
    database = Database(None, SCHEMA)
    book = book_of(database)
    if not is_forgotten:
        book.enter(1, local[0])
    replay = Replay()
    replay.beside(local[:1])
    [again] = replay.beside([replace(local[0], advantages=(0.0,) * 4)])
    number = book.enter_again(2, again)
    request = TrainRequest(2, (from_local(again, 0, source="replay"),))
    BatchLog(database).store(StoredBatch(request, {"replay/0": Member(number, LOCAL)}))
    assert stored_batch(database, 2).request == request
    assert request.groups[0].levels == Levels((4, 3), 4)
