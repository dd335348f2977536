"""Asks the router to forward the listening port: by PCP or NAT-PMP of the default gateway, else by UPnP.

A mapping lasts SECONDS at most, and the node renews it when half of its time has passed. A router that restarts has
forgotten it, so the node renews it at the latest after RENEW_SECONDS. The node removes it when it stops.

Only IPv4 has such routers. Any machine on the local network can answer for UPnP. A wrong answer leads to an address
that does not answer: peers check each address before they pass it on.
"""

import ipaddress
import logging
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import miniupnpc
import trio

from sapo_node.net import pcp
from sapo_node.net.pcp import Mapping, MappingError, OldRouterError

log = logging.getLogger(__name__)

SECONDS = 3_600  # that a mapping lasts
SHORTEST_RENEWAL_SECONDS, RENEW_SECONDS = 30.0, 300.0
RETRY_SECONDS = 600.0  # after no router gave a mapping
WAITS = (0.25, 0.5, 1.0)  # seconds for an answer; the request is sent again after each (RFC 6886 section 3.1)
UPNP_SECONDS = 20.0
UPNP_SEARCH_MILLISECONDS = 1_000
STOP_SECONDS = 1.0
_LOWEST_PORT = 1_024
_ROUTES = Path("/proc/net/route")

T = TypeVar("T")

Ask = Callable[[int, int], Awaitable[Mapping]]
"""`ask(port, seconds)` asks for a mapping of a port of this machine, or removes it if `seconds` is 0. Raises
MappingError."""


def ways_here() -> list[Ask]:
    """Return the ways to ask the router of this machine, the best first."""
    gateway = default_gateway()
    return [Gateway(gateway).ask, ask_by_upnp] if gateway else [ask_by_upnp]


async def keep_mapping(ways: list[Ask], port: int, changed: Callable[[Mapping | None], None]) -> None:
    """Keep a listening port mapped until cancelled. Calls `changed` with the mapping each time that the outer address
    changes, and with None when it is lost.
    """
    held: Mapping | None = None
    try:
        while True:
            found, ways = await _first(ways, port)
            if (found and (found.host, found.port)) != (held and (held.host, held.port)):
                changed(found)
            held = found
            await trio.sleep(_pause(held))
    finally:
        if held is not None:
            with trio.CancelScope(deadline=trio.current_time() + STOP_SECONDS, shield=True):
                await _first(ways[:1], port, seconds=0)


def _pause(held: Mapping | None) -> float:
    """Return the seconds to the next request."""
    if held is None:
        return RETRY_SECONDS
    return min(max(held.seconds / 2, SHORTEST_RENEWAL_SECONDS), RENEW_SECONDS)


async def _first(ways: list[Ask], port: int, seconds: int = SECONDS) -> tuple[Mapping | None, list[Ask]]:
    """Return the mapping of the first way that gives one, and the ways in the order in which to try them next."""
    for way in ways:
        try:
            return await way(port, seconds), [way, *(each for each in ways if each is not way)]
        except MappingError as error:
            log.debug("no port mapping: %s", error)
    return None, ways


def default_gateway(table: str | None = None) -> str:
    """Return the IPv4 address of the default gateway, by the kernel's table (route(5)); empty if there is none.

    Other systems than Linux have no such table, and then the node asks by UPnP alone.
    """
    try:
        lines = (table if table is not None else _ROUTES.read_text()).splitlines()[1:]
    except OSError:
        return ""
    for columns in (line.split() for line in lines):
        if len(columns) > 2 and columns[1] == "0" * 8 and columns[2] != "0" * 8:
            return socket.inet_ntoa(struct.pack("=I", int(columns[2], 16)))
    return ""


class Gateway:
    """A router that speaks PCP or NAT-PMP."""

    def __init__(self, host: str, port: int = pcp.PORT) -> None:
        self._place = host, port
        self._nonce = secrets.token_bytes(pcp.NONCE_BYTES)

    async def ask(self, port: int, seconds: int) -> Mapping:
        """See `Ask`."""
        try:
            with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
                await link.connect(self._place)  # so that the kernel drops what another machine sends
                try:
                    request = pcp.pcp_request(self._nonce, link.getsockname()[0], port, seconds)
                    return await _answer(link, request, lambda data: pcp.read_pcp_answer(data, self._nonce, port))
                except OldRouterError:
                    host = await _answer(link, pcp.address_request(), pcp.read_address_answer)
                    request = pcp.port_request(port, seconds)
                    outer, granted = await _answer(link, request, lambda data: pcp.read_port_answer(data, port))
                    return Mapping(host, outer, granted)
        except OSError as error:
            raise MappingError(f"the router does not answer: {error.strerror}") from error


async def _answer(link: trio.socket.SocketType, request: bytes, read: Callable[[bytes], T | None]) -> T:
    for wait in WAITS:
        await link.send(request)
        with trio.move_on_after(wait):
            while True:
                answer = read(await link.recv(pcp.MAX_ANSWER_BYTES + 1))
                if answer is not None:
                    return answer
    raise MappingError("the router does not answer")


async def ask_by_upnp(port: int, seconds: int) -> Mapping:
    """See `Ask`. UPnP IGD of miniupnpc, in a thread."""
    with trio.move_on_after(UPNP_SECONDS):
        # The stubs that libp2p brings do not know the argument.
        return await trio.to_thread.run_sync(_upnp, port, seconds, abandon_on_cancel=True)  # type: ignore[call-arg]
    raise MappingError(f"no answer by UPnP within {UPNP_SECONDS:g} s")


def _upnp(port: int, seconds: int) -> Mapping:
    router = miniupnpc.UPnP()
    router.discoverdelay = UPNP_SEARCH_MILLISECONDS
    try:
        router.discover()
        router.selectigd()
        host = str(ipaddress.IPv4Address(router.externalipaddress()))
        if not seconds:
            router.deleteportmapping(port, "TCP")
            return Mapping(host, port, 0)
        outer = port
        try:
            router.addportmapping(outer, "TCP", router.lanaddr, port, "sapo-node", "", seconds)
        except Exception:  # noqa: BLE001 - the library raises only Exception; another machine may have this port
            outer = _LOWEST_PORT + secrets.randbelow(65_536 - _LOWEST_PORT)
            router.addportmapping(outer, "TCP", router.lanaddr, port, "sapo-node", "", seconds)
        return Mapping(host, outer, seconds)
    except Exception as error:  # the library raises only Exception
        raise MappingError(f"no router maps a port by UPnP: {error}") from error
