"""What the journal shows of a group, as plain JSON; `Entry.facts` lists it."""

from collections.abc import Sequence
from typing import Any

from sapo_node.groups.messages import reason_of
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.habits import Span, merged
from sapo_node.training.round import TrainedGroup
from sapo_protocol import Completion

SHOWN_CHARACTERS = 1_000
"""Of each completion."""


def of_verified(group: VerifiedGroup) -> dict[str, Any]:
    """A group that may be trained on."""
    return _facts(group.dataset, group.prompt, group.completions, group.rewards)


def of_local(group: LocalGroup) -> dict[str, Any]:
    """A group of this node."""
    return _facts(group.dataset, group.prompt, group.completions, group.rewards, group.advantages)


def of_trained(trained: TrainedGroup) -> dict[str, Any]:
    """An external group of a batch, with what was masked."""
    weighted, group = trained.weighted, trained.weighted.group
    facts = _facts(group.dataset, group.prompt, group.completions, group.rewards, weighted.advantages)
    for number, spans in enumerate(weighted.silent):
        text = group.completions[number].text
        shown = [(begin, min(end, SHOWN_CHARACTERS)) for begin, end in spans if begin < SHOWN_CHARACTERS]
        facts["completions"][number]["silent"] = [text[begin:end] for begin, end in shown]
    for number, filter_name in trained.rejected.items():
        facts["completions"][number]["filter"] = reason_of(filter_name)
    for number, completion in enumerate(facts["completions"]):
        if struck := _masked_spans(trained, number, len(completion["text"])):
            completion["spans"] = struck
    return {
        **facts,
        "weight": round(weighted.weight, 3),
        "tokens": trained.report.tokens,
        "masked": trained.report.masked,
    }


def _masked_spans(trained: TrainedGroup, number: int, length: int) -> list[Span]:
    """Which of the first `length` characters of a completion were masked, in order; spans that touch are one."""
    if number in trained.untaught:
        return [(0, length)] if length else []
    silent = trained.weighted.silent[number] if trained.weighted.silent else ()
    return merged((begin, min(end, length)) for begin, end in silent if begin < min(end, length))


def _facts(
    dataset: str,
    prompt: str,
    completions: Sequence[Completion | Any],
    rewards: Sequence[bool],
    advantages: Sequence[float] = (),
) -> dict[str, Any]:
    shown: list[dict[str, Any]] = [
        {"text": each.text[:SHOWN_CHARACTERS], "reward": bool(reward)}
        for each, reward in zip(completions, rewards, strict=True)
    ]
    for each, advantage in zip(shown, advantages, strict=False):
        each["advantage"] = round(advantage, 3)
    return {"dataset": dataset, "question": prompt, "completions": shown}
