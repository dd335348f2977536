"""Writes requests for a port mapping and reads the answers: PCP (RFC 6887) and its predecessor NAT-PMP (RFC 6886).

Pure: no socket and no clock. A reader returns None for a datagram that does not answer its request, because anybody on
the local network can send one. It raises MappingError only for a refusal of the router.

The node asks only for TCP ports of IPv4. Seconds are the lifetime of a mapping; 0 seconds remove it.
"""

import ipaddress
import struct
from dataclasses import dataclass

from sapo_protocol.errors import LocalError

PORT = 5351  # of the router, UDP
NONCE_BYTES = 12
MAX_ANSWER_BYTES = 1_100  # RFC 6887 section 7

_PCP, _NAT_PMP = 2, 0  # versions
_MAP, _MAP_TCP, _EXTERNAL_ADDRESS = 1, 2, 0  # opcodes: the first of PCP, the others of NAT-PMP
_ANSWER = 0x80  # set in the opcode of an answer
_TCP = 6
_UNSUPPORTED_VERSION = 1  # in both protocols
_PCP_HEADER = struct.Struct("!BBxBII12x")  # version, opcode, result, lifetime, epoch
_PCP_MAP = struct.Struct("!12sB3xHH16s")  # nonce, protocol, inner port, outer port, outer address
_NAT_PMP_HEADER = struct.Struct("!BBHI")  # version, opcode, result, epoch
_NAT_PMP_MAP = struct.Struct("!HHI")  # inner port, outer port, lifetime


class MappingError(LocalError):
    """The router gave no port mapping."""


class OldRouterError(MappingError):
    """The router speaks NAT-PMP and not PCP."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """An outer address whose TCP port the router forwards to this machine."""

    host: str
    """The outer IPv4 address. It is private if another router is in front of this one."""
    port: int
    seconds: int
    """Lifetime."""
    by: str
    """The protocol of the router."""


def pcp_request(nonce: bytes, host: str, port: int, seconds: int) -> bytes:
    """Return a MAP request (RFC 6887 section 11.1) of this machine's IPv4 address `host`, from which it must be sent.

    `nonce` has NONCE_BYTES bytes. The same nonce renews and removes the mapping.
    """
    header = struct.pack("!BBxxI16s", _PCP, _MAP, seconds, _mapped(host))
    return header + _PCP_MAP.pack(nonce, _TCP, port, port, _mapped("0.0.0.0"))  # noqa: S104 - asks for any address


def read_pcp_answer(data: bytes, nonce: bytes, port: int) -> Mapping | None:
    """Return the mapping in the answer to `pcp_request`; None if `data` is no answer to it.

    Raises OldRouterError if the router speaks only NAT-PMP (RFC 6887 section 9), and MappingError if it refuses.
    """
    if len(data) > MAX_ANSWER_BYTES or len(data) < 4:
        return None
    if data[0] == _NAT_PMP and data[1] & _ANSWER and int.from_bytes(data[2:4], "big") == _UNSUPPORTED_VERSION:
        raise OldRouterError("the router speaks NAT-PMP and not PCP")
    if len(data) < _PCP_HEADER.size + _PCP_MAP.size:
        return None
    version, opcode, result, seconds, _ = _PCP_HEADER.unpack_from(data)
    named, protocol, inner, outer, address = _PCP_MAP.unpack_from(data, _PCP_HEADER.size)
    if (version, opcode, named, protocol, inner) != (_PCP, _MAP | _ANSWER, nonce, _TCP, port):
        return None
    if result:
        raise MappingError(f"the router refuses a port mapping by PCP, result {result}")
    host = ipaddress.IPv6Address(address).ipv4_mapped
    return Mapping(str(host), outer, seconds, "PCP") if host and outer else None


def address_request() -> bytes:
    """Return a NAT-PMP request for the outer address (RFC 6886 section 3.2)."""
    return bytes((_NAT_PMP, _EXTERNAL_ADDRESS))


def read_address_answer(data: bytes) -> str | None:
    """Return the outer IPv4 address; None if `data` is no answer to `address_request`.

    Raises MappingError if the router refuses.
    """
    rest = _nat_pmp_answer(data, _EXTERNAL_ADDRESS, 4)
    return str(ipaddress.IPv4Address(rest)) if rest else None


def port_request(port: int, seconds: int) -> bytes:
    """Return a NAT-PMP request for a mapping (RFC 6886 section 3.3)."""
    suggested = port if seconds else 0  # as the RFC asks of a removal
    return struct.pack("!BBxxHHI", _NAT_PMP, _MAP_TCP, port, suggested, seconds)


def read_port_answer(data: bytes, port: int) -> tuple[int, int] | None:
    """Return the outer port and the seconds; None if `data` is no answer to `port_request`.

    Raises MappingError if the router refuses.
    """
    rest = _nat_pmp_answer(data, _MAP_TCP, _NAT_PMP_MAP.size)
    if rest is None:
        return None
    inner, outer, seconds = _NAT_PMP_MAP.unpack(rest)
    return (outer, seconds) if inner == port and (outer or not seconds) else None


def _nat_pmp_answer(data: bytes, opcode: int, size: int) -> bytes | None:
    """Return the `size` bytes after the header. A refusal may end before them."""
    if len(data) < _NAT_PMP_HEADER.size or len(data) > MAX_ANSWER_BYTES:
        return None
    version, answered, result, _ = _NAT_PMP_HEADER.unpack_from(data)
    if (version, answered) != (_NAT_PMP, opcode | _ANSWER):
        return None
    if result:
        raise MappingError(f"the router refuses a port mapping by NAT-PMP, result {result}")
    rest = data[_NAT_PMP_HEADER.size :]
    return rest[:size] if len(rest) >= size else None


def _mapped(host: str) -> bytes:
    return ipaddress.IPv6Address(f"::ffff:{host}").packed
