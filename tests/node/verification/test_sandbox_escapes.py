"""Code that runs in a child of the sandbox gets nowhere: each attempt has the outcome that its table names."""

import pytest
import trio

import escapes
import evil_plugin
from escape_calls import CALLS
from sapo_node.verification.sandbox import requests, seccomp
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import TaskSpec

HONEST = ScoreRequest("chain_sum", {}, 7, ("<answer>no</answer>", "<answer>0</answer>"))
TASKS = [TaskSpec("chain_sum", {}, 1), TaskSpec(evil_plugin.DATASET, {}, 1)]


def evil(attempt):
    return ScoreRequest(evil_plugin.DATASET, {"attempt": attempt}, 0, ())


@pytest.fixture(scope="module")
def _installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    evil_plugin.install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


async def outcomes():
    """Of each attempt that is denied what it says; of each other one, which is made in a child of its own, the cause of
    its failure, and whether an honest batch gets the same as before.

    Those that are denied share children: they leave no trace for the next one.
    """
    sandbox, ends = Sandbox(TASKS), {}
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        if not sandbox.confined:
            pytest.skip(sandbox.describe())
        results = await sandbox.score([evil(attempt) for attempt in escapes.DENIED])
        denied = {name: result and result.prompt for name, result in zip(escapes.DENIED, results, strict=True)}
        before = await sandbox.score([HONEST])
        for attempt in (*escapes.ENDED, *escapes.CONFINED):
            sandbox.failures.clear()
            await sandbox.score([evil(attempt)])
            ends[attempt] = dict(sandbox.failures), await sandbox.score([HONEST]) == before != [None]
        assert sandbox.restarts == 0
        nursery.cancel_scope.cancel()
    return denied, ends


@pytest.fixture(scope="module")
def attacked(_installed):
    return trio.run(outcomes)


@pytest.fixture
def denied(attacked):
    return attacked[0]


@pytest.fixture
def ends(attacked):
    return attacked[1]


@pytest.mark.parametrize("attempt", escapes.DENIED)
def test_an_attempt_is_denied(attempt, denied):
    _, expected = escapes.DENIED[attempt]
    assert denied[attempt] == expected


@pytest.mark.parametrize("attempt", escapes.ENDED)
def test_an_attempt_fails_its_own_batch_and_no_other(attempt, ends):
    _, cause = escapes.ENDED[attempt]
    assert ends[attempt] == ({cause: 1}, True)


@pytest.mark.parametrize("attempt", escapes.CONFINED)
def test_what_a_child_changes_in_itself_the_next_child_does_not_see(attempt, ends):
    _, next_is_whole = ends[attempt]
    assert next_is_whole


def test_there_are_as_many_attempts_as_the_sandbox_was_once_attacked_with():
    assert len(escapes.DENIED) + len(escapes.ENDED) + len(escapes.CONFINED) >= 151


def test_no_attempt_is_a_call_that_the_filter_allows():
    for column in (0, 1):
        allowed = {numbers[column] for numbers in (seccomp._CALLS | seccomp._MAPPING_CALLS).values()}
        tried = [numbers[column] for numbers in CALLS.values() if numbers[column] is not None]
        assert not allowed & set(tried)
        assert len(set(tried)) == len(tried)
    assert len(escapes.DENIED) > requests.MAX_BATCH
