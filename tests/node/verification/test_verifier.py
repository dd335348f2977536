"""Re-verification: only what this node found true itself becomes a verified group."""

import hashlib
import random
from dataclasses import replace

import pytest

from context import context_of
from fetching import turn_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.book import Turn
from sapo_node.groups.levels import Levels
from sapo_node.groups.record import Unusable, VerifiedGroup
from sapo_node.trust.constants import Evidence, PeerState
from sapo_node.trust.ledger import Account, Ledger
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.verifier import Verifier
from sapo_protocol import (
    Completion,
    Finish,
    Header,
    assign,
    decode_header,
    encode_body,
    match_bodies,
    open_envelope,
    parse_envelope,
    peer_id,
)
from swarm_parts import OpenScorer


async def groups_of(verifier, rollout):
    found = await verifier.verify(turn_of(verifier, rollout))
    return [finding for finding in found.values() if isinstance(finding, VerifiedGroup)]


class FailingScorer:
    """A sandbox that fails closed."""

    async def score(self, batch):
        return [None for _ in batch]


@pytest.fixture
def ledger(database):
    return Ledger(database)


@pytest.fixture
def verifier(manifest, ledger):
    return Verifier(context_of(manifest, random.Random(1)), OpenScorer(), ledger)


async def test_an_honest_group_is_verified_with_levels_computed_here(verifier, author):
    group, body, task = right_and_wrong(author)
    (verified,) = await groups_of(verifier, rollout(author, [group], [body]))
    assert verified.levels == Levels((1,) * 3 + (0,) * 5)
    assert verified.prompt == task.prompt
    assert [(each.text, each.finish) for each in verified.completions] == [
        (each.text, each.finish) for each in body.completions
    ]


async def test_verified_groups_raise_trust(verifier, author, ledger):
    group, body, _ = right_and_wrong(author)
    await groups_of(verifier, rollout(author, [group], [body]))
    assert ledger.of(peer_id(author.issuer)).trust > 0.5


async def test_a_false_claim_is_caught_remembered_and_not_trained_on(verifier, author, ledger):
    group, body, _ = right_and_wrong(author)
    lie = replace(group, claims=(0, *group.claims[1:]))
    assert await groups_of(verifier, rollout(author, [lie], [body])) == []
    assert verifier.unusable == {Unusable.FALSE_CLAIM: 1}
    assert ledger.of(peer_id(author.issuer)).trust < 0.5


async def test_wrong_answers_honestly_claimed_cost_nothing(manifest, author, ledger):
    group, body, _ = right_and_wrong(author, right=0)
    always_audit = Verifier(context_of(manifest, AlwaysFirst()), OpenScorer(), ledger)
    assert await groups_of(always_audit, rollout(author, [group], [body])) == []
    assert ledger.of(peer_id(author.issuer)).evidence.bad == 0


async def test_a_group_of_a_held_out_prompt_is_left_out_and_proves_as_much_as_another(manifest, author, ledger):
    group, body, task = right_and_wrong(author)
    verifier = Verifier(context_of(manifest, random.Random(1)), OpenScorer(), ledger)
    verifier.held_out.add(task.prompt)
    assert await groups_of(verifier, rollout(author, [group], [body])) == []
    assert verifier.unusable == {Unusable.HELD_OUT: 1}
    assert ledger.of(peer_id(author.issuer)).evidence.good > 0


class AlwaysFirst(random.Random):
    """Audits everything."""

    def random(self):
        return 0.0


async def test_a_group_claimed_flat_is_not_scored_unless_audited(manifest, database, author):
    ledger = Ledger(database, trusted=[peer_id(author.issuer)])
    verifier = Verifier(context_of(manifest, random.Random(1)), OpenScorer(), ledger)
    group, body, _ = right_and_wrong(author, right=0)
    assert await groups_of(verifier, rollout(author, [group], [body])) == []
    assert verifier.unusable == {Unusable.CLAIMED_ZERO_ADVANTAGE: 1}


@pytest.mark.parametrize("right", [0, 8])
async def test_groups_without_advantage_earn_nothing_also_where_they_are_audited(manifest, author, ledger, right):
    verifier = Verifier(context_of(manifest, AlwaysFirst()), OpenScorer(), ledger)
    groups, bodies, _ = zip(*(right_and_wrong(author, k, right=right) for k in range(16)), strict=True)
    assert await groups_of(verifier, rollout(author, groups, bodies)) == []
    assert verifier.unusable == {Unusable.ZERO_ADVANTAGE: 16}
    assert ledger.of(peer_id(author.issuer)) == Account(peer_id(author.issuer))


async def test_an_untrusted_peer_is_audited_no_more_often_than_others(verifier, author):
    group, body, _ = right_and_wrong(author, right=0)
    assert await groups_of(verifier, rollout(author, [group], [body])) == []
    assert verifier.unusable == {Unusable.CLAIMED_ZERO_ADVANTAGE: 1}


async def test_a_lie_about_a_flat_group_is_found_by_audit(manifest, author, ledger):
    group, body, _ = right_and_wrong(author, right=3)
    lie = replace(group, claims=(False,) * 8)
    await groups_of(Verifier(context_of(manifest, AlwaysFirst()), OpenScorer(), ledger), rollout(author, [lie], [body]))
    assert ledger.of(peer_id(author.issuer)).evidence.bad > 0


async def test_another_question_is_drift_and_nobodys_lie(verifier, author, ledger):
    group, body, _ = right_and_wrong(author)
    assert await groups_of(verifier, rollout(author, [replace(group, digest=bytes(32))], [body])) == []
    assert verifier.unusable == {Unusable.OTHER_TASK: 1}
    assert ledger.of(peer_id(author.issuer)).evidence == Evidence()


