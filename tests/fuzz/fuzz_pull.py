"""Pulling: what is taken of requests and answers encodes to the same bytes, and holds nothing not asked for."""

import contextlib
from collections.abc import Iterator

from harness import KEYS, MANIFEST, Source, refusal_is_short

from sapo_protocol import (
    GetRequest,
    GroupHeader,
    Header,
    InventoryItem,
    ListRequest,
    PeerAddress,
    PeersRequest,
    RemoteError,
    decode_delivery,
    decode_listing,
    decode_peers,
    decode_request,
    encode_delivery,
    encode_header,
    encode_listing,
    encode_message,
    encode_peers,
    encode_request,
    parse_envelope,
)


def _signed(counter: int) -> bytes:
    group = GroupHeader(bytes(32), (True,) * MANIFEST.completions, bytes(32))
    return KEYS[counter % 2].seal(encode_header(Header(5, counter, (group, group))))


BY_ID = {
    parse_envelope(each, network_id=MANIFEST.network_id).envelope_id: each for each in (_signed(n) for n in range(4))
}
IDS = sorted(BY_ID)
WANTED = GetRequest(tuple(InventoryItem(each, 1 + number % 3) for number, each in enumerate(IDS[:3])))


def fuzz(data: bytes) -> None:
    source = Source(data)
    (_request, _listing, _introductions, _delivery, _built)[source.below(5)](source)


def _request(source: Source) -> None:
    data = source.rest()
    with contextlib.suppress(RemoteError), refusal_is_short():
        assert encode_request(decode_request(data)) == data


def _listing(source: Source) -> None:
    request = ListRequest(5, IDS[0] if source.below(2) else b"")
    data = source.rest()
    with contextlib.suppress(RemoteError), refusal_is_short():
        held = decode_listing(data, request)
        assert encode_listing(held) == data
        assert all(each.envelope_id > request.after for each in held)


def _introductions(source: Source) -> None:
    request = PeersRequest(1 + source.below(16))
    data = source.rest()
    with contextlib.suppress(RemoteError), refusal_is_short():
        introduced = decode_peers(data, request)
        assert encode_peers(introduced) == data
        assert len(introduced) <= request.most


def _delivery(source: Source) -> None:
    _delivered(source.rest())


def _delivered(data: bytes) -> None:
    with contextlib.suppress(RemoteError), refusal_is_short():
        delivered = decode_delivery(data, WANTED, MANIFEST)
        assert encode_delivery([each.message for each in delivered]) == data
        ids = [each.envelope_id for each in delivered]
        assert ids == sorted(set(ids) & {each.envelope_id for each in WANTED.want})


def _built(source: Source) -> None:
    """Messages with bodies, whether asked for or not; then perhaps some bytes changed."""
    messages = []
    for _ in range(source.below(5)):
        envelope = BY_ID[IDS[source.below(4)]]
        messages.append(encode_message(envelope, (source.string() or None, source.string() or None)))
    changed = bytearray(encode_delivery(messages))
    while source:
        changed[source.number(2) % len(changed)] ^= source.number()
    _delivered(bytes(changed))


def seeds() -> Iterator[bytes]:
    held = [InventoryItem(each, number) for number, each in enumerate(IDS)]
    for request in (ListRequest(5), ListRequest(5, IDS[0]), GetRequest(tuple(held)), PeersRequest(7)):
        yield b"\0" + encode_request(request)
    yield b"\1\0" + encode_listing(held)
    yield b"\1\1" + encode_listing(held[1:])
    keys = sorted(key.issuer for key in KEYS)
    yield b"\2\x0f" + encode_peers([PeerAddress(key, "/ip4/192.0.2.7/tcp/4001") for key in keys])
    yield b"\3" + encode_delivery([encode_message(BY_ID[each], (None, None)) for each in IDS[:3]])
    yield b"\4\2\0\1a\0\1\0\1b"
    yield b"\4\1\3\0\0"
