"""A trainer of another program is a node's policy: real rounds, a real server on loopback, and the real client."""

import json
import stat
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import httpx
import pytest
import trio
from msgspec import structs

from books import entered, offer
from fed_node import FedNode, external, in_thread
from no_hub import NoHub
from sapo_node import client
from sapo_node.app.config import Config
from sapo_node.app.state import SCHEMA
from sapo_node.client import Completion, Feed, FeedError, GroupReport, StepBack
from sapo_node.feed import server
from sapo_node.feed.access import TRAINER_HEADER, read_access
from sapo_node.feed.messages import Completed, GoBackRefused, Started, StepReport
from sapo_node.feed.openapi import description
from sapo_node.feed.policy import train_report
from sapo_node.feed.server import FeedServer, Lease, LeaseHeld
from sapo_node.groups.codec import MalformedError, from_json
from sapo_node.groups.messages import Bounds, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.record import LOCAL
from sapo_node.observability.dashboard import parse_place
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import BatchLog, last_counted, local_id, trained_per_peer
from sapo_node.training.health import WINDOW
from sapo_protocol import LocalError


class Trainer:
    """A trainer that answers every other completion correctly, and trains on everything that has an advantage."""

    def __init__(self, node):
        self.node = node
        self.feed = Feed(node.file, patience=20)
        self.trained = []
        self.skilled = True

    def sample(self, prompts):
        def text(prompt, k):
            answer = self.node.answers[prompt[-1].content] if k % 2 and self.skilled else "no idea"
            return f"Let me see. <answer>{answer}</answer>"

        return [
            [Completion(text(prompt, k), "stop", (k, k + 1), (-0.5, -0.5), "mine") for k in range(prompts.completions)]
            for prompt in prompts.prompts
        ]

    def step(self, **figures):
        batch = self.feed.next_batch(self.sample)
        self.trained.append(batch.step)
        reports = {group.id: GroupReport(16) for group in batch.groups}
        self.feed.report(batch, reports, **{"saved": batch.step, "loss": 0.5, "entropy": 1.0, **figures})
        return batch


@pytest.fixture
def node(tmp_path, manifest):
    return FedNode(tmp_path, manifest)


@pytest.fixture
def trainer(node):
    return Trainer(node)


async def test_a_round_is_shared_scored_and_trained_on_beside_external_groups(node, trainer):
    async with node.running(rounds=1):
        node.offer(0)
        batch = await in_thread(trainer.step)
        await node.finished.wait()
        local = [group for group in batch.groups if group.source == "local"]
        [other] = [group for group in batch.groups if group.source == "external"]
        assert [each.reward for each in local[0].completions] == [False, True] * 4
        assert [each.advantage > 0 for each in local[0].completions] == [False, True] * 4
        assert local[0].completions[1].tokens == (1, 2)
        assert other.id == "peer/10/0/0"
        assert 0 < other.weight <= 1
        assert len(node.published) == 1
        assert trained_per_peer(node.database) == {LOCAL: (2, 32), "peer": (1, 16)}
        [report] = node.reports
        assert (report.step, report.external, report.training.loss, report.reward) == (1, 1, 0.5, 0.5)


async def test_the_length_of_completions_that_came_without_tokens_is_not_known(node, trainer):
    sample = trainer.sample
    trainer.sample = lambda prompts: [
        [structs.replace(each, tokens=(), logprobs=()) for each in group] for group in sample(prompts)
    ]
    async with node.running(rounds=1):
        await in_thread(trainer.step)
        await node.finished.wait()
    assert node.reports[0].training.mean_length is None


async def test_a_text_that_the_node_cuts_loses_its_tokens(node, trainer):
    sample = trainer.sample
    trainer.sample = lambda prompts: [
        [
            structs.replace(each, text=each.text + "!" * prompts.max_bytes) if k == 0 else each
            for k, each in enumerate(group)
        ]
        for group in sample(prompts)
    ]
    async with node.running(rounds=1):
        batch = await in_thread(trainer.step)
        await node.finished.wait()
    for group in batch.groups:
        cut, whole, *_ = group.completions
        assert (len(cut.text), cut.finish, cut.tokens, cut.logprobs) == (node.policy.max_bytes, "length", (), ())
        assert (whole.finish, whole.tokens) == ("stop", (1, 2))
    assert node.reports[0].training.mean_length == 2


