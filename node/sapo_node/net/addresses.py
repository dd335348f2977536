"""Reads and checks the multiaddresses that operators and peers give, and finds those of this machine."""

import errno
import ipaddress
import socket
from collections.abc import Collection, Iterable, Iterator

import trio
from libp2p.utils.address_validation import get_available_interfaces
from multiaddr import Multiaddr

from sapo_protocol.errors import LocalError
from sapo_protocol.keys import public_key_of

HOST_PROTOCOLS = frozenset({"ip4", "ip6", "dns", "dns4", "dns6"})
IPV4 = 4
CLAIMED = 2  # addresses of a peer that it is not connected from, and that count
_CHARACTERS = 512  # of an address; a name has at most 253 (RFC 1035) and a peer id 52
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound here
_MAX_PORT = 65_535
_INTERNET = 2
"""`_reach` of an address of the Internet."""
_TRANSLATED = tuple(map(ipaddress.ip_network, ("::/96", "64:ff9b::/96", "2002::/16")))
"""Networks whose addresses hold an IPv4 address, possibly a private one, to which a gateway may lead (RFC 4291 section
2.5.5.1, RFC 6052, RFC 3056). Nobody needs them to reach a peer.
"""


class AddressError(LocalError):
    """An address given by the operator is malformed."""


def _protocols_of(text: str) -> tuple[Multiaddr, list[str]]:
    """A multiaddress and the names of its protocols. Raises ValueError for any other text."""
    if len(text) > _CHARACTERS:  # the library's time to decode a peer id grows with the square of its length
        raise ValueError(f"it has {len(text)} characters, and an address at most {_CHARACTERS}")
    try:
        address = Multiaddr(text)
        return address, [protocol.name for protocol in address.protocols()]
    except Exception as error:  # the library has errors of many kinds for what is no address
        raise ValueError("it is not a multiaddress") from error


def parts_of(text: str) -> dict[str, str]:
    """The components of `/<host>/.../tcp/<port>[/p2p/<peer id>]`. Raises ValueError for any other shape."""
    address, names = _protocols_of(text)
    if len(names) not in {2, 3} or names[0] not in HOST_PROTOCOLS or names[1] != "tcp":
        raise ValueError("only /ip4, /ip6 or /dns with /tcp can be used")
    if names[2:] not in ([], ["p2p"]):
        raise ValueError("only /p2p/<peer id> may follow the port")
    return {name: str(address.value_for_protocol(name)) for name in names}


def text_of(address: Multiaddr) -> str:
    """The text of an address that a peer sent as bytes; empty if the bytes are no address.

    The library keeps such bytes as they come, and reads them only when it writes the text.
    """
    try:
        return str(address)
    except Exception:  # noqa: BLE001 - the library has errors of many kinds for what is no address
        return ""


def parse_dial(text: str) -> tuple[str, str]:
    """The peer id of an address to dial (for example of --bootstrap), and the address without it."""
    shape = "write it as /ip4/<address>/tcp/<port>/p2p/<peer id>"
    try:
        peer_id = parts_of(text).get("p2p", "")
        if peer_id:
            public_key_of(peer_id)
    except (ValueError, LocalError) as error:
        raise AddressError(f"{_quoted(text)} cannot be dialled ({error}): {shape}") from error
    if not peer_id:
        raise AddressError(f"{text!r} does not name the peer id: {shape}")
    return peer_id, text.rpartition("/p2p/")[0]


