"""Finds peers that nobody named by address: by the DNS name of a swarm, and by mDNS on the LAN and this machine.

`/dnsaddr/<name>` (https://github.com/multiformats/multiaddr, DNSADDR): the TXT records of `_dnsaddr.<name>` are
`dnsaddr=<multiaddress>`. Each is the full address of a peer, or another `/dnsaddr` name. With `/p2p/<peer id>` at its
end, `/dnsaddr/<name>` stands for this peer alone.

mDNS (RFC 6762, 6763): py-libp2p's own does not name swarm and port reliably. So this module uses the service
`_sapo._tcp.local.` with a TXT record of network id, peer id and addresses. zeroconf runs in its own thread and calls
`found` in trio's thread.

A record proves nothing: a peer that answers a dial must prove its id in the handshake.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import trio
from dns import asyncresolver
from dns.exception import DNSException
from zeroconf import Error as ZeroconfError
from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

from sapo_node.net.addresses import AddressError, is_dialable, parse_dial, seed_of
from sapo_node.net.interface import BootstrapReached, BootstrapUnreachable, Notify

log = logging.getLogger(__name__)

PEERS = 32  # of one name
NAMES = 8  # that are looked up for it
LOOKUP_SECONDS = 10.0  # for all of them
AGAIN_SECONDS = 300.0  # from one look at the records to the next
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds, after a look that found nobody

_PREFIX = "dnsaddr="

SERVICE = "_sapo._tcp.local."
ADDRESSES = 8
ASK_MILLISECONDS = 3000
VERSION = "1"

Found = Callable[[str, tuple[str, ...]], None]
"""`found(peer id, addresses)`, called in trio's thread."""


async def peers_of(seed: tuple[str, str]) -> list[tuple[str, str]]:
    """The peers that a name stands for: (peer id, address). Raises OSError if there are none."""
    names, found = [seed], dict[tuple[str, str], None]()
    why = f"no record of _dnsaddr.{seed[0]} names a peer that can be dialled"
    for name, only in names:  # which grows
        try:
            records = await _records(name)
        except OSError as error:
            why = str(error)
            continue
        for record in records:
            if named := seed_of(record):
                further = named[0], named[1] or only
                if only in {"", further[1]} and further not in names and len(names) < NAMES:
                    names.append(further)
                continue
            try:
                peer_id, address = parse_dial(record)
            except AddressError:
                continue
            if is_dialable(address) and only in {"", peer_id}:
                found[peer_id, address] = None
    if not found:
        raise OSError(why)
    return list(found)[:PEERS]


async def _records(name: str) -> list[str]:
    """The addresses in the TXT records of a name."""
    try:
        answer = await asyncresolver.resolve(f"_dnsaddr.{name}", "TXT", lifetime=LOOKUP_SECONDS)
    except DNSException as error:
        raise OSError(str(error) or type(error).__name__) from error
    texts = (b"".join(record.strings).decode("ascii", "replace") for record in answer)
    return [text.removeprefix(_PREFIX) for text in texts if text.startswith(_PREFIX)]


async def seek(text: str, want: Callable[[str, list[str]], None], notify: Notify) -> None:
    """Call `want(peer id, [address])` for the peers of a /dnsaddr address, now and again, until cancelled."""
    seed = seed_of(text)
    assert seed is not None
    pause, reported = FIRST_PAUSE, False
    while True:
        try:
            with trio.fail_after(LOOKUP_SECONDS):
                found = await peers_of(seed)
        except (OSError, trio.TooSlowError) as error:
            if not reported:
                notify(BootstrapUnreachable(text, str(error) or "no answer in time"))
            reported = True
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        if reported:
            notify(BootstrapReached(text))
        pause, reported = FIRST_PAUSE, False
        for peer_id, address in found:
            want(peer_id, [address])
        await trio.sleep(AGAIN_SECONDS)


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
    dialable = tuple(text for text in listed if text and is_dialable(text))
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