async def test_an_external_group_is_given_out_once(node, trainer):
    async with node.running():
        node.offer(0, 1, 2)
        given = [group.id for _ in range(3) for group in (await in_thread(trainer.step)).groups]
    assert sorted(each for each in given if each.startswith("peer")) == [f"peer/10/{n}/0" for n in range(3)]


async def test_a_trainer_trains_on_no_token_of_a_correct_completion_behind_an_answer(node, trainer):
    group = external(0)
    twice = Sampled("So <answer>7</answer> 2*3=6. So <answer>6</answer>", "stop")
    async with node.running():
        offer(node.node.book, [replace(group, completions=(group.completions[0], twice, *group.completions[2:]))])
        batch = await in_thread(trainer.step)
    [given] = [each for each in batch.groups if each.source == "external"]
    trained = [any(batch.kept(given, each, [(0, len(each.text))])) for each in given.completions]
    assert trained == [False, False, False, True, False, True, False, True]


async def test_a_node_that_was_killed_before_the_report_sends_the_same_batch_again(node, trainer):
    async with node.running():
        node.offer(0)
        first = await in_thread(trainer.feed.next_batch, trainer.sample)
    async with node.running():
        assert await in_thread(trainer.step) == first
        assert (await in_thread(trainer.step)).step == 2


def batch_with_a_replayed_group():
    """What a node with `replay = true` stored: a group of its round without an advantage, and one to replay."""
    sampled = Sampled("<answer>4</answer>", "stop", (1, 2), (-0.5, -0.5))
    groups = (
        TrainGroup("local", "What is 2 + 2?", 1.0, (0.0,) * 8, (sampled,) * 8, local_id(0)),
        TrainGroup("replay", "What is 1 + 3?", 1.0, (0.7,) * 4, (sampled,) * 4, local_id(0, "replay")),
    )
    return TrainRequest(1, groups)


async def test_a_trainer_gets_a_stored_batch_with_a_replayed_group_and_it_counts_as_local(node, trainer):
    with closing(Database(node.folder / "node.sqlite", SCHEMA)) as database:
        request = batch_with_a_replayed_group()
        BatchLog(database).store(entered(database, request, {group.id: LOCAL for group in request.groups}))
    async with node.running():
        batch = await in_thread(trainer.step)
        await in_thread(trainer.feed.next_batch, trainer.sample)
        assert [group.source for group in batch.groups] == ["local", "replay"]
        assert trained_per_peer(node.database) == {LOCAL: (2, 32)}


def test_a_replayed_group_hides_no_group_without_an_advantage():
    trained = {local_id(0): GroupReport(0), local_id(0, "replay"): GroupReport(8)}
    report = train_report(batch_with_a_replayed_group(), StepReport("", trained), seconds=1.0)
    assert (report.zero_advantage, report.local_tokens, report.external_tokens) == (1.0, 8, 0)


async def test_a_node_that_was_killed_before_it_counted_a_step_gets_the_same_report_again(node, trainer):
    async with node.running():
        await in_thread(trainer.step)
        node.database.execute("UPDATE trained SET step = 0")
    async with node.running():
        await in_thread(trainer.step)
    assert trainer.trained == [1, 2]


async def test_an_answer_whose_reply_was_lost_may_be_sent_again(node, trainer):
    async with node.running():
        await in_thread(trainer.step)
        await in_thread(trainer.feed._post, "report", trainer.feed._reported)
        assert (await in_thread(trainer.step)).step == 2


async def test_a_trainer_waits_while_the_node_is_away(node, trainer):
    async with node.running():
        batch = await in_thread(trainer.feed.next_batch, trainer.sample)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, trainer.feed.report, batch, {"local/0": GroupReport(5)})
        async with node.running():  # at another port
            await in_thread(trainer.step)
            assert trained_per_peer(node.database)[LOCAL] == (3, 37)
        nursery.cancel_scope.cancel()  # the step has repeated the report, which may still wait for its next try


