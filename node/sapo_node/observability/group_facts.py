"""What people and scripts see of a group, as plain JSON."""

from dataclasses import fields
from typing import Any

from sapo_node.groups.messages import reason_of
from sapo_node.groups.record import Entry, Outcome

SHOWN_CHARACTERS = 1_000
"""Of each completion."""
_OF_GROUP = ("dataset", "prompt", "completions", "rewards", "outcome")


def as_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry of the book as JSON, with what is known of its texts under `facts`."""
    plain = {each.name: getattr(entry, each.name) for each in fields(entry) if each.name not in _OF_GROUP}
    return {**plain, "facts": facts_of(entry)}


def facts_of(entry: Entry) -> dict[str, Any]:
    """Return dataset, prompt and completions, and after its step weight, tokens (trained on) and masked (tokens of its
    correct completions). Empty for a group that was never scored.

    A completion has its text and its reward, after the step its advantage, and what was not trained on of it: `silent`
    (the masked phrases), `filter` (which rejected it) and `spans` (the masked characters of its text).
    """
    if not entry.completions:
        return {}
    shown: list[dict[str, Any]] = [
        {"text": each.text[:SHOWN_CHARACTERS], "reward": reward}
        for each, reward in zip(entry.completions, entry.rewards, strict=True)
    ]
    facts: dict[str, Any] = {"dataset": entry.dataset, "prompt": entry.prompt, "completions": shown}
    outcome = entry.outcome
    if outcome is None:
        return facts
    for each, advantage in zip(shown, outcome.advantages, strict=False):
        each["advantage"] = round(advantage, 3)
    for number, (each, spans) in enumerate(zip(shown, entry.masked_spans(), strict=True)):
        if phrases := _phrases(each["text"], outcome, number):
            each["silent"] = phrases
        if number in outcome.rejected:
            each["filter"] = reason_of(outcome.rejected[number])
        within = [[begin, min(end, len(each["text"]))] for begin, end in spans if begin < len(each["text"])]
        if within:
            each["spans"] = within
    if entry.peer:
        facts |= {"weight": round(outcome.weight, 3), "tokens": outcome.tokens, "masked": outcome.masked}
    return facts


def _phrases(text: str, outcome: Outcome, number: int) -> list[str]:
    spans = outcome.masked_spans[number] if outcome.masked_spans else ()
    return [text[begin:end] for begin, end in spans if begin < len(text)]
