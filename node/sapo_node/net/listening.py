"""Checks whether a node can listen on its addresses, and finds the addresses at which peers then reach it."""

import errno
import socket
from collections.abc import Iterable

from libp2p.utils.address_validation import get_available_interfaces

from sapo_node.net.addresses import WILDCARDS, AddressError, parts_of
from sapo_protocol.errors import LocalError


class PortBusyError(LocalError):
    """The port to listen on is taken."""


def check_port_free(listen: Iterable[str]) -> None:
    """Raise PortBusyError if a port is taken, and AddressError if the node cannot listen on an address.

    The library would share a busy port instead of refusing it.
    """
    for text in listen:
        parts = parts_of(text)
        family, host = (socket.AF_INET, parts["ip4"]) if "ip4" in parts else (socket.AF_INET6, parts["ip6"])
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, int(parts["tcp"])))
                probe.listen(1)
        except OSError as error:
            raise _why_not(text, error) from error


def _why_not(text: str, error: OSError) -> LocalError:
    if error.errno == errno.EADDRINUSE:
        return PortBusyError(f"the port of {text} is already in use: choose another with --listen, or port 0 for any")
    return AddressError(f"cannot listen on {text} ({error.strerror}): choose another address with --listen")


def expand(bound: Iterable[str]) -> tuple[str, ...]:
    """The addresses that peers can dial, from the bound addresses. A wildcard becomes every address of this machine.

    Loopback addresses come last, because only nodes on this machine can use them.
    """
    found: list[str] = []
    for text in bound:
        parts = parts_of(text)
        host = parts.get("ip4") or parts.get("ip6")
        if host not in WILDCARDS:
            found.append(text)
            continue
        kind = "ip4" if "ip4" in parts else "ip6"
        candidates = [str(address) for address in get_available_interfaces(int(parts["tcp"]))]
        if kind == "ip4":
            candidates.append(f"/ip4/127.0.0.1/tcp/{parts['tcp']}")
        found += [address for address in candidates if address.startswith(f"/{kind}/")]
    unique = list(dict.fromkeys(found))
    return tuple(sorted(unique, key=lambda address: address.startswith(("/ip4/127.", "/ip6/::1/"))))
