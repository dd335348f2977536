"""Writes a request for chat completions, and reads its reply.

Servers take different forms of the request, and put the text in different places of the reply. `request` writes the
form that most servers take, with some `Change`s. `choices` reads all forms of the reply.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sapo_node.groups.prompt import Prompt, chat
from sapo_protocol import LocalError
from sapo_protocol.files import refuse_constant
from sapo_protocol.printable import excerpt

_OPTIONS = {
    "messages": "the node writes it for each prompt",
    "stream": "the node reads no streams",
    "n": "the swarm decides it",
    "model": "give --model",
    "temperature": "give --temperature",
    "max_tokens": "give --max-tokens",
    "max_completion_tokens": "give --max-tokens",
}
"""Keys of a request that --extra-body may not have, and what to do instead."""
_ENDED = {"stop", "eos", "eos_token", "stop_sequence", "end_turn"}
"""The words of servers for the end of a completion that the model ended itself."""


class Change(Enum):
    """A change of the request that a server may need: its text for people, and the words of a refusal that names it."""

    LIMIT = "max_completion_tokens in place of max_tokens", r"max_completion_tokens|max_tokens"
    NO_SYSTEM = "the system text in the first message of the user", r"system|\broles?\b|alternat"
    NO_TEMPERATURE = "no temperature", r"temperature"
    ONE = "one completion a request", r"\bn\b|choice|multiple"

    def asked_for(self, refusal: str) -> bool:
        """Return whether the words of a refusal name what this changes."""
        return re.search(self.value[1], refusal, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class Choice:
    """One completion of a reply."""

    text: str
    finish: str
    """The finish_reason as the server wrote it."""
    thought: bool = False
    """True if the server gave reasoning beside the text."""
    moved: bool = False
    """True if the server gave the text as reasoning."""

    @property
    def ended(self) -> bool:
        """True if the model ended the completion itself."""
        return self.finish in _ENDED


def request(
    prompt: Prompt,
    *,
    model: str,
    completions: int,
    max_tokens: int,
    temperature: float,
    extra: Mapping[str, Any],
    changes: Collection[Change],
) -> dict[str, Any]:
    """Return the body of a request for this many completions of a prompt."""
    messages = chat(prompt)
    if Change.NO_SYSTEM in changes:
        system, first, *others = messages
        messages = [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others]
    body = {
        "model": model,
        "messages": messages,
        "max_completion_tokens" if Change.LIMIT in changes else "max_tokens": max_tokens,
        "temperature": temperature,
        "n": completions,
        **extra,
    }
    if Change.NO_TEMPERATURE in changes:
        del body["temperature"]
    if completions == 1:
        del body["n"]
    return body


def choices(reply: object) -> list[Choice] | None:
    """Return the completions of a reply; None if one of them cannot be read, or if there are none."""
    match reply:
        case {"choices": [_, *_] as given}:
            read = [_choice(each) for each in given]
            return [each for each in read if each] if all(read) else None
    return None


def _choice(choice: object) -> Choice | None:
    """Return a completion. If the model ended it and only its reasoning has a text, that text is the completion:
    a server that looks for reasoning in the text of a model without reasoning finds all of it.
    """
    match choice:
        case {"message": {**message}}:
            pass
        case _:
            return None
    text = _joined(message.get("content"))
    if text is None:
        return None
    reasoning = next((each for name in ("reasoning_content", "reasoning") if (each := _joined(message.get(name)))), "")
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    read = Choice(text, excerpt(str(reason), 40), bool(reasoning.strip()))
    if read.thought and read.ended and not text.strip():
        return Choice(reasoning, read.finish, moved=True)
    return read


def _joined(content: object) -> str | None:
    """Return a text, which may be absent or a list of parts. None for anything else."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            parts = [each for each in content if isinstance(each, dict) and each.get("type") in ("text", "output_text")]
            return "".join(text for each in parts if isinstance(text := each.get("text"), str))
    return None


def extra_body(text: str) -> dict[str, Any]:
    """Return the JSON of --extra-body. Raises LocalError unless it is an object without keys that the node sets."""
    value: Any = None
    reason = "it is other JSON"
    try:
        value = json.loads(text, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # refuses half of a surrogate pair
    except (ValueError, RecursionError) as error:
        value, reason = None, excerpt(str(error), 80)
    if not isinstance(value, dict):
        raise LocalError(
            f"--extra-body {excerpt(text, 60)!r} is no JSON object ({reason}); give one like "
            '\'{"reasoning_effort": "low"}\''
        )
    for name in value:
        if name in _OPTIONS:
            raise LocalError(f"--extra-body may not have {name!r}: {_OPTIONS[name]}")
    return value
