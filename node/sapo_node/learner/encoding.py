"""Between text and tokens, for every fast tokenizer of transformers.

Rules:
- The learner and the client of the feed read a prompt as the same tokens: with the chat template of the model, with one
  that has no system role, and without a template.
- The same prompt has the same tokens on every day.
- Every error of a tokenizer is Unreadable, and every error of a chat template is TemplateFailed.
- This imports no library of the learner: the client of the feed is light.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sapo_node.groups.answer import THINK, THOUGHT
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.groups.prompt import chat as chat_of
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

THINKING = frozenset({THINK, THOUGHT})
"""Tokens around the thinking of a model. Some tokenizers call them special."""
MAX_PROMPT_CHARACTERS = 2**20
"""Characters of the text that a chat template makes of one prompt, at most."""

_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""The date that the template of Llama 3 has where it cannot ask for one. With today's date a batch that is replayed on
another day would train on other prompts."""
_REPLACED = "".join(f" | replace('%{code}', '{_DATE.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
# transformers passes no function to a template, so a macro hides its `strftime_now`. The line break belongs to the
# macro: the template begins as it would without.
_FIXED_DATE = f"{{% macro strftime_now(format) %}}{{{{ format{_REPLACED} }}}}{{% endmacro %}}\n"

_WORD = "The"
"""Read alone and after a prompt, it shows whether the tokens of a text depend on what stands before it."""

Chat = Sequence[dict[str, str]]
"""Messages, each with `role` and `content`. The first is the system text, and the second is one of the user."""
Decode = Callable[[Sequence[int]], str]
"""Gives the text of completion tokens."""


class Unreadable(LocalError):
    """The tokenizer cannot encode a text; the message says why."""


class TemplateFailed(LocalError):
    """The chat template cannot make a prompt; the message says why."""


def prompt_tokens(chat: Chat, tokenizer: Any, *, ends: Collection[int], thinking: bool = False) -> list[int]:
    """Return the token ids of a prompt. A template that has the choice begins with a section for `thinking`.

    `ends` are the ids that end a text. Raises TemplateFailed or Unreadable.
    """
    if tokenizer.chat_template:
        return encoded(tokenizer, _rendered(chat, tokenizer, thinking=thinking), add_special_tokens=False)
    ids = encoded(tokenizer, "".join(map(_line, chat)), add_special_tokens=True)
    # Some tokenizers add an end token to every text. The model is to continue this text, so remove it.
    return ids[:-1] if ids and ids[-1] in ends else ids


def begins_to_think(tokenizer: Any, *, thinking: bool) -> bool:
    """Return whether the chat template ends a prompt inside of thinking, as that of DeepSeek-R1-Distill does."""
    if not tokenizer.chat_template:
        return False
    try:
        prompt = _rendered(chat_of(Prompt("?")), tokenizer, thinking=thinking)
    except TemplateFailed:
        return False
    return prompt.rfind(THINK) > prompt.rfind(THOUGHT)


def answer_end_first(ends: Sequence[int], tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end a text, each once: first that with which the chat template ends an answer.

    Gemma 3 and Phi end a turn with another token than a text.
    """
    return tuple(dict.fromkeys([*_end_of_answer(tokenizer, ends), *ends]))


@dataclass(frozen=True, slots=True)
class Lead:
    """What is read before the text of a peer's completion, so that its tokens are those that a model writes after a
    prompt. Many tokenizers of SentencePiece read each text as if it began with a space, and after a line break a model
    writes none.
    """

    text: str = ""
    tokens: tuple[int, ...] = ()
    """Those of the text that are no part of the completion."""


def lead_of(tokenizer: Any) -> Lead:
    """Return what to read before a completion: nothing if its tokens are the same alone and after a prompt."""
    try:
        before = _before(tokenizer)
        last, begun, both = (
            encoded(tokenizer, text, add_special_tokens=False) for text in (before[-1:], before, before + _WORD)
        )
        lead = Lead(before[-1:], tuple(last))
        alone, led = (completion_tokens(tokenizer, _WORD, each)[0] for each in (Lead(), lead))
    except (TemplateFailed, Unreadable):
        return Lead()
    return lead if led != alone and both == [*begun, *led] else Lead()


def completion_tokens(tokenizer: Any, text: str, lead: Lead) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the token ids of a peer's completion, read as ordinary text. Of each token return its first character, and
    the one after its last. Raises Unreadable.
    """
    read = partial(tokenizer, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    with tokenizing():
        found = read(lead.text + text)
        if tuple(found["input_ids"][: len(lead.tokens)]) != lead.tokens:  # the text and the lead share a token
            lead = Lead()
            found = read(text)
    first, before = len(lead.tokens), len(lead.text)
    offsets = [(max(0, begin - before), max(0, end - before)) for begin, end in found["offset_mapping"][first:]]
    return list(found["input_ids"][first:]), offsets


def encoded(tokenizer: Any, text: str, **way: bool) -> list[int]:
    """Return the token ids of a text. Raises Unreadable."""
    with tokenizing():
        return list(tokenizer(text, **way)["input_ids"])


def decoded(tokenizer: Any, specials: Collection[int], tokens: Sequence[int]) -> str:
    """Return the text of completion tokens, without special tokens."""
    # The tokenizer would skip the tokens of thinking, too, where it calls them special.
    kept = [token for token in tokens if token not in specials]
    text: str = tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def within(tokens: Sequence[int], max_bytes: int, decode: Decode) -> tuple[Sequence[int], str]:
    """Return the first tokens of a completion whose text has at most `max_bytes` of UTF-8, and that text."""
    text = decode(tokens)
    while (excess := len(text.encode()) - max_bytes) > 0:
        tokens = tokens[: -max(1, excess // 32)]
        text = decode(tokens)
    return tokens, text


def specials_of(tokenizer: Any) -> frozenset[int]:
    """Return the ids of the special tokens without those of thinking.

    A tokenizer adds tokens that are not special, too: `<think>` of Qwen3 is text that the model must be able to write.
    """
    added = tokenizer.added_tokens_decoder.items()
    special = {token for token, entry in added if entry.special} | set(tokenizer.all_special_ids)
    return frozenset(special - {token for token, entry in added if entry.content in THINKING})


@contextmanager
def tokenizing() -> Iterator[None]:
    """Turn every error of the tokenizer into Unreadable."""
    try:
        yield
    except Exception as error:  # the tokenizers library raises bare Exception
        raise Unreadable(f"the tokenizer cannot read a text: {line_of(error)}") from error
    except BaseException as error:
        # The library is written in Rust. It may panic, for example if a regular expression takes too long. pyo3 turns
        # a panic into PanicException, a BaseException that cannot be imported. The tokenizer stays usable.
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"the tokenizer cannot read a text: {line_of(error)}") from error


def _rendered(chat: Chat, tokenizer: Any, *, thinking: bool) -> str:
    """Return a prompt as the text that the chat template makes of it."""
    try:
        template = tokenizer.get_chat_template()
        render = partial(
            tokenizer.apply_chat_template,
            chat_template=_FIXED_DATE + template if "strftime_now" in template else template,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        try:
            text: str = render(chat)
        except Exception:  # noqa: BLE001 - a template is a program, which may raise any error
            # Some templates have no system role.
            system, first, *others = chat
            text = render([{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *others])
    except Exception as error:
        raise TemplateFailed(f"the chat template fails: {line_of(error)}") from error
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise TemplateFailed(f"the chat template makes {len(text)} characters of one prompt")
    return text


def _before(tokenizer: Any) -> str:
    """Return a text that stands before an answer: a prompt, and the space that some chat templates write behind it."""
    if not tokenizer.chat_template:
        return _line({"role": "user", "content": "?"})
    prompt, worked = (
        _rendered(chat_of(Prompt("?", examples)), tokenizer, thinking=False) for examples in ((), (Example("?", "!"),))
    )
    return f"{prompt} " if worked.startswith(f"{prompt} !") else prompt


def _end_of_answer(tokenizer: Any, ends: Collection[int]) -> list[int]:
    """Return the first of the ends behind a worked example in a prompt, if the chat template writes one."""
    if not tokenizer.chat_template:
        return []
    try:
        with_turn, without = (
            prompt_tokens(chat_of(Prompt("?", examples)), tokenizer, ends=ends)
            for examples in ((Example("?", "!"),), ())
        )
    except (TemplateFailed, Unreadable):
        return []
    # The ends of the turns before the answer are in both prompts; the next one is that of the answer.
    added = [token for token in with_turn if token in ends]
    kept = [token for token in without if token in ends]
    return added[len(kept) :][:1]


def _line(message: dict[str, str]) -> str:
    """Return a message as a model without chat template reads it: a completion ends with a blank line."""
    end = "\n" if message["role"] == "user" else "\n\n"
    return f"{message['content'].strip()}{end}"