async def test_a_trainer_that_starts_from_a_checkpoint_gets_the_later_batches_again(node, trainer):
    async with node.running():
        batches = [await in_thread(partial(trainer.step, saved=1)) for _ in range(3)]
        await in_thread(trainer.feed.started, 1)
        again = [await in_thread(trainer.step) for _ in range(2)]
        assert again == batches[1:]
        assert (await in_thread(trainer.step)).step == 4
        assert trained_per_peer(node.database)[LOCAL] == (8, 128)


async def test_a_trainer_that_trained_and_saved_without_a_report_goes_on_with_the_next_step(node, trainer):
    async with node.running():
        batch = await in_thread(trainer.feed.next_batch, trainer.sample)
        await in_thread(trainer.feed.started, batch.step)
        assert (await in_thread(trainer.step)).step == batch.step + 1


async def until_step_back(node, trainer):
    """Train on an external group, then answer everything incorrectly until the watch over the local reward objects."""
    for number in range(8):
        node.offer(*([0] if number == 2 else []))
        await in_thread(partial(trainer.step, saved=min(number + 1, 2)))
    trainer.skilled = False
    with pytest.raises(StepBack) as back:
        while len(trainer.trained) < 40:
            await in_thread(partial(trainer.step, saved=2))
    trainer.skilled = True
    return back.value


async def test_an_alarm_takes_steps_back_and_the_accused_group_is_not_sent_again(node, trainer):
    async with node.running():
        back = await until_step_back(node, trainer)
        assert back.step == 2
        assert trained_per_peer(node.database)["peer"] == (1, 16)
        steps = max(trainer.trained)
        await in_thread(trainer.feed.started, back.step)
        again = [await in_thread(trainer.step) for _ in range(steps - 2)]
        assert [batch.step for batch in again] == list(range(3, steps + 1))
        assert {group.source for batch in again for group in batch.groups} == {"local"}
        assert (await in_thread(trainer.step)).step == steps + 1
        assert trained_per_peer(node.database)["peer"] == (0, 0)


async def test_a_trainer_that_cannot_go_back_keeps_its_steps(node, trainer):
    async with node.running():
        back = await until_step_back(node, trainer)
        await in_thread(trainer.feed.refuse, back, "it keeps no checkpoint")
        assert (await in_thread(trainer.step)).step == max(trainer.trained)
        assert trained_per_peer(node.database)["peer"] == (1, 16)


async def test_weights_after_a_step_that_is_taken_back_are_refused(node, trainer):
    async with node.running():
        await until_step_back(node, trainer)
        with pytest.raises(FeedError, match="waits for the weights of step 2") as refused:
            await in_thread(trainer.feed._post, "started", Started(3))
        assert refused.value.status == 409


async def test_a_trainer_that_starts_again_with_steps_that_are_taken_back_is_told_where_to_go(node, trainer):
    async with node.running():
        told = await until_step_back(node, trainer)
        await in_thread(trainer.feed.close)
        again = Feed(node.file)
        with pytest.raises(
            StepBack, match=r"load the checkpoint of step 2, delete later ones and call started\(2\)"
        ) as back:
            await in_thread(again.started, 3)
        assert (back.value.step, back.value.id) == (told.step, told.id)
        await in_thread(again.started, 2)
        assert (await in_thread(again.next_batch, trainer.sample)).step == 3


def shaped(count=8, prompt=0, **more):
    more = {"tokenizer": "mine", **more} if "tokens" in more else more
    return {"prompt": prompt, "completions": [{"text": "a", "finish": "stop", **more}] * count}


