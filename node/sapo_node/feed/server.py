"""Serves the feed over HTTP with JSON, on loopback, to a trainer that knows the token.

    GET    /v1/work?wait=SECONDS   the work of the trainer
    POST   /v1/completions         the completions of one prompt
    POST   /v1/report              the report of a step
    POST   /v1/started             the step of the trainer's weights
    POST   /v1/refused             the trainer cannot go back
    POST   /v1/lease               the trainer is alive, as any other request says
    DELETE /v1/lease               the trainer has ended
    GET    /openapi.json           this, as OpenAPI

The token is in `feed.json` in the state folder, beside the address. Only the owner of the folder can read it. The token
stays the same when the node restarts. A trainer names itself in the header Sapo-Trainer; the feed serves one (`Lease`).
401 is a wrong token, 403 another trainer, 409 an answer that does not fit the work of now, 422 a body of another form.
Each comes with one sentence.

Bodies are parsed in a thread, one prompt's completions at a time, so that gossip does not wait for them.
"""

import hmac
import json
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from sapo_node.feed.access import FILE, LEASE_SECONDS, MAX_WAIT, TRAINER, TRAINER_HEADER, Access, read_access
from sapo_node.feed.messages import Completed, Done, GoBackRefused, Started, StepReport
from sapo_node.feed.openapi import description
from sapo_node.feed.policy import RemotePolicy, StaleAnswer, WrongAnswer
from sapo_node.groups.codec import MalformedError, from_json, to_json
from sapo_node.http.server import Answer, RefusedRequest, Request, is_loopback, serve
from sapo_node.storage.files import write_private
from sapo_protocol import LocalError
from sapo_protocol.files import NoSuchFile

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_CONNECTION_SECONDS = 120.0
_LEAST_BODY = 2**20
"""Least limit of the bytes of a body."""
_BYTES_PER_BYTE = 6
"""Most bytes of JSON for a byte of text: JSON escapes control characters."""
_BYTES_PER_TOKEN = 40
"""Most bytes of JSON for a token id and a log-probability."""
_NAME = re.compile(TRAINER)


class LeaseHeld(LocalError):
    """Another trainer has the lease."""


class Lease:
    """The trainer that the feed serves. A second trainer could send the node back to a step of its own weights.

    A trainer names itself by a text that no other trainer has. The first trainer takes the lease. Each of its requests
    renews the lease for LEASE_SECONDS. A killed trainer sends no request, so its lease ends.
    """

    def __init__(self, now: Callable[[], float] = trio.current_time) -> None:
        self._now = now
        self._trainer = ""
        self._asked = 0.0
        """Time of the trainer's last request."""

    def renew(self, trainer: str) -> None:
        """Give the lease to a trainer, or renew it. Raises LeaseHeld if another trainer has it."""
        ago = self._now() - self._asked
        if self._trainer not in ("", trainer) and ago < LEASE_SECONDS:
            raise LeaseHeld(
                f"another trainer has this feed, and asked {ago:.0f} s ago: stop it, or start a node of its own for "
                f"each trainer. A trainer that was killed frees the feed {LEASE_SECONDS:.0f} s after its last request"
            )
        self._trainer, self._asked = trainer, self._now()

    def end(self, trainer: str) -> None:
        """Let the next trainer in, if this one has the lease."""
        if self._trainer == trainer:
            self._trainer = ""


class FeedServer:
    """The HTTP side of one RemotePolicy."""

    def __init__(
        self, policy: RemotePolicy, place: tuple[str, int], folder: Path, *, completions: int, max_tokens: int
    ) -> None:
        """`completions` of one prompt, of `max_tokens` each, are the longest body. Raises LocalError for a place beyond
        loopback.
        """
        if not ip_address(place[0]).is_loopback:
            raise LocalError(f"feed is {place[0]}; give a loopback address, and reach it from elsewhere through ssh -L")
        self._policy = policy
        self._lease = Lease()
        self._place = place
        self.file = folder / FILE
        self._token = _old_token(self.file) or secrets.token_urlsafe(32)
        longest = _BYTES_PER_BYTE * policy.max_bytes + _BYTES_PER_TOKEN * max_tokens
        self._max_body = _LEAST_BODY + completions * longest
        self._posts: dict[str, tuple[type, Callable[[Any], None]]] = {
            "/v1/completions": (Completed, policy.completed),
            "/v1/report": (StepReport, policy.reported),
            "/v1/started": (Started, policy.started),
            "/v1/refused": (GoBackRefused, policy.refused),
        }

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises LocalError if it cannot listen on the address."""
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
        if request.path == "/openapi.json":
            _require_method(request, "GET")
            return await _json(description())
        if not hmac.compare_digest(request.bearer.encode(), self._token.encode()):
            raise RefusedRequest(401, f"send the token of {FILE} as Authorization: Bearer")
        request.admit()
        if request.path == "/v1/work":
            _require_method(request, "GET")
            wait = _wait(request)
            self._renew_lease(request)
            return await _json(await self._policy.work(wait))
        if request.path == "/v1/lease":
            _require_method(request, "POST", "DELETE")
            trainer = self._renew_lease(request)
            if request.method == "DELETE":
                self._lease.end(trainer)
        elif request.path in self._posts:
            _require_method(request, "POST")
            self._renew_lease(request)
            await self._take(request)
        else:
            raise RefusedRequest(404, "there is no such path; /openapi.json lists all")
        return await _json(Done())

    def _renew_lease(self, request: Request) -> str:
        """Return the name of the trainer that asks. Only the trainer with the lease is served."""
        trainer = request.headers.get(TRAINER_HEADER.lower(), "")
        if not _NAME.fullmatch(trainer):
            raise RefusedRequest(
                422, f"send {TRAINER_HEADER}: NAME, a name of your trainer alone, of 1 to 64 letters, digits, - and _"
            )
        try:
            self._lease.renew(trainer)
        except LeaseHeld as held:
            raise RefusedRequest(403, str(held)) from held
        return trainer

    async def _take(self, request: Request) -> None:
        kind, take = self._posts[request.path]
        try:
            take(await trio.to_thread.run_sync(_read, kind, await request.read(self._max_body)))
        except MalformedError as error:
            raise RefusedRequest(422, str(error)) from error
        except (StaleAnswer, WrongAnswer) as error:
            raise RefusedRequest(409, str(error)) from error


def _require_method(request: Request, *allowed: str) -> None:
    if "GET" in allowed:
        allowed = (*allowed, "HEAD")  # RFC 9110, section 9.1
    if request.method not in allowed:
        raise RefusedRequest(405, f"this path takes {', '.join(allowed)}", {"Allow": ", ".join(allowed)})


def _read(kind: type, data: bytes) -> Any:
    """Raises MalformedError."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedError("the body is not JSON") from error
    return from_json(kind, body)


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


async def _json(content: Any) -> Answer:
    data = await trio.to_thread.run_sync(lambda: json.dumps(to_json(content)).encode())
    return Answer(data, "application/json")