async def test_text_copied_from_another_peer_answers_the_wrong_question(verifier, author, other_author, ledger):
    """The copy is signed and digested well; its claims are those that made it valuable where it came from."""
    theirs, body, _ = right_and_wrong(other_author)
    own, _, _ = right_and_wrong(author)
    copy = replace(own, claims=theirs.claims, body=theirs.body)
    assert await groups_of(verifier, rollout(author, [copy], [body])) == []
    assert ledger.of(peer_id(author.issuer)).evidence.bad > 0


async def test_a_scorer_that_fails_closed_yields_nothing_and_blames_nobody(manifest, author, ledger):
    verifier = Verifier(context_of(manifest, random.Random(1)), FailingScorer(), ledger)
    group, body, _ = right_and_wrong(author)
    assert await groups_of(verifier, rollout(author, [group], [body])) == []
    assert verifier.unusable == {Unusable.UNSCORED: 1}
    assert ledger.of(peer_id(author.issuer)).state is PeerState.UNTRUSTED


async def test_a_signed_hash_of_something_that_is_no_body_is_charged_to_its_author(verifier, author, ledger):
    group, _, _ = right_and_wrong(author)
    junk = b"\xff junk"
    envelope = author.envelope(Header(5, 0, (replace(group, body=hashlib.sha256(junk).digest()),)))
    opened = open_envelope(parse_envelope(envelope, network_id=author.manifest.network_id))
    assert (
        await groups_of(verifier, match_bodies(opened, decode_header(opened.payload, author.manifest), (junk,))) == []
    )
    assert verifier.unusable == {Unusable.MALFORMED_BODY: 1}
    assert ledger.of(peer_id(author.issuer)).evidence.bad > 0


async def test_a_body_left_out_is_skipped_and_the_others_are_verified(verifier, author):
    first, _, _ = right_and_wrong(author, 0)
    second, body, _ = right_and_wrong(author, 1)
    groups = await groups_of(verifier, rollout(author, [first, second], [None, body]))
    assert [group.k for group in groups] == [1]


async def test_a_request_names_the_assigned_task_and_nothing_of_the_peers(author, manifest):
    asked = []

    class Recording(OpenScorer):
        async def score(self, batch):
            asked.extend(batch)
            return await super().score(batch)

    from sapo_node.app.state import SCHEMA
    from sapo_node.storage.database import Database

    ledger = Ledger(Database(None, SCHEMA))
    group, body, _ = right_and_wrong(author)
    verifier = Verifier(context_of(manifest, random.Random(1)), Recording(), ledger)
    await groups_of(verifier, rollout(author, [group], [body]))
    task = assign(manifest, author.issuer, 5, 0, 0)
    texts = tuple(completion.text for completion in body.completions)
    assert asked == [ScoreRequest(task.spec.dataset, task.spec.config, task.seed, texts)]


async def test_nothing_is_found_about_a_group_that_is_not_in_the_turn(verifier, author):
    groups, bodies, _ = zip(*(right_and_wrong(author, k) for k in range(3)), strict=True)
    found = await verifier.verify(Turn(rollout(author, groups, [None, bodies[1], None]), (1, 2)))
    assert found.keys() == {1, 2}
    assert verifier.unusable == {Unusable.NO_BODY: 1}


@pytest.fixture
def graded(author):
    """The author of rounds in a swarm whose only task has four levels."""
    [spec] = [each for each in author.manifest.tasks if each.dataset == "spell_backward"]
    manifest = replace(author.manifest, tasks=(replace(spec, config={"min_word_len": 4, "max_word_len": 4}, levels=4),))
    return replace(author, manifest=manifest)


def parts(author, each, claims=None):
    """A group whose completions have so many letters in place, of four. Its claims are true, if no others are given."""
    group, body, task = right_and_wrong(author)
    answers = [task.answer[:level] + "?" * (4 - level) for level in each]
    body = replace(body, completions=tuple(Completion((f"<answer>{a}</answer>",), Finish.STOP) for a in answers))
    return replace(group, claims=claims or each, body=hashlib.sha256(encode_body(body)).digest()), body


async def findings(author, ledger, rng, *group):
    verifier = Verifier(context_of(author.manifest, rng), OpenScorer(), ledger)
    head, body = parts(author, *group)
    return (await verifier.verify(turn_of(verifier, rollout(author, [head], [body]))))[0]


MIXED, PARTS = (4, 3, 3, 2, 1, 0, 0, 0), (3, 3, 3, 2, 1, 0, 0, 0)


async def test_a_group_with_parts_is_verified_with_its_levels(graded, ledger, rng):
    assert (await findings(graded, ledger, rng, MIXED)).levels == Levels(MIXED, 4)


@pytest.mark.parametrize("claim", [3, 5, 255])
async def test_a_claim_of_another_level_is_false(graded, ledger, rng, claim):
    assert await findings(graded, ledger, rng, MIXED, (4, 3, claim, 1, 1, 0, 0, 0)) is Unusable.FALSE_CLAIM
    assert ledger.of(peer_id(graded.issuer)).evidence.bad > 0


async def test_a_group_that_claims_no_correct_completion_is_not_scored(graded, ledger, rng):
    assert await findings(graded, ledger, rng, PARTS) is Unusable.CLAIMED_ZERO_ADVANTAGE


async def test_an_audited_group_without_a_correct_completion_is_left_out_and_earns_nothing(graded, ledger):
    assert await findings(graded, ledger, AlwaysFirst(), PARTS) is Unusable.NO_CORRECT
    assert ledger.of(peer_id(graded.issuer)) == Account(peer_id(graded.issuer))