async def test_an_answer_of_another_form_is_refused_in_a_sentence_and_changes_nothing(node, trainer):
    async with node.running():
        prompts = (await in_thread(trainer.feed._work)).prompts
        for path, body, status, reason in [
            ("completions", {"id": "prompts/old", **shaped()}, 409, "does not wait for this answer"),
            ("completions", {"id": prompts.id, **shaped(prompt=2)}, 409, "give a number from 0 to 1"),
            ("completions", {"id": prompts.id, **shaped(prompt=-1)}, 422, r">= 0 - at `\$.prompt`"),
            ("completions", {"id": prompts.id, **shaped(count=7)}, 409, "7 completions; give 8"),
            ("completions", {"id": prompts.id, **shaped(tokens=[1.5])}, 422, "Expected `int`, got `float`"),
            ("completions", {"id": prompts.id, **shaped(logprobs=[0])}, 409, "1 logprobs of 0 tokens"),
            ("completions", {"id": prompts.id, **shaped(tokens=[7], tokenizer="")}, 409, "name their tokenizer"),
            ("completions", {"id": prompts.id, **shaped(tokens=[7], tokenizer="a" * 65)}, 409, "at most 64 characters"),
            ("completions", {"id": prompts.id, **shaped(tokens=[7], logprobs=[0.1])}, 422, "<= 0.0 - at .*logprobs"),
            ("completions", {"id": prompts.id, **shaped(tokens=[7] * 81)}, 409, "81 tokens; give at most 80"),
            ("completions", {"id": prompts.id, "rewards": []}, 422, "unknown field `rewards`"),
            ("completions", [], 422, "Expected `object`"),
            ("report", {"id": prompts.id}, 409, "asks for no report"),
            ("report", {"id": "batch/1/00"}, 409, "does not wait"),
            ("refused", {"id": prompts.id, "reason": ""}, 409, "cannot be refused"),
            ("started", {"step": 1}, 409, "the node knows the steps from 0 to 0"),
            ("started", {"step": 10**30}, 422, "<= 2147483648"),
        ]:
            with pytest.raises(FeedError, match=reason) as refused:
                await in_thread(trainer.feed._ask, dict, "POST", path, body)
            assert refused.value.status == status
        assert (await in_thread(trainer.feed._work)).prompts == prompts


async def test_the_completions_of_a_prompt_may_come_again_and_in_any_order(node, trainer):
    async with node.running(rounds=1):
        prompts = (await in_thread(trainer.feed._work)).prompts
        groups = trainer.sample(prompts)
        for number in (1, 1, 0, 0):
            await in_thread(trainer.feed._post, "completions", Completed(prompts.id, number, tuple(groups[number])))
        batch = await in_thread(trainer.step)
    assert [[each.text for each in group.completions] for group in batch.groups] == [
        [each.text for each in group] for group in groups
    ]


async def test_a_sampler_whose_completions_do_not_fit_is_told(node, trainer):
    async with node.running():
        with pytest.raises(FeedError, match="prompt 0 has 7 completions; give 8"):
            await in_thread(trainer.feed.next_batch, lambda prompts: [each[:7] for each in trainer.sample(prompts)])


async def test_a_sampler_that_leaves_a_prompt_out_is_told(node, trainer):
    async with node.running():
        with pytest.raises(FeedError, match="sample returned 1 groups for 2 prompts"):
            await in_thread(trainer.feed.next_batch, lambda prompts: trainer.sample(prompts)[:1])


async def test_a_batch_names_the_tokenizer_of_a_trainer_that_another_one_follows(node, trainer):
    async with node.running():
        await in_thread(trainer.feed.next_batch, trainer.sample)
        await in_thread(trainer.feed.close)
    async with node.running():
        second = Feed(node.file)
        batch = await in_thread(second.next_batch, trainer.sample)
    assert {each.tokenizer for group in batch.groups for each in group.completions} == {"mine"}


async def test_a_figure_that_is_none_is_told_to_the_trainer_by_its_name(node, trainer):
    async with node.running():
        batch = await in_thread(trainer.feed.next_batch, trainer.sample)
        for figure in ("loss", "grad_norm", "entropy", "learning_rate"):
            with pytest.raises(LocalError, match=f"StepReport: .*{figure}"):
                await in_thread(partial(trainer.feed.report, batch, {}, **{figure: float("nan")}))


async def test_a_reason_that_no_database_can_store_ends_no_node(node, trainer):
    async with node.running():
        back = await until_step_back(node, trainer)
        await in_thread(trainer.feed._post, "refused", GoBackRefused(back.id, "a" * 200 + "\ud800\n\x1b"))
        assert (await in_thread(trainer.step)).step == max(trainer.trained)


async def test_a_second_trainer_is_refused_until_the_first_has_ended(node, trainer):
    async with node.running():
        await in_thread(trainer.step)
        second = Feed(node.file)
        for ask in (partial(second.started, 0), partial(second.next_batch, trainer.sample)):
            with pytest.raises(FeedError, match=r"another trainer has this feed.*stop it") as refused:
                await in_thread(ask)
            assert refused.value.status == 403
        assert node.policy.step == 1
        await in_thread(trainer.feed.close)
        await in_thread(second.started, 0)
        assert node.policy.step == 0


