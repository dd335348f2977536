"""Turns what the training loop asks into messages for the trainer, and the trainer's report into a learner's."""

import hashlib
import json

from sapo_node.feed.messages import Batch, Graded, Group, Message, Report
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import SOURCES, FilterName, GroupReport, TrainGroup, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt, chat
from sapo_node.groups.record import is_cut


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt as a chat."""
    return tuple(from_json(Message, each) for each in chat(prompt))


def batch_of(request: TrainRequest, filters: tuple[FilterName, ...]) -> Batch:
    """A stored batch as the trainer gets it. The same batch has the same id after a restart of the node: its report may
    have been lost on the way.
    """
    digest = hashlib.sha256(json.dumps(to_json(request)).encode()).hexdigest()[:16]
    return Batch(
        f"batch/{request.step}/{digest}",
        request.step,
        tuple(_group(group) for group in request.groups),
        request.objective,
        request.rate_scale,
        filters,
    )


def _group(group: TrainGroup) -> Group:
    rewards = group.rewards or (None,) * len(group.completions)
    completions = tuple(
        Graded(each.text, each.finish, advantage, reward, each.tokens or (), each.logprobs, each.tokenizer, each.silent)
        for each, advantage, reward in zip(group.completions, group.advantages, rewards, strict=True)
    )
    messages = messages_of(Prompt(group.prompt, group.examples))
    return Group(group.id, group.source, messages, group.weight, completions, group.bounds)


def train_report(request: TrainRequest, report: Report, *, seconds: float) -> TrainReport:
    """What the trainer reports of a step, in the form in which the learner reports it."""
    groups = {group.id: report.groups.get(group.id, GroupReport()) for group in request.groups}
    tokens = dict.fromkeys(SOURCES, 0)
    for group in request.groups:
        tokens[group.source] += groups[group.id].tokens
    local = [each for group in request.groups if group.source == "local" for each in group.completions]
    lengths = [len(each.tokens) for each in local if each.tokens]  # a trainer may send texts alone
    weights = [group.weight for group in request.groups if group.source == "external"]
    of_round = [group for group in request.groups if group.source != "replay"]
    return TrainReport(
        step=request.step,
        groups=groups,
        learning_rate=report.learning_rate,
        loss=report.loss,
        grad_norm=report.grad_norm,
        entropy=report.entropy,
        mean_length=_ratio(sum(lengths), len(lengths)),
        truncated=_ratio(sum(map(is_cut, local)), len(local)),
        zero_advantage=_ratio(sum(not any(each.advantages) for each in of_round), len(of_round)),
        external_weight=_ratio(sum(weights), len(weights)),
        local_tokens=tokens["local"] + tokens["replay"],
        external_tokens=tokens["external"],
        skipped=None if any(tokens.values()) else "the trainer reported no tokens",
        seconds=seconds,
    )


def _ratio(total: float, count: int) -> float | None:
    return total / count if count else None
