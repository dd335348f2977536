"""Finds nodes of the same swarm on the LAN and on this machine by mDNS (RFC 6762, 6763).

py-libp2p's own mDNS does not name swarm and port reliably. So this module uses the service `_sapo._tcp.local.` with a
TXT record of network id, peer id and addresses. zeroconf runs in its own thread and calls `found` in trio's thread. A
record is only a hint: the peer that answers the dial must prove its peer id in the handshake.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import trio
from zeroconf import Error as ZeroconfError
from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

from sapo_node.net import addresses

log = logging.getLogger(__name__)

SERVICE = "_sapo._tcp.local."
ADDRESSES = 8
ASK_MILLISECONDS = 3000
VERSION = "1"

Found = Callable[[str, tuple[str, ...]], None]
"""`found(peer id, addresses)`, called in trio's thread."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """The mDNS record of a node."""

    network_id: str
    peer_id: str
    addresses: tuple[str, ...]
    """Without the /p2p part."""

    def record(self) -> dict[str, str]:
        """The TXT record. Each entry stays below the limit of 255 bytes."""
        listed = {f"a{number}": address for number, address in enumerate(self.addresses[:ADDRESSES])}
        return {"v": VERSION, "net": self.network_id, "id": self.peer_id} | listed


def read_record(properties: Mapping[bytes, bytes | None], network_id: str) -> tuple[str, tuple[str, ...]] | None:
    """(peer id, addresses) from a TXT record of our swarm; None for any other record."""
    texts = {key: (value or b"").decode("ascii", "replace") for key, value in properties.items()}
    if texts.get(b"v") != VERSION or texts.get(b"net") != network_id:
        return None
    listed = [texts.get(f"a{number}".encode(), "") for number in range(ADDRESSES)]
    dialable = tuple(text for text in listed if text and addresses.is_dialable(text))
    return (texts.get(b"id", ""), dialable) if dialable else None


async def discover(beacon: Beacon, found: Found) -> None:
    """Announce this node and report other nodes until cancelled. If mDNS fails, log a warning and return."""
    token = trio.lowlevel.current_trio_token()

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            return
        info = zeroconf.get_service_info(service_type, name, ASK_MILLISECONDS)
        hint = read_record(info.properties, beacon.network_id) if info is not None else None
        if hint is not None and hint[0] != beacon.peer_id:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(found, *hint)

    try:
        zeroconf = await trio.to_thread.run_sync(
            functools.partial(Zeroconf, interfaces=InterfaceChoice.All, ip_version=IPVersion.V4Only)
        )
    except OSError as error:
        log.warning("no discovery on the LAN (%s): give --bootstrap to join a swarm", error)
        return
    browser = ServiceBrowser(zeroconf, SERVICE, handlers=[changed])
    try:
        await trio.to_thread.run_sync(
            functools.partial(zeroconf.register_service, _service(beacon), cooperating_responders=True)
        )
        await trio.sleep_forever()
    except (OSError, ZeroconfError) as error:
        log.warning("discovery on the LAN ended (%s): give --bootstrap to join a swarm", error)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(browser.cancel)
            await trio.to_thread.run_sync(zeroconf.close)  # also says goodbye


def _service(beacon: Beacon) -> ServiceInfo:
    return ServiceInfo(
        SERVICE,
        f"{beacon.peer_id}.{SERVICE}",
        port=int(beacon.addresses[0].rpartition("/")[2]),
        properties=beacon.record(),
        server=f"{beacon.peer_id}.local.",
        parsed_addresses=list(_ip4(beacon.addresses)) or ["127.0.0.1"],
    )


def _ip4(texts: tuple[str, ...]) -> Iterator[str]:
    for text in texts:
        if text.startswith("/ip4/"):
            yield text.split("/")[2]
