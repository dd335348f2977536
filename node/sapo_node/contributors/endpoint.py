"""Gets answers from a server with OpenAI's chat completions API over HTTP: a hosted model, vLLM, llama.cpp, Ollama.

One request asks for all completions of a prompt. If the server returns fewer, more requests ask for one completion
each. The client follows no redirect. Each answer has at most REQUEST_SECONDS and MAX_REPLY_BYTES.

Requests may cost money. So:
- Until the server has answered, and after each failure, one request is sent alone before the others.
- If the server refuses the request, the `Change`s that its words name are tried, and at last all together. The form
  that works is kept, and logged.
- If the server never answered and refuses all forms, the key or the address, the node stops with LocalError.
- If a request fails, the completions of the others are kept until the same prompts are asked again. After ATTEMPTS
  failures the round has only these completions.
- A completion without text counts as one. After the completions of EMPTY_ROUNDS rounds without a text, the node stops.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import trio

from sapo_node.contributors.chat_format import Change, Choice, choices, request
from sapo_node.contributors.exchange import (
    KEY_VARIABLE,
    ReplyTooLong,
    TLSRefused,
    address_of,
    client_of,
    exchange,
    place_of,
    require_safe,
    sentence_of,
)
from sapo_node.contributors.text import completion, filled
from sapo_node.groups.messages import Sampled
from sapo_node.groups.prompt import Prompt
from sapo_node.training.rollout import AnswerFailed, NoText
from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 300.0
MAX_REPLY_BYTES = 4_000_000
MAX_CONCURRENT = 8
"""Requests that run at one time."""
ATTEMPTS = 5
"""Failures after which a round is shared with the completions that came, if any came."""
EMPTY_ROUNDS = 8
"""Rounds whose completions may be asked for without getting a text."""
_COMPLETIONS = b"/chat/completions"
RETRY_SECONDS = (0.5, 2.0)
"""Seconds before each retry, if the server is busy or cannot be reached. After the last retry the request fails."""
_LATE = "no round of completions came in time; lower --max-tokens or --local"
_REASONING_OFF = '{"chat_template_kwargs": {"enable_thinking": false}}', '{"reasoning_effort": "low"}'


class _Busy(AnswerFailed):
    """The server is busy or cannot be reached: the same request may succeed later."""


class _Refused(AnswerFailed):
    """The server refuses the request, and will refuse it again."""

    final = True
    """A node whose server never answered stops."""


class _FormRefused(_Refused):
    """The server refuses this request. Another prompt, or another form of the request, may succeed."""

    def __init__(self, text: str, words: str, *, final: bool) -> None:
        """`words` are those of the server."""
        super().__init__(text)
        self.words = words
        self.final = final


@asynccontextmanager
async def endpoint(
    url: str, *, model: str, key: str | None, temperature: float, max_bytes: int, extra: Mapping[str, Any] | None = None
) -> AsyncIterator["Endpoint"]:
    """Yield a client for the endpoint below `url`, which ends in /v1 for most servers. `extra` goes into each request.

    Raises LocalError if `url` is not an HTTP address, if a key or password cannot be sent or would go unencrypted, or
    if the model's name is no text.
    """
    if re.search("[\ud800-\udfff]", model):
        raise LocalError(
            f"--model {excerpt(model)!r} has bytes that are not UTF-8; give the name that the server lists"
        )
    address = address_of(url, "--endpoint")
    require_safe(key, address, "--endpoint")
    async with client_of(address, key, seconds=REQUEST_SECONDS) as client:
        place = _completions_below(address)
        yield Endpoint(client, place, model=model, temperature=temperature, max_bytes=max_bytes, extra=extra or {})


def _completions_below(address: httpx.URL) -> httpx.URL:
    """Return the address of chat completions below `address`, with its query. `address` may be this one already."""
    path, mark, query = address.raw_path.partition(b"?")
    return address.copy_with(raw_path=path.rstrip(b"/").removesuffix(_COMPLETIONS) + _COMPLETIONS + mark + query)


class Endpoint:
    """Answers prompts by asking a server."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: httpx.URL,
        *,
        model: str,
        temperature: float,
        max_bytes: int,
        extra: Mapping[str, Any],
    ) -> None:
        self._client = client
        self._url = url
        self._max_bytes = max_bytes
        self._request = partial(request, model=model, temperature=temperature, extra=extra)
        self._free = trio.CapacityLimiter(MAX_CONCURRENT)
        self._changes: frozenset[Change] = frozenset()
        """The changes of the request that this server needs."""
        self._worked = False
        """True after the first answer of the server."""
        self._works = False
        """True after an answer, until a request fails."""
        self._asked: Sequence[Prompt] = ()
        self._found: list[list[Choice]] = []
        """The completions of each prompt of `asked` that came so far."""
        self._failures = 0
        """Times that asking for the prompts of `asked` failed."""
        self._without_text = 0
        """Completions that were asked for since the last round with a text. The server may have generated them all."""
        self._trouble = _LATE
        """The reason why there was no text since then."""
        self._told = Counter[str]()

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int
    ) -> list[tuple[Sampled, ...]]:
        """Return G completions for each prompt.

        Raises AnswerFailed if a request fails after its retries, NoText if no completion has a text, and LocalError if
        the server will never answer, or has given no text for EMPTY_ROUNDS rounds.
        """
        del seed  # with one seed, several requests would get the same answer
        if prompts != self._asked:
            self._asked, self._found, self._failures = prompts, [[] for _ in prompts], 0
        if self._without_text >= EMPTY_ROUNDS * len(prompts) * completions:
            raise LocalError(
                f"{self._trouble}; the endpoint was asked for {self._without_text} completions since the last one with "
                f"a text, and is asked for no more"
            )
        try:
            await self._ask(completions, max_tokens)
        except AnswerFailed as failure:
            self._works = False
            self._failures += 1
            self._trouble = str(failure)
            if isinstance(failure, _Refused) and failure.final and not self._worked:
                raise LocalError(str(failure)) from failure
            if self._failures < ATTEMPTS or not any(self._found):
                raise
            logger.warning("%s; the round is shared without the completions that are missing", failure)
        found, self._asked, self._found = self._found, (), []
        self._require_text([choice for each in found for choice in each], max_tokens)
        return [filled([self._sampled(choice) for choice in each], completions) for each in found]

    async def _ask(self, completions: int, max_tokens: int) -> None:
        """Ask for the completions that are missing. Raises AnswerFailed."""
        if not self._works:
            await self._begin(completions, max_tokens)
        pairs = list(zip(self._asked, self._found, strict=True))
        if Change.ONE not in self._changes:
            await self._together(
                [
                    partial(self._add, prompt, found, completions - len(found), max_tokens)
                    for prompt, found in pairs
                    if len(found) < completions
                ]
            )
        await self._together(
            [
                partial(self._add, prompt, found, 1, max_tokens)
                for prompt, found in pairs
                if found or Change.ONE in self._changes
                for _ in range(completions - len(found))
            ]
        )

    async def _begin(self, completions: int, max_tokens: int) -> None:
        """Send one request alone, in another form if the server refuses it."""
        unfinished = (pair for pair in zip(self._asked, self._found, strict=True) if len(pair[1]) < completions)
        for prompt, found in unfinished:
            add = partial(self._add, prompt, found, completions - len(found), max_tokens)
            try:
                await add()
            except _FormRefused as refusal:
                await self._in_other_forms(add, refusal)
            break
        self._works = self._worked = True

    async def _in_other_forms(self, add: Callable[[], Awaitable[None]], first: _FormRefused) -> None:
        """Make the changes that a refusal names, or all if it names none, until the server answers."""
        before, refusal = self._changes, first
        try:
            while left := frozenset(Change) - self._changes:
                self._changes |= {change for change in left if change.asked_for(refusal.words)} or left
                try:
                    await add()
                except _FormRefused as other:
                    refusal = other
                else:
                    made = ", ".join(change.value[0] for change in Change if change in self._changes - before)
                    logger.warning("the endpoint refused a request (%s); it answers with %s", first.words, made)
                    return
        except AnswerFailed:
            self._changes = before
            raise
        self._changes = before
        raise first

    async def _add(self, prompt: Prompt, found: list[Choice], count: int, max_tokens: int) -> None:
        """Add the completions of one request to those of a prompt. Repeats the request if the server is busy."""
        if Change.ONE in self._changes:
            count = 1
        body = self._request(prompt, completions=count, max_tokens=max_tokens, changes=self._changes)
        for pause in RETRY_SECONDS:
            try:
                given = await self._post(body, count)
                break
            except _Busy:
                await trio.sleep(pause)
        else:
            given = await self._post(body, count)
        found += given[:count]
        if len(given) < count:
            self._changes |= {Change.ONE}

    async def _post(self, body: dict[str, Any], count: int) -> list[Choice]:
        """Send one request and return the completions in the reply. Raises AnswerFailed."""
        self._without_text += count
        try:
            response, data = await exchange(
                self._client, "POST", self._url, body, seconds=REQUEST_SECONDS, most=MAX_REPLY_BYTES
            )
            if response.status_code == 200:
                return _read(data)
        except ReplyTooLong:
            raise AnswerFailed(f"the endpoint's answer is longer than {MAX_REPLY_BYTES} bytes") from None
        except (trio.TooSlowError, httpx.ReadTimeout):
            raise AnswerFailed(
                f"the endpoint did not answer within {REQUEST_SECONDS:g} s; lower --max-tokens or --local"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._without_text -= count
            reason = excerpt(str(error)) or type(error).__name__
            failed = _Refused if isinstance(error, TLSRefused) else _Busy
            raise failed(f"the request to the endpoint {place_of(self._url)} failed: {reason}") from error
        self._without_text -= count
        raise _refusal(response, data)

    async def _together(self, tasks: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run tasks, MAX_CONCURRENT at a time. After a failure none begins, and those that run go on to their end: a
        cancelled request may cost as much.

        Raises the first failure. If the server refused prompts and completed others, the refused ones have no
        completions.
        """
        failures: list[AnswerFailed] = []

        async def run(task: Callable[[], Awaitable[None]]) -> None:
            async with self._free:
                if all(isinstance(each, _FormRefused) for each in failures):
                    try:
                        await task()
                    except AnswerFailed as failure:
                        failures.append(failure)

        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(run, task)
        failures.sort(key=lambda each: isinstance(each, _FormRefused))
        if failures and (not isinstance(failures[0], _FormRefused) or not any(self._found)):
            raise failures[0]
        if failures:
            logger.warning("%s; the completions of this prompt are empty", failures[0])

    def _sampled(self, choice: Choice) -> Sampled:
        return completion(choice.text, "stop" if choice.ended else "length", self._max_bytes)

    def _require_text(self, given: Sequence[Choice], max_tokens: int) -> None:
        """Raise NoText if no completion has a text. Log it if half of them have none, or were cut at the limit."""
        empty = [choice for choice in given if not choice.text.strip()]
        cut = [choice for choice in given if choice.text.strip() and choice.finish == "length"]
        if len(empty) < len(given):
            self._without_text, self._trouble = 0, _LATE
        elif given:
            self._trouble = f"all {len(given)} completions of the endpoint are empty: {_cure(empty, max_tokens)}"
            raise NoText(self._trouble)
        if any(choice.moved for choice in given):
            self._tell(
                "moved", "the endpoint gives completions as reasoning without a text; the node takes them as texts"
            )
        if 2 * len(empty) >= len(given):
            self._tell("empty", f"{len(empty)} of {len(given)} completions are empty: {_cure(empty, max_tokens)}")
        elif 2 * len(cut) >= len(given):
            self._tell(
                "cut", f"{len(cut)} of {len(given)} completions were cut at --max-tokens {max_tokens}; give more"
            )

    def _tell(self, kind: str, text: str) -> None:
        """Log the 1st, 2nd, 4th, 8th, ... warning of a kind."""
        self._told[kind] += 1
        if self._told[kind].bit_count() == 1:
            logger.warning("%s", text)


def _read(data: bytes) -> list[Choice]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise _Refused(
            f"the endpoint's answer is not JSON, it begins {sentence_of(data)!r}; check --endpoint, most end in /v1"
        ) from None
    if given := choices(value):
        return given
    raise AnswerFailed(f"the endpoint's answer has no completions: {sentence_of(data)!r}")


def _refusal(response: httpx.Response, data: bytes) -> AnswerFailed:
    """Return the failure for a status other than 200. The message says what the operator can do."""
    status, words = response.status_code, sentence_of(data)
    said = f"({status}: {words!r})"
    if status in {401, 403}:
        return _Refused(f"the endpoint refuses the key {said}; set a valid key in {KEY_VARIABLE}")
    if response.next_request is not None:  # that of the redirect, with the whole address
        place = place_of(response.next_request.url)
        return _Refused(
            f"the endpoint redirects to {place}, and the node follows no redirect; give that address as --endpoint"
        )
    refused = f"the endpoint refuses the request {said}; check --endpoint and --model"
    if status in {400, 422}:
        return _FormRefused(refused, words, final=True)
    if status == 500 and Change.NO_SYSTEM.asked_for(words):  # so llama.cpp reports an error of the chat template
        return _FormRefused(refused, words, final=False)
    if status in {408, 425, 429} or status >= 500:
        return _Busy(f"the endpoint is busy or broken {said}")
    return _Refused(refused)


def _cure(empty: Sequence[Choice], max_tokens: int) -> str:
    """Return the likely cause of the empty completions, and what to do."""
    [(finish, count)] = Counter(choice.finish for choice in empty).most_common(1)
    if finish == "length" or any(choice.thought for choice in empty):
        kwargs, effort = _REASONING_OFF
        return (
            f"the model spends its --max-tokens {max_tokens} on reasoning; give more, or turn reasoning off with "
            f"--extra-body '{kwargs}' or '{effort}'"
        )
    return f"{count} have the finish_reason {finish}; check --model, and what the server logs"
