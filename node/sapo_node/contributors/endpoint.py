"""Gets answers from a server with OpenAI's chat completions API over HTTP: a hosted model, vLLM, llama.cpp, Ollama.

One request asks for all completions of a prompt. If the server returns fewer, more requests ask for one completion
each. If a request fails, the completions that the others brought are kept until the same prompts are asked again: they
may have cost money. The client follows no redirect. Each answer has at most REQUEST_SECONDS and MAX_REPLY_BYTES.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpx
import trio

from sapo_node.contributors.address import KEY_VARIABLE, address_of, is_loopback, place_of, require_safe
from sapo_node.contributors.exchange import ReplyTooLong, exchange
from sapo_node.contributors.text import completion
from sapo_node.groups.messages import Sampled
from sapo_node.groups.prompt import Prompt, chat
from sapo_node.training.rollout import AnswerFailed
from sapo_protocol.printable import excerpt

CONNECT_SECONDS, REQUEST_SECONDS = 10.0, 300.0
MAX_REPLY_BYTES = 4_000_000
MAX_CONCURRENT = 8
"""Requests that run at one time."""
_COMPLETIONS = b"/chat/completions"
RETRY_SECONDS = (0.5, 2.0)
"""Seconds before each retry, if the server is busy or cannot be reached. After the last retry the request fails."""


class _Busy(AnswerFailed):
    """The server is busy or cannot be reached: the same request may succeed later."""


class _Refused(AnswerFailed):
    """The server refused this request."""


@asynccontextmanager
async def endpoint(
    url: str, *, model: str, key: str | None, temperature: float, max_bytes: int
) -> AsyncIterator["Endpoint"]:
    """A client for the endpoint below `url`, which ends in /v1 for most servers.

    Raises LocalError if `url` is not an HTTP address, or if a key or password cannot be sent or would go unencrypted.
    """
    address = address_of(url, "--endpoint")
    require_safe(key, address, "--endpoint")
    # Without compression, MAX_REPLY_BYTES limits the bytes that are kept.
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
    timeout = httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS)
    # A proxy from the environment may be another machine. What is addressed to this machine does not leave it.
    proxied = not is_loopback(address.host)
    async with httpx.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False, trust_env=proxied) as client:
        place = _completions_below(address)
        yield Endpoint(client, place, model=model, temperature=temperature, max_bytes=max_bytes)


def _completions_below(address: httpx.URL) -> httpx.URL:
    """Return where the server completes chats, with the query of `address`, which may be that place itself."""
    path, mark, query = address.raw_path.partition(b"?")
    return address.copy_with(raw_path=path.rstrip(b"/").removesuffix(_COMPLETIONS) + _COMPLETIONS + mark + query)


class Endpoint:
    """Answers prompts by asking a server."""

    def __init__(
        self, client: httpx.AsyncClient, url: httpx.URL, *, model: str, temperature: float, max_bytes: int
    ) -> None:
        self._client = client
        self._url = url
        self._model = model
        self._temperature = temperature
        self._max_bytes = max_bytes
        self._free = trio.CapacityLimiter(MAX_CONCURRENT)
        self._gives_several = True
        self._asked: Sequence[Prompt] = ()
        self._found: list[list[Sampled]] = []
        """The completions of each prompt of `asked` that came so far."""

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int
    ) -> list[tuple[Sampled, ...]]:
        """G completions for each prompt. Raises AnswerFailed if a request fails after its retries."""
        del seed  # with one seed, several requests would get the same answer
        if prompts != self._asked:
            self._asked, self._found = prompts, [[] for _ in prompts]
        asked = zip(prompts, self._found, strict=True)
        await _together([partial(self._complete, *each, completions, max_tokens) for each in asked])
        groups = [tuple(found) for found in self._found]
        self._asked, self._found = (), []
        return groups

    async def _complete(self, prompt: Prompt, found: list[Sampled], completions: int, max_tokens: int) -> None:
        """Add to the completions of a prompt until there are as many as asked for."""
        if self._gives_several and not found:
            with suppress(_Refused):  # the server may refuse only to return several
                found += await self._choices(prompt, completions, max_tokens)
        missing = completions - len(found)
        if missing:
            await _together([partial(self._add_one, prompt, found, max_tokens)] * missing)
            self._gives_several = False

    async def _add_one(self, prompt: Prompt, found: list[Sampled], max_tokens: int) -> None:
        found += await self._choices(prompt, 1, max_tokens)

    async def _choices(self, prompt: Prompt, count: int, max_tokens: int) -> list[Sampled]:
        """Up to `count` completions from one request. Repeats the request if the server is busy."""
        request = {
            "model": self._model,
            "messages": chat(prompt),
            "max_tokens": max_tokens,
            "temperature": self._temperature,
            **({"n": count} if count > 1 else {}),
        }
        for pause in RETRY_SECONDS:
            try:
                return self._completions(await self._post(request))[:count]
            except _Busy:
                await trio.sleep(pause)
        return self._completions(await self._post(request))[:count]

    async def _post(self, request: dict[str, Any]) -> bytes:
        try:
            async with self._free:
                response, data = await exchange(
                    self._client, "POST", self._url, request, seconds=REQUEST_SECONDS, most=MAX_REPLY_BYTES
                )
        except ReplyTooLong:
            raise AnswerFailed(f"the endpoint's answer is longer than {MAX_REPLY_BYTES} bytes") from None
        except trio.TooSlowError:
            raise _Busy(f"the endpoint did not answer within {REQUEST_SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = excerpt(str(error)) or type(error).__name__
            raise _Busy(f"the request to the endpoint {place_of(self._url)} failed: {reason}") from error
        _require_success(response, data)
        return data

    def _completions(self, data: bytes) -> list[Sampled]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerFailed(
                f"the endpoint's answer is not JSON, it begins {_start(data)!r}; check --endpoint, most end in /v1"
            ) from None
        match value:
            case {"choices": [_, *_] as choices}:
                return [self._completion(choice) for choice in choices]
        raise AnswerFailed(f"the endpoint's answer has no choices, it begins {_start(data)!r}")

    def _completion(self, choice: object) -> Sampled:
        match choice:
            case {"message": {"content": str(text)}, "finish_reason": "stop"}:
                return completion(text, "stop", self._max_bytes)
            case {"message": {"content": str(text)}}:
                return completion(text, "length", self._max_bytes)
            case {"message": {"content": None}}:
                return completion("", "length", self._max_bytes)
        raise AnswerFailed("a choice of the endpoint has no message with content")


async def _together(tasks: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all tasks to their end, and raise the first failure. A cancelled request may cost as much."""
    failures: list[AnswerFailed] = []

    async def run(task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except AnswerFailed as failure:
            failures.append(failure)

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(run, task)
    if failures:
        raise failures[0]


def _require_success(response: httpx.Response, data: bytes) -> None:
    """Raise AnswerFailed for a status other than 200. The message says what the operator can do."""
    status = response.status_code
    if status == 200:
        return
    if status in {408, 429} or status >= 500:
        raise _Busy(f"the endpoint is busy or broken ({status}: {_start(data)!r})")
    if status in {401, 403}:
        raise AnswerFailed(f"the endpoint refuses the key ({status}); set a valid key in {KEY_VARIABLE}")
    if response.next_request is not None:  # that of the redirect, with the whole address
        place = place_of(response.next_request.url)
        raise AnswerFailed(
            f"the endpoint redirects to {place}, and the node follows no redirect; give that address as --endpoint"
        )
    raise _Refused(f"the endpoint refuses the request ({status}: {_start(data)!r}); check --endpoint and --model")


def _start(data: bytes) -> str:
    return excerpt(data[:400].decode("utf-8", "replace"), 120)
