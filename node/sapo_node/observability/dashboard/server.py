"""Serves the page, read-only. The default address is loopback. On any other address a client must send the token.

The server refuses what a page of another site in the same browser could try: other names for this host (DNS rebinding),
frames, foreign scripts, and requests for facts. It sends the texts of peers as JSON, and the page shows them as text.

The token stays in a file that only its owner can read, so that Prometheus and bookmarks keep working after a restart. A
backup does not hold the file, so a restored node has another token. To withdraw a token, remove the file and start the
node again.
"""

import hmac
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import trio

from sapo_node.groups.record import State
from sapo_node.http.server import Answer, Request, is_loopback, refusal, serve
from sapo_node.net.addresses import host_and_port
from sapo_node.observability import explain
from sapo_node.observability.dashboard.facts import SHOWN_GROUPS, Facts
from sapo_node.observability.dashboard.prometheus import exposition
from sapo_node.observability.overview import overview
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.files import write_private
from sapo_protocol import LocalError, Manifest
from sapo_protocol.files import NoSuchFile, read_bounded

if TYPE_CHECKING:
    from trio_typing import TaskStatus

OFF = "off"
_BACKLOG = 64
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The server serves the files of the folder `page` with these endings."""
_INDEX = "/index.html"
_OTHER_SITES = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site that a browser sends for a page of another site, or of another port of this machine."""
_TOKEN_BYTES = 16
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{22}")
"""_TOKEN_BYTES random bytes in URL-safe base64."""
_MAX_TOKEN_FILE = 64


def parse_place(text: str, name: str = "dashboard") -> tuple[str, int] | None:
    """The IP address and the port of HOST:PORT, or None for `off`. Without HOST it is loopback.

    Raises LocalError for anything else; `name` is that of the setting.
    """
    if text == OFF:
        return None
    try:
        host, port = host_and_port(text, "127.0.0.1")
        ipaddress.ip_address(host)
    except ValueError as error:
        raise LocalError(
            f"{name} is {text!r}; give an IP address and a port, as 127.0.0.1:8080, or a port of loopback, as 8080, or "
            f"`{OFF}`"
        ) from error
    return host, port


class Dashboard:
    """One node's page."""

    def __init__(
        self, facts: Facts, database: Database, place: tuple[str, int], manifest: Manifest, token_file: Path
    ) -> None:
        """Bind the address. Beyond loopback read or write `token_file`. Raises LocalError if either fails."""
        self._facts = facts
        self._manifest = manifest
        self._database = database
        self._host = place[0]
        is_local = ipaddress.ip_address(self._host).is_loopback
        self._token = None if is_local else kept_token(token_file)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(place)
        except OSError as error:
            self._socket.close()
            raise LocalError(
                f"the dashboard cannot listen on {self._host}:{place[1]} ({error.strerror}); give --dashboard another "
                f"HOST:PORT, or {OFF}"
            ) from error
        self._port: int = self._socket.getsockname()[1]
        # Browsers send a cookie to every port of a host: two pages on one host must not share one.
        self._cookie = f"sapo-token-{self._port}"
        self._files = dict(_files(files(__package__).joinpath("page"), "/"))

    @property
    def address(self) -> str:
        """The URL for a browser, with the token. For a page that listens on all addresses it is that of loopback."""
        return self.address_without_token + (f"?token={self._token}" if self._token else "")

    @property
    def address_without_token(self) -> str:
        """The same URL for files and logs, which must not hold the token."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 - compares, binds nothing
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/"

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        self._socket.listen(_BACKLOG)
        async with trio.SocketListener(trio.socket.from_stdlib_socket(self._socket)) as listener:
            task_status.started()
            await serve(listener, self._answer)

    async def _answer(self, request: Request) -> Answer:
        answer = self._refusal(request) or self._greeting(request) or self._content(request)
        return replace(answer, headers={**_HEADERS, **answer.headers})

    def _refusal(self, request: Request) -> Answer | None:
        """The answer to a request with a wrong method, asking site, host name or token; None if all are right."""
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "this page is read-only", {"Allow": "GET, HEAD"})
        if request.path != "/" and request.headers.get("sec-fetch-site") in _OTHER_SITES:
            return refusal(403, "another site asks for this; open the page of the node by its own address")
        if self._token is None and not is_loopback(request.host):
            return refusal(421, "open this page by its IP address")
        if self._token is not None:
            if not self._knows_token(request):
                return refusal(401, "open the address that the node printed, with its token")
            request.admit()
        return None

    def _greeting(self, request: Request) -> Answer | None:
        """The answer to the URL that the node printed: it moves the token from the address line into a cookie."""
        if self._token is None or request.path != "/" or "token" not in request.query:
            return None
        # Lax: with a strict cookie the redirect would come without it where the address was clicked on another site.
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=lax"
        return Answer(b"", status=303, headers={"Location": "/", "Set-Cookie": cookie})

    def _knows_token(self, request: Request) -> bool:
        cookies = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
        of_cookies = (value for name, _, value in cookies if name == self._cookie)
        given = (request.query.get("token", ""), request.bearer, *of_cookies)
        return any(hmac.compare_digest(each.encode(), str(self._token).encode()) for each in given)

    def _content(self, request: Request) -> Answer:
        """The answer for a path."""
        try:
            match request.path.split("/")[1:]:
                case ["api", *asked] if (facts := self._asked(asked, request.query)) is not None:
                    return _json(facts)
                case ["metrics"]:
                    return Answer(exposition(overview(self._database)), "text/plain; version=0.0.4; charset=utf-8")
        except LocalError as error:
            return _json({"text": str(error)}, 503 if isinstance(error, StateError) else 404)
        path = _INDEX if request.path == "/" else request.path
        return self._files.get(path) or refusal(404, "there is no such page")

    def _asked(self, names: Sequence[str], query: Mapping[str, str]) -> Mapping[str, Any] | None:
        """The facts for a path below `api`; None if there is no such path."""
        match names:
            case ["state"]:
                return self._facts.state()
            case ["groups"] if (state := query.get("state", "")) in ("", *State):
                return self._facts.groups(State(state) if state else None, _whole(query, "last", SHOWN_GROUPS))
            case ["curve"]:
                return self._facts.curve(_whole(query, "first"), _whole(query, "last"))
            case ["peers", peer]:
                return explain.peer(self._database, peer, self._manifest).as_dict()
        return None


def kept_token(path: Path) -> str:
    """The token in the file. If the file is missing or damaged, it is written anew. Raises LocalError if that fails."""
    with suppress(NoSuchFile):
        stored = read_bounded(path, _MAX_TOKEN_FILE, "token of the page")
        if _TOKEN.fullmatch(stored):
            return stored.decode("ascii")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    write_private(path, token.encode("ascii"), "token of the page")
    return token


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Answer]]:
    """The files below a folder, by their path in a URL."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{path}{each.name}/")
        elif kind := _KINDS.get(PurePath(each.name).suffix):
            yield path + each.name, Answer(each.read_bytes(), kind)


def _whole(query: Mapping[str, str], name: str, default: int = 0) -> int:
    """A number of a query. Raises LocalError if the text is not a number."""
    text = query.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise LocalError(f"{name} is {text!r}; give a whole number of at most 15 digits")
    return int(text)


def _json(facts: Mapping[str, Any], status: int = 200) -> Answer:
    return Answer(json.dumps(facts).encode(), "application/json", status)