def host_and_port(text: str, default_host: str) -> tuple[str, int]:
    """Split HOST:PORT, [IPV6]:PORT, :PORT or PORT, as people write the address of a server. HOST is an IP address,
    `localhost`, or a name. Without one it is `default_host`. Raises ValueError for anything else.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if not (port.isascii() and port.isdecimal()) or int(port) > _MAX_PORT or is_bracketed != (":" in host):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return {"": default_host, "localhost": "127.0.0.1"}.get(host, host), int(port)


def _multiaddress(text: str, default_host: str) -> str:
    """Return HOST:PORT as a multiaddress, and any other text as it is."""
    try:
        host, port = host_and_port(text, default_host)
    except ValueError:
        return text
    if not host:
        return text
    try:
        kind = f"ip{ipaddress.ip_address(host).version}"
    except ValueError:
        kind = "dns"
    return f"/{kind}/{host}/tcp/{port}"


def require_addresses(listen: Iterable[str], announce: Iterable[str], bootstrap: Iterable[str]) -> None:
    """Raise AddressError for an address of the operator that no node can use."""
    for text in listen:
        parse_listen(text)
    for text in announce:
        parse_announce(text)
    for text in bootstrap:
        require_bootstrap(text)


def require_bootstrap(text: str) -> None:
    """Raise AddressError for what is neither the full address of a peer nor a /dnsaddr name."""
    if seed_of(text) is None:
        parse_dial(text)


def seed_of(text: str) -> tuple[str, str] | None:
    """(name, peer id or an empty text) of a /dnsaddr address; None for any other text."""
    try:
        address, kinds = _protocols_of(text)
    except ValueError:
        return None
    if kinds not in (["dnsaddr"], ["dnsaddr", "p2p"]):
        return None
    peer_id = address.value_for_protocol("p2p") if "p2p" in kinds else ""
    return str(address.value_for_protocol("dnsaddr")), str(peer_id)


def parse_listen(text: str) -> str:
    """An address to listen on, without a trailing /p2p part. HOST:PORT is one, too."""
    shape = "such as 0.0.0.0:4001 or /ip4/0.0.0.0/tcp/4001"
    address = _place(text, "--listen", shape, default_host="0.0.0.0")  # noqa: S104 - what the operator asks for
    if not parts_of(address).keys() & {"ip4", "ip6"}:
        raise AddressError(f"--listen {text!r} is a name: write an IP address of this machine, or 0.0.0.0 for all")
    return address


def listening(texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses to listen on. On a machine without IPv6 its wildcard is left out if there is another address."""
    parsed = tuple(map(parse_listen, texts))
    others = tuple(each for each in parsed if host_of(each) != "::")
    return parsed if _has_ipv6() or not others else others


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def parse_announce(text: str) -> str:
    """An address at which peers reach this node, without a trailing /p2p part. HOST:PORT is one, too."""
    shape = "such as /ip4/203.0.113.5/tcp/4001 or /dns4/node.example.org/tcp/4001"
    address = _place(text, "--announce", shape)
    if not is_dialable(address):
        raise AddressError(
            f"no peer can dial --announce {text!r}: write the address at which peers reach this node, {shape}"
        )
    return address


def _place(text: str, option: str, shape: str, *, default_host: str = "") -> str:
    address = _multiaddress(text, default_host)
    try:
        parts = parts_of(address)
    except ValueError as error:
        raise AddressError(f"{option} {_quoted(text)} is not a usable address ({error}): write one {shape}") from error
    return address.rpartition("/p2p/")[0] if "p2p" in parts else address


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _CHARACTERS else f"{text[:80]}...")


def is_dialable(text: str) -> bool:
    """Return whether the node can dial an address: its host is no wildcard, and its TCP port is not 0."""
    try:
        parts = parts_of(text)
    except ValueError:
        return False
    return parts["tcp"] != "0" and not WILDCARDS & set(parts.values())


def listening_port(bound: Iterable[str], version: int) -> int:
    """The port of the first bound address of a version of IP that other machines can reach; 0 if there is none."""
    for text in bound:
        host = ipaddress.ip_address(host_of(text))
        if host.version == version and not (host.is_loopback or host.is_link_local):
            return int(parts_of(text)["tcp"])
    return 0


def places_of(told: Iterable[str], sources: Collection[str]) -> tuple[tuple[str, ...], bool]:
    """The addresses at which a connected peer can be dialled, and whether nothing but the peer's word is behind them.

    `told` are the addresses in its signed record. `sources` are the IP addresses that it is connected from. An address
    at one of these counts. A name counts as such an IP address, since the node looks up no name that a peer chose. If
    none is there, the peer's word counts for CLAIMED other IP addresses.
    """
    dialable = [text for text in dict.fromkeys(told) if is_dialable(text)]
    if here := dict.fromkeys(place for text in dialable for place in _at(text, sources)):
        return tuple(here), False
    claimed = [text for text in dialable if any(may_be_followed(text, source) for source in sources)]
    return tuple(claimed[:CLAIMED]), bool(claimed)