def test_a_lease_ends_some_seconds_after_the_last_request():
    now = 0.0
    held = Lease(lambda: now)
    held.renew("a")
    now = server.LEASE_SECONDS - 1
    with pytest.raises(LeaseHeld, match=r"asked 39 s ago.*frees the feed 40 s after"):
        held.renew("b")
    held.renew("a")
    now += server.LEASE_SECONDS - 1
    with pytest.raises(LeaseHeld):
        held.renew("b")
    held.end("b")
    with pytest.raises(LeaseHeld):
        held.renew("b")
    now += 1
    held.renew("b")
    with pytest.raises(LeaseHeld):
        held.renew("a")


async def test_a_trainer_in_a_long_step_keeps_its_lease(node, trainer, monkeypatch):
    monkeypatch.setattr(client, "_RENEW_SECONDS", 0.05)
    async with node.running():
        batch = await in_thread(trainer.feed.next_batch, trainer.sample)
        monkeypatch.setattr(server, "LEASE_SECONDS", 1.0)
        await trio.sleep(1.2)
        second = Feed(node.file)
        with pytest.raises(FeedError, match="another trainer"):
            await in_thread(second.started, 0)
        await in_thread(trainer.feed.report, batch, {})


async def test_a_trainer_that_names_itself_in_no_way_is_refused(node):
    async with asking(node) as (client, asks):
        for name in (None, "", "a b", "a" * 65, "\u00e4".encode()):
            headers = {key: value for key, value in asks.items() if key != TRAINER_HEADER}
            headers |= {} if name is None else {TRAINER_HEADER: name}
            reply = await client.get("/v1/work", headers=headers)
            assert (reply.status_code, "Sapo-Trainer: NAME" in reply.text) == (422, True)


async def test_a_report_that_does_not_fit_its_batch_is_refused(node, trainer):
    async with node.running():
        batch = await in_thread(trainer.feed.next_batch, trainer.sample)
        for change, reason in [
            ({"groups": {"local/9": {"tokens": 1}}}, "no group 'local/9'"),
            ({"groups": {"local/0": {"tokens": 2**63}}}, "<= 2147483648"),
            ({"groups": {"local/0": {"rejected": {"8": "length"}}}}, "has the completions 0 to 7"),
            ({"saved": 2}, "saved"),
            ({"loss": 10**400}, "out of range.*loss"),
        ]:
            with pytest.raises(FeedError, match=reason) as refused:
                await in_thread(trainer.feed._ask, dict, "POST", "report", {"id": batch.id, **change})
            assert refused.value.status in {409, 422}
        assert last_counted(node.database) == 0


async def test_numbers_at_the_ends_of_their_ranges_end_no_node_and_are_read_again(node, trainer):
    sample = trainer.sample
    trainer.sample = lambda prompts: [
        [structs.replace(each, tokens=(2**31 - 1,) * 80, logprobs=(-1e6,) * 80) for each in group]
        for group in sample(prompts)
    ]
    figures = {"loss": -3.4e38, "grad_norm": 3.4e38, "entropy": 64.0, "learning_rate": 1e3}
    async with node.running():
        for _ in range(WINDOW):
            await in_thread(partial(trainer.step, **figures))
    async with node.running():
        node.offer(0)
        batch = await in_thread(trainer.step)
    [other] = [group for group in batch.groups if group.source == "external"]
    assert other.bounds == Bounds(-1e6, -8e7)


@asynccontextmanager
async def asking(node):
    async with node.running():
        access = read_access(node.file)
        async with httpx.AsyncClient(base_url=access.url, trust_env=False) as client:
            yield client, {"Authorization": f"Bearer {access.token}", TRAINER_HEADER: "test"}


async def test_nothing_is_told_without_the_token(node):
    async with asking(node) as (client, token):
        for given in (
            "",
            "Bearer",
            "Bearer guess",
            token["Authorization"][:-1],
            token["Authorization"][7:],
            "Bearer \xe4",
        ):
            for method, path in (("GET", "/v1/work"), ("POST", "/v1/completions"), ("GET", "/nothing")):
                reply = await client.request(method, path, headers={"Authorization": given.encode("latin-1")})
                assert (reply.status_code, "prompts" in reply.text) == (401, False)


