"""Serves the page: read-only, on loopback unless told otherwise, and then only to who knows the token.

Everything that a stranger's page in the same browser could do is refused: other names for this host (DNS rebinding),
frames, scripts that are not ours. What peers wrote is sent as JSON, and the page puts it in place as text.
"""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from sapo_node import explain
from sapo_node.dashboard.facts import Facts
from sapo_node.dashboard.prometheus import exposition
from sapo_node.database import Database
from sapo_node.overview import overview
from sapo_protocol import LocalError, Manifest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

OFF = "off"
_COOKIE = "sapo-token"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGE = {
    "": ("index.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}

Next = Callable[[Request], Awaitable[Response]]


def parse_place(text: str) -> tuple[str, int] | None:
    """HOST:PORT, or None for `off`. Raises LocalError for anything else."""
    if text == OFF:
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
        number = int(port)
    except ValueError:
        number = -1
    if not colon or not 0 <= number <= 65_535:
        raise LocalError(f"dashboard is {text!r}; give an IP address and a port, as 127.0.0.1:8080, or `{OFF}`")
    return host, number


class Dashboard:
    """One node's page."""

    def __init__(self, facts: Facts, database: Database, place: tuple[str, int], manifest: Manifest) -> None:
        """Takes the address. Raises LocalError where it cannot be had."""
        self._facts = facts
        self._manifest = manifest
        self._database = database
        self._host = place[0]
        is_local = ipaddress.ip_address(self._host).is_loopback
        self._token = None if is_local else secrets.token_urlsafe(16)
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

    @property
    def address(self) -> str:
        """What to open in a browser."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/" + (f"?token={self._token}" if self._token else "")

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        config = HypercornConfig()
        self._socket.listen(16)
        config.bind = [f"fd://{self._socket.detach()}"]  # hypercorn closes it
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.h11_max_incomplete_size = 16_384
        task_status.started()
        await serve(self._app(), config, shutdown_trigger=trio.sleep_forever, mode="asgi")  # type: ignore[arg-type]

    def _app(self) -> Starlette:
        routes = [
            *(Route(f"/{path}", _static(*what)) for path, what in _PAGE.items()),
            Route("/api/state", self._state),
            Route("/api/groups", self._groups),
            Route("/api/peers/{peer}", self._peer),
            Route("/metrics", self._metrics),
        ]
        return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._guard)])

    async def _guard(self, request: Request, go_on: Next) -> Response:
        """Who asks, by which name, and for what."""
        if request.method not in ("GET", "HEAD"):
            response: Response = PlainTextResponse("this page is read-only", 405)
        elif self._token is None and not self._is_own_name(request.url.hostname or ""):
            response = PlainTextResponse("open this page by its IP address", 421)
        elif self._token is not None and not self._knows_token(request):
            response = PlainTextResponse("open the address that the node printed, with its token", 401)
        elif "token" in request.query_params:
            response = RedirectResponse(request.url.path, 303)
            response.set_cookie(_COOKIE, self._token or "", httponly=True, samesite="strict")
        else:
            response = await go_on(request)
        response.headers.update(_HEADERS)
        return response

    @staticmethod
    def _is_own_name(name: str) -> bool:
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name == "localhost"

    def _knows_token(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = (request.query_params.get("token", ""), request.cookies.get(_COOKIE, ""), bearer)
        return any(hmac.compare_digest(each.encode(), str(self._token).encode()) for each in given)

    async def _state(self, _request: Request) -> Response:
        return JSONResponse(self._facts.state())

    async def _groups(self, _request: Request) -> Response:
        return JSONResponse(self._facts.groups())

    async def _peer(self, request: Request) -> Response:
        try:
            told = explain.peer(self._database, request.path_params["peer"], self._manifest)
            return JSONResponse(told.as_dict())
        except LocalError as error:
            return JSONResponse({"text": str(error)}, 404)

    async def _metrics(self, _request: Request) -> Response:
        return Response(exposition(overview(self._database)), media_type="text/plain; version=0.0.4")


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = files(__package__).joinpath("page", name).read_bytes()

    async def serve_it(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return serve_it