def _at(text: str, sources: Collection[str]) -> Iterator[str]:
    """The same address at each of the IP addresses at which it can be."""
    parts = parts_of(text)
    kind = next(iter(parts))
    for source in sources:
        version = f"ip{ipaddress.ip_address(source).version}"
        if kind == version and canonical(parts[kind]) == source:
            yield text
        elif kind in {"dns", version.replace("ip", "dns")}:
            yield f"/{version}/{source}/tcp/{parts['tcp']}"


def canonical(host: str) -> str:
    """An IP address in its usual form, an IPv4 address for one that is mapped into IPv6; empty for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def may_be_followed(text: str, met: str) -> bool:
    """Return whether the node may dial an address that a peer named (peer exchange); `met` is that peer's own address.

    The address must be an IP address, and its network must not be more private than the network of `met`. Otherwise a
    stranger could make the node dial machines that the stranger cannot reach.
    """
    if not is_dialable(text):
        return False
    try:
        named, here = ipaddress.ip_address(host_of(text)), ipaddress.ip_address(host_of(met))
    except ValueError:
        return False
    return _reach(named) >= _reach(here)


def _reach(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    """0 for this machine or link, 1 for a private network, 2 for the Internet."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return _reach(address.ipv4_mapped)
        if any(address in network for network in _TRANSLATED):
            return 0
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return 0
    return _INTERNET if address.is_global else 1


def host_of(text: str) -> str:
    """The IP address or name in an address."""
    return text.split("/")[2] if text.startswith("/") else text


def network_of(text: str) -> str:
    """The network of an address, which addresses of one owner often share: its /16 for IPv4, its /32 for IPv6.

    For a name it is the name.
    """
    return _prefix_of(text, 16, 32)


def block_of(text: str) -> str:
    """The block of an address, which one owner often has whole: its /24 for IPv4, its /48 for IPv6."""
    return _prefix_of(text, 24, 48)


def machine_of(text: str) -> str:
    """The address of a machine. For IPv6 its /64, because one machine can use all addresses in that (RFC 4291)."""
    return _prefix_of(text, 32, 64).removesuffix("/32")


def public_block_of(text: str) -> str:
    """The block of an address of the Internet. Empty for any other: machines of a private network have many owners, or
    the same owner as this one.
    """
    try:
        is_public = _reach(ipaddress.ip_address(host_of(text))) == _INTERNET
    except ValueError:
        return ""
    return block_of(text) if is_public else ""


def _prefix_of(text: str, ipv4_bits: int, ipv6_bits: int) -> str:
    host = host_of(text)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(ipaddress.ip_network((address, ipv4_bits if address.version == IPV4 else ipv6_bits), strict=False))


async def resolve(text: str) -> tuple[str, ...]:
    """The IP addresses of an address, from this machine's resolver. Raises OSError if the name is unknown.

    The library asks name servers directly and ignores /etc/hosts.
    """
    parts = parts_of(text)
    kind = next(name for name in parts if name in HOST_PROTOCOLS)
    if kind in {"ip4", "ip6"}:
        return (text,)
    family = {"dns4": socket.AF_INET, "dns6": socket.AF_INET6}.get(kind, socket.AF_UNSPEC)
    found = await trio.socket.getaddrinfo(parts[kind], parts["tcp"], family, socket.SOCK_STREAM)
    texts = (
        f"/{'ip6' if found_family is socket.AF_INET6 else 'ip4'}/{place[0]}/tcp/{parts['tcp']}"
        for found_family, _, _, _, place in found
    )
    return tuple(dict.fromkeys(texts))


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

    Loopback addresses come last, because only nodes on this machine can use them. IPv4 comes before IPv6.
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
    return tuple(
        sorted(unique, key=lambda each: (each.startswith(("/ip4/127.", "/ip6/::1/")), each.startswith("/ip6/")))
    )
