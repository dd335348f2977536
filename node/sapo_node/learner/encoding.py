"""Between text and tokens, for every fast tokenizer of transformers.

Rules:
- The learner and the client of the feed read a prompt as the same tokens, with a chat template or without.
- Each message of a prompt is in the text that the chat template makes of it, unchanged. Else the prompt is refused.
  A template with the comment QUESTION_ALONE is an exception: its model was trained on questions alone.
- The same prompt has the same tokens on every day.
- Every error of a tokenizer is Unreadable, and every error of a chat template is TemplateFailed.
- This imports no library of the learner: the client of the feed is light.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sapo_node.groups.prompt import Example, Prompt
from sapo_node.groups.prompt import chat as chat_of
from sapo_node.tasks.answer import THINK, THOUGHT
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

THINKING = frozenset({THINK, THOUGHT})
"""Tokens around the thinking of a model. Some tokenizers call them special."""
QUESTION_ALONE = "{# question alone #}"
"""Comment of a chat template that leaves out system text and earlier turns on purpose, as that of the seed policy."""
MAX_PROMPT_CHARACTERS = 2**20
"""Characters of the text that a chat template makes of one prompt, at most."""

_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""The date that the template of Llama 3 has if it cannot ask for one. With today's date a batch that is replayed on
another day would train on other prompts."""
_REPLACED = "".join(f" | replace('%{code}', '{_DATE.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
# transformers passes no function to a template, so a macro hides its `strftime_now`. The line break belongs to the
# macro: the template begins as it would without.
_FIXED_DATE = f"{{% macro strftime_now(format) %}}{{{{ format{_REPLACED} }}}}{{% endmacro %}}\n"

_WORD = "The"
"""If this word has other tokens after a prompt than alone, the tokens of a text depend on the text before it."""

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
        return encoded(
            tokenizer, _Template.of(tokenizer, chat, thinking=thinking).prompt(chat), add_special_tokens=False
        )
    ids = encoded(tokenizer, "".join(map(_line, chat)), add_special_tokens=True)
    # Some tokenizers add an end token to every text. The model is to continue this text, so remove it.
    return ids[:-1] if ids and ids[-1] in ends else ids


def begins_to_think(tokenizer: Any, *, thinking: bool) -> bool:
    """Return True if the chat template begins the thinking in a prompt, as that of DeepSeek-R1-Distill does."""
    if not tokenizer.chat_template:
        return False
    try:
        prompt = _Template.of(tokenizer, _ASKED, thinking=thinking).prompt(_ASKED)
    except TemplateFailed:
        return False
    return prompt.rfind(THINK) > prompt.rfind(THOUGHT)


def has_switch(tokenizer: Any) -> bool:
    """Return whether the chat template writes another prompt for a model that is to think. Raises TemplateFailed."""
    if not tokenizer.chat_template:
        return False
    silent, thinking = (_Template.of(tokenizer, _ASKED, thinking=each).prompt(_ASKED) for each in (False, True))
    return silent != thinking


def answer_end_first(ends: Sequence[int], tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end a completion, each once: first those with which the chat template ends a turn of the
    assistant, then `ends`, those of a text.

    Gemma 3 and Phi end a turn with another token than a text. That of the base models of Qwen2.5 is not in their
    settings.
    """
    return tuple(dict.fromkeys([*_ends_of_turn(tokenizer, ends), *ends]))


@dataclass(frozen=True, slots=True)
class Lead:
    """Text before a peer's completion, so that the completion gets the tokens that a model writes after a prompt. Many
    tokenizers of SentencePiece read each text as if it began with a space, and after a line break a model writes none.
    """

    text: str = ""
    tokens: tuple[int, ...] = ()
    """The tokens of the text."""


def lead_of(tokenizer: Any) -> Lead:
    """Return the text to read before a completion. It is empty if the tokens are the same alone and after a prompt."""
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
    """Return the token ids of a peer's completion, read as ordinary text. For each token return also the place of its
    first character, and of the one after its last. Raises Unreadable.
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
    # The tokenizer would skip the tokens of thinking, too, if it calls them special.
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


def specials_of(tokenizer: Any, ends: Collection[int]) -> frozenset[int]:
    """Return the ids of the special tokens without those of thinking.

    A tokenizer adds tokens that are not special, too: `<think>` of Qwen3 is text that the model must be able to write.
    One of the `ends` that was added is special, whatever the tokenizer calls it.
    """
    added = tokenizer.added_tokens_decoder.items()
    special = {token for token, entry in added if entry.special or token in ends} | set(tokenizer.all_special_ids)
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


def _as_it_is(chat: Chat) -> Chat:
    return chat


def _system_in_user(chat: Chat) -> Chat:
    """For a template that has no system role."""
    system, first, *others = chat
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *others]


def _in_one_turn(chat: Chat) -> Chat:
    """For a template that leaves out earlier turns: they stand before the prompt as in a text without template."""
    return [{"role": "user", "content": "".join(map(_line, chat)).strip()}]


_WAYS = (_as_it_is, _system_in_user, _in_one_turn)
"""Ways to give messages to a template. The first way that brings every message into the prompt is used."""
_NAMES = {"system": "the system text", "user": "the text of the user", "assistant": "the worked examples"}


def _mark(number: int) -> str:
    """Return the text of a message with signs that a template could escape, and letters that it could make small."""
    return f"Text {number}: \"<b>\" & 'c'\n{{d}} é"


_ASKED = chat_of(Prompt("?"))
_ANSWER = {"role": "assistant", "content": _mark(10)}
_MARKED = [{"role": role, "content": _mark(number)} for number, role in enumerate(("system", "user"))]
_AGAIN = {"role": "user", "content": _mark(11)}


@dataclass(frozen=True, slots=True)
class _Template:
    """The chat template of a tokenizer, and the form in which it takes messages."""

    tokenizer: Any
    thinking: bool
    way: Callable[[Chat], Chat] = _as_it_is
    in_parts: bool = False
    """True if the content of a message is a list of parts, as for models that also read images."""
    header: str = ""
    """Header of an answer's turn, if the template writes none behind a prompt."""

    @classmethod
    def of(cls, tokenizer: Any, chat: Chat, *, thinking: bool = False) -> "_Template":
        """Return the template in the first form that brings each message of such a chat into the prompt, unchanged.

        Raises TemplateFailed if there is none.
        """
        if QUESTION_ALONE in tokenizer.chat_template:
            return cls(tokenizer, thinking)
        marked = [{**message, "content": _mark(number)} for number, message in enumerate(chat)]
        found: TemplateFailed | None = None
        for way in _WAYS:
            for in_parts in (False, True):
                template = cls(tokenizer, thinking, way, in_parts)
                try:
                    text = template.write(marked)
                except TemplateFailed as error:
                    found = found or error
                    continue
                if missing := [message["role"] for message in marked if message["content"] not in text]:
                    found = found or TemplateFailed(
                        f"the chat template leaves out {_NAMES[missing[0]]}, or changes it; correct the template, or "
                        "remove it from a copy of the folder: prompts are then plain text"
                    )
                    continue
                return replace(template, header=template.header_behind(text, marked))
        assert found
        raise found

    def prompt(self, chat: Chat) -> str:
        """Return a prompt as text. Raises TemplateFailed."""
        text = self.write(chat) + self.header
        if len(text) > MAX_PROMPT_CHARACTERS:
            raise TemplateFailed(f"the chat template makes {len(text)} characters of one prompt")
        return text

    def header_behind(self, prompt: str, chat: Chat) -> str:
        """Return the text that the template writes between a prompt and an answer, if it always ends a prompt alike."""
        if self.way is _in_one_turn or prompt != self.write(chat, asks=False):
            return ""
        try:
            answered = self.write([*chat, _ANSWER], asks=False)
        except TemplateFailed:  # it takes no answer
            return ""
        begun, answer, _ = answered.partition(_ANSWER["content"])
        header = begun.removeprefix(prompt)
        return header if answer and header != begun and header.strip() else ""

    def write(self, chat: Chat, *, asks: bool = True) -> str:
        """Return the text of a chat, which `asks` for an answer or has it. Raises TemplateFailed."""
        messages: Sequence[dict[str, Any]] = self.way(chat)
        if self.in_parts:
            messages = [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages]
        try:
            template = self.tokenizer.get_chat_template()
            text: str = self.tokenizer.apply_chat_template(
                messages,
                chat_template=_FIXED_DATE + template if "strftime_now" in template else template,
                tokenize=False,
                add_generation_prompt=asks,
                enable_thinking=self.thinking,  # Qwen3
                thinking=self.thinking,  # Granite 3.2, DeepSeek V3.1
            )
        except Exception as error:  # a template is a program, which may raise any error
            raise TemplateFailed(f"the chat template fails: {line_of(error)}") from error
        return text


def _before(tokenizer: Any) -> str:
    """Return a text that stands before an answer: a prompt, and the space that some chat templates write behind it."""
    if not tokenizer.chat_template:
        return _line({"role": "user", "content": "?"})
    prompt, worked = (
        _Template.of(tokenizer, chat).prompt(chat)
        for chat in (chat_of(Prompt("?", examples)) for examples in ((), (Example("?", "!"),)))
    )
    return f"{prompt} " if worked.startswith(f"{prompt} !") else prompt


def _ends_of_turn(tokenizer: Any, ends: Collection[int]) -> Iterator[int]:
    """Yield the token with which the chat template ends the last turn of the assistant, and the one with which it ends
    a turn before another of the user, if it writes such tokens.
    """
    if not tokenizer.chat_template:
        return
    with suppress(TemplateFailed, Unreadable):
        template = _Template.of(tokenizer, _MARKED)
        if template.header or template.write(_MARKED) != template.write(_MARKED, asks=False):
            text = template.write([*_MARKED, _ANSWER], asks=False)
            yield from _added(tokenizer, text.rpartition(_ANSWER["content"])[2])[:1]
    with suppress(TemplateFailed, Unreadable):
        chat = [*_MARKED, _ANSWER, _AGAIN]
        template = _Template.of(tokenizer, chat)
        if template.way is _in_one_turn:
            return
        behind = template.write(chat).partition(_ANSWER["content"])[2].partition(_AGAIN["content"])[0]
        # If the template ends no turn, the first token behind the answer begins the turn of the user.
        yield from (
            token for token in _added(tokenizer, behind)[:1] if token in ends or token != _begin_of_turn(template)
        )


def _begin_of_turn(template: _Template) -> int | None:
    """Return the last added token before the text of a user who speaks first."""
    try:
        text = replace(template, way=_as_it_is).write([_AGAIN])
        return next(reversed(_added(template.tokenizer, text.partition(_AGAIN["content"])[0])), None)
    except (TemplateFailed, Unreadable):
        return None


def _added(tokenizer: Any, text: str) -> list[int]:
    """Return those tokens of a text that were added to the vocabulary, special or not, without those of spaces and of
    thinking.
    """
    known = {token: entry.content for token, entry in tokenizer.added_tokens_decoder.items()}
    ids = encoded(tokenizer, text, add_special_tokens=False)
    return [token for token in ids if known.get(token, "").strip() and known[token] not in THINKING]


def _line(message: dict[str, str]) -> str:
    """Return a message as a model without chat template reads it: a completion ends with a blank line."""
    end = "\n" if message["role"] == "user" else "\n\n"
    return f"{message['content'].strip()}{end}"
