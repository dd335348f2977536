"""The codec of PCP (RFC 6887) and NAT-PMP (RFC 6886)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.net import pcp
from sapo_node.net.pcp import Mapping, MappingError, OldRouterError

NONCE = bytes(range(12))
PORTS = st.integers(1, 65_535)
SECONDS = st.integers(0, 2**32 - 1)
MAP_ANSWER = bytes.fromhex(
    "02810000"  # PCP, an answer to MAP, reserved, success
    "00000e10"  # 3,600 s
    "0000002a"  # epoch
    "000000000000000000000000"
    "000102030405060708090a0b"  # nonce
    "060000000fa1"  # TCP, reserved, inner port 4001
    "1f90"  # outer port 8080
    "00000000000000000000ffffcb007105"  # 203.0.113.5
)


def test_a_pcp_request_has_the_bytes_of_the_rfc() -> None:
    assert pcp.pcp_request(NONCE, "192.168.1.2", 4001, 3_600) == bytes.fromhex(
        "02010000"
        "00000e10"
        "00000000000000000000ffffc0a80102"
        "000102030405060708090a0b"
        "060000000fa10fa1"
        "00000000000000000000ffff00000000"
    )


def test_a_pcp_answer_gives_the_outer_address() -> None:
    assert pcp.read_pcp_answer(MAP_ANSWER, NONCE, 4001) == Mapping("203.0.113.5", 8080, 3_600, "PCP")


@given(st.sampled_from([0, 1, *range(24, 37), 40, 41]), st.integers(1, 255))
def test_a_pcp_answer_to_another_request_is_no_answer(place: int, change: int) -> None:
    """The places are those of version, opcode, nonce, protocol and inner port."""
    changed = bytearray(MAP_ANSWER)
    changed[place] ^= change
    assert pcp.read_pcp_answer(bytes(changed), NONCE, 4001) is None


def test_a_pcp_refusal_is_an_error() -> None:
    refused = MAP_ANSWER[:3] + b"\x02" + MAP_ANSWER[4:]
    with pytest.raises(MappingError, match="result 2"):
        pcp.read_pcp_answer(refused, NONCE, 4001)


def test_a_forged_refusal_with_another_nonce_is_no_answer() -> None:
    refused = MAP_ANSWER[:3] + b"\x02" + MAP_ANSWER[4:]
    assert pcp.read_pcp_answer(refused, bytes(12), 4001) is None


def test_a_router_that_speaks_only_nat_pmp_says_so() -> None:
    with pytest.raises(OldRouterError):
        pcp.read_pcp_answer(bytes.fromhex("008100010000002a"), NONCE, 4001)


def test_an_outer_address_of_ipv6_is_no_answer() -> None:
    assert pcp.read_pcp_answer(MAP_ANSWER[:-16] + bytes(15) + b"\x01", NONCE, 4001) is None


def test_nat_pmp_requests_have_the_bytes_of_the_rfc() -> None:
    assert pcp.address_request() == bytes(2)
    assert pcp.port_request(4001, 3_600) == bytes.fromhex("000200000fa10fa100000e10")


def test_a_nat_pmp_removal_suggests_no_port() -> None:
    assert pcp.port_request(4001, 0) == bytes.fromhex("000200000fa1000000000000")


@given(PORTS, PORTS, SECONDS, SECONDS)
def test_a_nat_pmp_answer_gives_the_outer_port(inner: int, outer: int, seconds: int, epoch: int) -> None:
    answer = struct.pack("!BBHIHHI", 0, 130, 0, epoch, inner, outer, seconds)
    assert pcp.read_port_answer(answer, inner) == (outer, seconds)
    assert pcp.read_port_answer(answer, inner % 65_535 + 1) is None


def test_a_nat_pmp_answer_gives_the_outer_address() -> None:
    assert pcp.read_address_answer(bytes.fromhex("008000000000002acb007105")) == "203.0.113.5"


def test_a_nat_pmp_refusal_is_an_error() -> None:
    with pytest.raises(MappingError, match="result 3"):
        pcp.read_address_answer(bytes.fromhex("008000030000002a"))


@given(
    st.binary(max_size=pcp.MAX_ANSWER_BYTES + 8),
    st.sampled_from([b"", b"\x02\x81", b"\x00\x81", b"\x00\x82", b"\x00\x80"]),
)
def test_any_datagram_is_an_answer_or_none_or_a_refusal(rest: bytes, start: bytes) -> None:
    for read in (
        lambda data: pcp.read_pcp_answer(data, NONCE, 4001),
        pcp.read_address_answer,
        lambda data: pcp.read_port_answer(data, 4001),
    ):
        try:
            read(start + rest)
        except MappingError:
            continue
