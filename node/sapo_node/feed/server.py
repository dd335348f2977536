"""Serves the feed over HTTP with JSON, on loopback, to a trainer that knows the token.

    GET  /v1/work?wait=SECONDS   what the trainer is to do now
    POST /v1/completions         the completions of the prompts
    POST /v1/report              what a step did
    POST /v1/started             the step of the trainer's weights
    POST /v1/refused             the trainer cannot go back
    GET  /openapi.json           this, as OpenAPI

The token is in `feed.json` in the state folder, beside the address. Only the owner of the folder can read it. The token
stays the same when the node restarts. 401 is a wrong token, 409 an answer to work that the node no longer has, 422 a
body of another form. Each comes with one sentence.
"""

import hmac
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from sapo_node.feed.access import FILE, MAX_WAIT, Access, read_access
from sapo_node.feed.messages import Completed, Done, Refused, Report, Started
from sapo_node.feed.openapi import description
from sapo_node.feed.policy import RemotePolicy, StaleAnswer, WrongAnswer
from sapo_node.groups.codec import MalformedError, from_json, to_json
from sapo_node.observability.dashboard.http import Answer, RefusedRequest, Request, is_loopback, serve
from sapo_node.storage.private import write_private
from sapo_protocol import LocalError
from sapo_protocol.files import NoSuchFile

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_CONNECTION_SECONDS = 120.0
_BYTES_PER_CHARACTER = 64
"""Of the JSON of a completion for each byte of its text, at most: with escapes, token ids and log-probabilities."""
_LEAST_BODY = 65_536


class FeedServer:
    """The HTTP side of one RemotePolicy."""

    def __init__(self, policy: RemotePolicy, place: tuple[str, int], folder: Path, *, max_completions: int) -> None:
        """`max_completions` is the most completions of one round. Raises LocalError for a place beyond loopback."""
        if not ip_address(place[0]).is_loopback:
            raise LocalError(f"feed is {place[0]}; give a loopback address, and reach it from elsewhere through ssh -L")
        self._policy = policy
        self._place = place
        self.file = folder / FILE
        self._token = _old_token(self.file) or secrets.token_urlsafe(32)
        self._max_body = _LEAST_BODY + _BYTES_PER_CHARACTER * max_completions * policy.max_bytes
        self._posts: dict[str, tuple[type, Callable[[Any], None]]] = {
            "/v1/completions": (Completed, policy.completed),
            "/v1/report": (Report, policy.reported),
            "/v1/started": (Started, policy.started),
            "/v1/refused": (Refused, policy.refused),
        }

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises LocalError where the address cannot be had."""
        host, port = self._place
        try:
            [listener] = await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            raise LocalError(
                f"the feed cannot listen on {host}:{port} ({error.strerror}); give --feed another HOST:PORT"
            ) from error
        async with listener:
            bound = listener.socket.getsockname()[1]
            access = Access(f"http://{f'[{host}]' if ':' in host else host}:{bound}", self._token)
            write_private(self.file, json.dumps(to_json(access)).encode(), "file of the feed")
            task_status.started()
            await serve(listener, self._answer, seconds=_CONNECTION_SECONDS)

    async def _answer(self, request: Request) -> Answer:
        if not is_loopback(request.host):
            raise RefusedRequest(421, "ask for this service by a loopback address")
        if (request.method, request.path) == ("GET", "/openapi.json"):
            return _json(description())
        if not hmac.compare_digest(request.bearer.encode(), self._token.encode()):
            raise RefusedRequest(401, f"send the token of {FILE} as Authorization: Bearer")
        if (request.method, request.path) == ("GET", "/v1/work"):
            return _json(await self._policy.work(_wait(request)))
        if request.path not in self._posts:
            raise RefusedRequest(404, "there is no such path; /openapi.json lists all")
        if request.method != "POST":
            raise RefusedRequest(405, "this path takes POST")
        await self._take(request)
        return _json(Done())

    async def _take(self, request: Request) -> None:
        kind, take = self._posts[request.path]
        try:
            take(from_json(kind, await _body(request, self._max_body)))
        except (MalformedError, WrongAnswer) as error:
            raise RefusedRequest(422, str(error)) from error
        except StaleAnswer as error:
            raise RefusedRequest(409, str(error)) from error


async def _body(request: Request, limit: int) -> Any:
    try:
        return json.loads(await request.read(limit))
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(422, "the body is not JSON") from error


def _wait(request: Request) -> float:
    try:
        seconds = float(request.query.get("wait", "0"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT:
        raise RefusedRequest(422, f"wait is a number of seconds from 0 to {MAX_WAIT:g}")
    return seconds


def _old_token(file: Path) -> str | None:
    with suppress(NoSuchFile):
        return read_access(file).token
    return None


def _json(content: Any) -> Answer:
    return Answer(json.dumps(to_json(content)).encode(), "application/json")
