"""A real node with a feed, and a trainer in this process."""

import stat

from chat_server import work
from processes import RunningProcess, write_swarm
from sapo_node.client import Completion, Feed, GroupReport


def sample(prompts):
    texts = [[work(prompt[-1].content), "It is <answer>unknown</answer>"] * 4 for prompt in prompts.prompts]
    return [[Completion(text, "stop") for text in group] for group in texts]


def train(feed):
    batch = feed.next_batch(sample)
    feed.report(batch, {group.id: GroupReport(10) for group in batch.groups}, saved=batch.step)
    return batch.step


def test_a_trainer_goes_on_with_the_next_step_after_the_node_was_killed(tmp_path):
    swarm = write_swarm(tmp_path / "fed.toml")
    options = ("--swarm", swarm, "--no-train", "--feed", "--local", "2", "--dashboard", "off")
    with RunningProcess(tmp_path / "node", *options) as node:
        node.until_event("started")
        [file] = (tmp_path / "node/state").rglob("feed.json")
        feed = Feed(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert [train(feed), train(feed)] == [1, 2]
        played = node.until_round(1)
        assert played["step"] == 1, played
    with RunningProcess(tmp_path / "node", *options) as node:
        assert train(feed) == 3
        node.until_round(1)
        node.process.terminate()
        node.until_event("stopped")
