"""Asks the router to forward the listening port: by PCP or NAT-PMP of the default gateway, else by UPnP.

The node asks for SECONDS, and renews the mapping when half of the granted time has passed. A router that restarted has
no mapping, so the node renews it after RENEW_SECONDS at the latest. The node removes the mapping when it stops.

Only IPv4 has such routers. Any machine on the local network can answer for UPnP. A wrong answer leads to an address
that does not answer: peers check each address before they pass it on.
"""

import ipaddress
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import miniupnpc
import trio

from sapo_node.net import addresses, pcp
from sapo_node.net.pcp import Mapping, MappingError, OldRouterError

log = logging.getLogger(__name__)

SECONDS = 3_600  # of a mapping
SHORTEST_RENEWAL_SECONDS, RENEW_SECONDS = 30.0, 300.0  # from one request to the next
WAITS = (0.25, 0.5, 1.0)  # seconds for an answer; the request is sent again after each (RFC 6886 section 3.1)
UPNP_SECONDS = 20.0
UPNP_SEARCH_MILLISECONDS = 1_000
STOP_SECONDS = 2.0
_ROUTES = Path("/proc/net/route")

T = TypeVar("T")

Ask = Callable[[int, int], Awaitable[Mapping]]
"""`ask(port, seconds)` asks for a mapping of a port of this machine, or removes it if `seconds` is 0. Raises
MappingError."""


def ways_here(nonce: bytes) -> list[Ask]:
    """Return the ways to ask the router of this machine, the best first.

    `nonce` has NONCE_BYTES secret bytes. A router gives a mapping again only to the nonce that it was made with.
    """
    gateway = default_gateway()
    return [Gateway(gateway, nonce).ask, ask_by_upnp] if gateway else [ask_by_upnp]


def port_to_map(listen: Iterable[str]) -> int | None:
    """Return the listening port that a router could forward; None if no router is between this machine and the
    Internet, or the node listens only for this machine.
    """
    hosts = {}
    for address in addresses.expand(listen):
        parts = addresses.parts_of(address)
        if "ip4" in parts:
            hosts[ipaddress.IPv4Address(parts["ip4"])] = int(parts["tcp"])
    if any(host.is_global for host in hosts):
        return None
    return next((port for host, port in hosts.items() if not (host.is_loopback or host.is_link_local)), None)


async def keep_mapping(ways: list[Ask], port: int, changed: Callable[[Mapping | None], None]) -> None:
    """Keep a listening port mapped until cancelled. Calls `changed` with the mapping each time that the outer address
    changes, and with None when it is lost.
    """
    held: Mapping | None = None
    try:
        while True:
            try:
                found = await first_mapping(ways, port, SECONDS)
            except MappingError as error:
                log.info("%s", error)
                found = None
            if (found and (found.host, found.port)) != (held and (held.host, held.port)):
                changed(found)
            held = found
            half = held.seconds / 2 if held else RENEW_SECONDS
            await trio.sleep(min(max(half, SHORTEST_RENEWAL_SECONDS), RENEW_SECONDS))
    finally:
        if held is not None:
            await remove_mapping(ways, port)


async def first_mapping(ways: list[Ask], port: int, seconds: int) -> Mapping:
    """Return the mapping of the first way that gives one, and move that way to the front of `ways`.

    Raises MappingError if none does.
    """
    causes = []
    for way in ways:
        try:
            mapping = await way(port, seconds)
        except MappingError as error:
            causes.append(str(error))
        else:
            ways.insert(0, ways.pop(ways.index(way)))
            return mapping
    raise MappingError("; ".join(causes))


async def remove_mapping(ways: list[Ask], port: int) -> None:
    """Remove the mapping that the first way gave. It takes at most STOP_SECONDS, also while cancelled."""
    with trio.CancelScope(deadline=trio.current_time() + STOP_SECONDS, shield=True), suppress(MappingError):
        await ways[0](port, 0)


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

    def __init__(self, host: str, nonce: bytes, port: int = pcp.PORT) -> None:
        self._place = host, port
        self._nonce = nonce

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
                    return Mapping(host, outer, granted, "NAT-PMP")
        except OSError as error:
            raise MappingError(f"the router does not answer by PCP: {error.strerror}") from error


async def _answer(link: trio.socket.SocketType, request: bytes, read: Callable[[bytes], T | None]) -> T:
    for wait in WAITS:
        await link.send(request)
        with trio.move_on_after(wait):
            while True:
                answer = read(await link.recv(pcp.MAX_ANSWER_BYTES + 1))
                if answer is not None:
                    return answer
    raise MappingError("the router does not answer by PCP or NAT-PMP")


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
        if seconds:
            router.addportmapping(port, "TCP", router.lanaddr, port, "sapo-node", "", seconds)
        else:
            router.deleteportmapping(port, "TCP")
        return Mapping(host, port, seconds, "UPnP")
    except Exception as error:  # the library raises only Exception
        raise MappingError("no router maps a port by UPnP") from error