async def test_a_page_of_another_host_name_is_refused(node):
    async with asking(node) as (client, token):
        assert (await client.get("/v1/work", headers={**token, "Host": "evil.example"})).status_code == 421


async def test_a_body_beyond_the_bound_is_refused(node):
    async with asking(node) as (client, token):
        reply = await client.post("/v1/completions", content=b" " * 3_000_000, headers=token)
        assert (reply.status_code, "more than" in reply.text) == (413, True)
        assert (await client.post("/v1/completions", content=b"[" * 50_000, headers=token)).status_code == 422


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/work", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
        ("/v1/lease", "POST, DELETE"),
        *((f"/v1/{path}", "POST") for path in ("completions", "report", "started", "refused")),
    ],
)
async def test_another_method_is_refused_with_those_that_a_path_takes(node, path, allowed):
    async with asking(node) as (client, asks):
        for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} - {*allowed.split(", ")}:
            reply = await client.request(method, path, headers=asks)
            assert (reply.status_code, reply.headers["allow"]) == (405, allowed)


async def test_what_is_no_path_or_no_time_is_refused(node):
    async with asking(node) as (client, asks):
        assert (await client.get("/v1/nothing", headers=asks)).status_code == 404
        for wait in ("-1", "30.1", "nan", "inf", "", "1e999", "9" * 5_000):
            assert (await client.get(f"/v1/work?wait={wait}", headers=asks)).status_code == 422
        assert (await client.head("/v1/work?wait=0", headers=asks)).status_code == 200


async def test_only_the_owner_can_read_the_token_and_it_outlives_a_restart(node):
    async with node.running():
        access = read_access(node.file)
        assert stat.S_IMODE(node.file.stat().st_mode) == 0o600
    async with node.running():
        assert read_access(node.file).token == access.token
        assert read_access(node.file).url != access.url


@pytest.mark.parametrize("content", ["", "{}", '{"url": "http://127.0.0.1:1", "token": ""}', "[" * 4_000])
def test_a_damaged_file_of_a_feed_is_refused_by_both_sides(node, content):
    node.file.write_text(content)
    with pytest.raises(LocalError, match="remove it"):
        Feed(node.file).started(0)
    with pytest.raises(LocalError, match="remove it"):
        FeedServer(SimpleNamespace(max_bytes=1), ("127.0.0.1", 0), node.folder, completions=8, max_tokens=80)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:8000", "[::]:0", "example.org:80", "here"])
async def test_an_address_beyond_loopback_is_refused(node, address, manifest):
    with pytest.raises(LocalError, match="feed is"):
        FeedServer(None, parse_place(address, "feed"), node.folder, completions=8, max_tokens=80)


def test_a_feed_beside_the_learner_is_refused():
    with pytest.raises(LocalError, match="--no-train"):
        Config(feed="127.0.0.1:0")


async def test_late_completions_do_not_end_the_node(node, trainer, manifest):
    node.manifest = replace(manifest, epoch_seconds=60)
    async with node.running():
        node.policy._answer_seconds = 0.2
        prompts = (await in_thread(trainer.feed._work)).prompts
        await trio.sleep(0.4)
        node.policy._answer_seconds = 60
        await in_thread(trainer.feed._complete, prompts, trainer.sample(prompts))  # refused, and told to go on
        assert (await in_thread(trainer.step)).step == 1


async def test_no_round_begins_before_a_trainer_asks_for_work(node, trainer):
    async with node.running():
        await trio.sleep(0.2)
        assert node.database.rows("SELECT * FROM batches") == []
        assert node.answers == {}
        await in_thread(trainer.step)
        assert len(node.answers) == 2


def test_the_client_is_light():
    heavy = "'torch', 'trio', 'libp2p', 'transformers', 'reasoning_gym'"
    program = f"import sys, sapo_node.client; print([name for name in ({heavy}) if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


async def test_every_answer_and_every_body_fits_the_openapi_description(node, trainer):
    seen = []

    def noting(kind, method, path, body=None):
        access = read_access(node.file)
        reply = httpx.request(
            method,
            f"{access.url}/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {access.token}", TRAINER_HEADER: "test"},
            trust_env=False,
        )
        seen.append((method, f"/v1/{path.partition('?')[0]}", body, reply.json()))
        return from_json(kind, reply.json())

    trainer.feed._ask = noting
    async with asking(node) as (client, _):
        described = (await client.get("/openapi.json")).json()
        node.offer(0)
        await in_thread(trainer.step)
        await in_thread(trainer.feed.started, 1)
    assert {path for _, path, _, _ in seen} >= {"/v1/work", "/v1/completions", "/v1/report", "/v1/started"}
    for method, path, body, reply in json.loads(json.dumps(seen)):
        operation = described["paths"][path][method.lower()]
        assert fits(reply, operation["responses"]["200"]["content"]["application/json"]["schema"], described)
        if body is not None:
            assert fits(body, operation["requestBody"]["content"]["application/json"]["schema"], described)
    assert not fits({"prompts": 1}, {"$ref": "#/components/schemas/Work"}, described)


def fits(value, schema, described):  # noqa: PLR0911 - one for each form
    """Whether a value keeps to a JSON schema: the words that the description uses, and no other."""
    match schema:
        case {"$ref": name}:
            return fits(value, described["components"]["schemas"][name.rpartition("/")[2]], described)
        case {"anyOf": choices}:
            return any(fits(value, each, described) for each in choices)
        case {"enum": values}:
            return value in values
        case {"type": "object", "additionalProperties": dict() as items}:
            return isinstance(value, dict) and all(fits(each, items, described) for each in value.values())
        case {"type": "object", "properties": known, "required": needed}:
            return (
                isinstance(value, dict)
                and set(needed) <= value.keys() <= known.keys()
                and all(fits(each, known[name], described) for name, each in value.items())
            )
        case {"type": "array", "prefixItems": parts, "minItems": least, "maxItems": most}:
            return least == len(value) == most and all(map(fits, value, parts, [described] * most))
        case {"type": "array", "items": items}:
            return isinstance(value, list) and all(fits(each, items, described) for each in value)
        case {"type": "integer" | "number" as kind, "minimum": low, "maximum": high}:
            return type(value) in ((int,) if kind == "integer" else (int, float)) and low <= value <= high
        case {"type": kind}:
            kinds = {"string": str, "boolean": bool, "null": type(None)}
            return isinstance(value, kinds[kind])
    raise AssertionError(schema)


ODD_NUMBERS = (0, -1, 1.0, 1.5, 2**31, 2**31 + 1, 2**63, 10**400, 64, 65, 1e308, -3.4e38, float("nan"), True, None, "1")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        *((Started, {"step": each}) for each in ODD_NUMBERS),
        *(
            (StepReport, {"id": "", figure: each})
            for figure in ("saved", "loss", "grad_norm", "entropy", "learning_rate")
            for each in ODD_NUMBERS
        ),
        *((StepReport, {"id": "", "groups": {"a": {"tokens": each, "untrained": [each]}}}) for each in ODD_NUMBERS),
        *(
            (Completed, {"id": "", "prompt": 0, "completions": [{"text": "", "finish": "stop", "logprobs": [each]}]})
            for each in (*ODD_NUMBERS, -1e6, -1.1e6)
        ),
    ],
    ids=lambda each: str(each)[:60],
)
def test_the_description_and_the_server_refuse_the_same_numbers(kind, body):
    described = description()
    try:
        from_json(kind, body)
        is_taken = True
    except MalformedError:
        is_taken = False
    assert fits(body, {"$ref": f"#/components/schemas/{kind.__name__}"}, described) == is_taken


@pytest.mark.parametrize("reply", [b"<html>", b"[]", b"1" * 6_000, b"[" * 100_000, b'{"prompts": 7}'])
def test_what_answers_and_is_no_feed_is_one_error_of_the_client(reply, tmp_path):
    with NoHub(reply) as other:
        file = tmp_path / "feed.json"
        file.write_text(json.dumps({"url": other.url, "token": "t" * 40}))
        with pytest.raises(FeedError, match="is no feed"):
            Feed(file, patience=1).started(0)


def test_an_address_that_is_none_is_one_error_of_the_client(tmp_path):
    (tmp_path / "feed.json").write_text(json.dumps({"url": "http://\x00", "token": "t" * 40}))
    with pytest.raises(FeedError, match="holds no address"):
        Feed(tmp_path / "feed.json", patience=1).started(0)
