"""The bytes of an RPC: those of every other library, cut into frames in any pieces, and the limits of one RPC."""

import random

import pytest
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed

from sapo_node.gossip import rpc
from sapo_node.gossip.rpc import FRAME_BYTES, Frames, Message, Rpc, decode, excess_of, framed, published
from sapo_protocol import RemoteError
from virtual_gossip import TOPIC, frame_of


def control(kind, count):
    made = Rpc()
    for _ in range(count):
        getattr(made.control, kind).add()
    return made


def offering(count):
    made = Rpc()
    made.control.ihave.add(ids=[bytes(32)] * count)
    return made


def wanting(count):
    made = Rpc()
    made.control.iwant.add(ids=[bytes(32)] * count)
    return made


LIMITS = {
    "messages": (rpc.PUBLISHES, lambda count: Rpc(publish=[Message()] * count)),
    "subscriptions": (rpc.SUBSCRIPTIONS, lambda count: Rpc(subscriptions=[rpc.Subscription()] * count)),
    "bytes of peer record": (rpc.RECORD_BYTES, lambda count: Rpc(record=bytes(count))),
    "IHAVE": (rpc.CONTROLS, lambda count: control("ihave", count)),
    "IWANT": (rpc.CONTROLS, lambda count: control("iwant", count)),
    "GRAFT": (rpc.CONTROLS, lambda count: control("graft", count)),
    "PRUNE": (rpc.CONTROLS, lambda count: control("prune", count)),
    "IDONTWANT": (rpc.CONTROLS, lambda count: Rpc(control=rpc.Control(idontwant=[b""] * count))),
    "offered ids": (rpc.OFFERED_IDS, offering),
    "wanted ids": (rpc.WANTED_IDS, wanting),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_an_rpc_with_one_part_more_than_its_limit_is_in_excess(kind):
    most, made = LIMITS[kind]
    assert excess_of(made(most)) == ""
    assert excess_of(made(most + 1)) == f"{most + 1} {kind} in one RPC"


def test_the_bytes_are_those_of_another_library():
    fields = {"data": b"m", "seqno": bytes(8), "signature": b"s", "key": b"k"}
    ours = Message(author=b"a", topics=[TOPIC], **fields)
    theirs = rpc_pb2.Message(from_id=b"a", topicIDs=[TOPIC.decode()], **fields)
    frame = framed([published(ours), published(ours)])
    assert frame == encode_varint_prefixed(rpc_pb2.RPC(publish=[theirs, theirs]).SerializeToString())
    made = Rpc(record=b"r")
    made.control.prune.add(topic=TOPIC, backoff=9)
    made.control.iwant.add(ids=[b"i"])
    read = rpc_pb2.RPC.FromString(made.SerializeToString())
    assert (read.senderRecord, read.control.prune[0].backoff, read.control.iwant[0].messageIDs[0]) == (b"r", 9, b"i")


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_is_cut_into_its_frames_in_whatever_pieces_it_comes(seed):
    rng = random.Random(seed)
    sent = [frame_of(Message(data=bytes(rng.randrange(9_000)))) for _ in range(9)]
    stream, frames, found = b"".join(sent), Frames(), []
    while stream:
        count = rng.randrange(1, 6_000)
        found += frames.feed(stream[:count])
        stream = stream[count:]
    assert [framed([frame]) for frame in found] == sent
    assert not frames.has_begun


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80", (FRAME_BYTES + 1).to_bytes(4)])
def test_a_frame_that_announces_too_much_is_refused_at_its_length(length):
    announced = rpc._varint(FRAME_BYTES + 1) if length[0] == 0 else length
    with pytest.raises(RemoteError):
        Frames().feed(announced)


def test_bytes_that_are_no_rpc_are_refused_and_unknown_fields_are_dropped():
    with pytest.raises(RemoteError):
        decode(b"\xff" * 100)
    message = Message(data=b"m")
    padded = Rpc(publish=[message]).SerializeToString()
    inner = message.SerializeToString() + b"\x7a\x03abc"
    assert decode(b"\x12" + bytes([len(inner)]) + inner).SerializeToString() == padded


def test_the_addresses_of_a_prune_are_not_read():
    theirs = rpc_pb2.RPC()
    theirs.control.prune.add(topicID=TOPIC.decode(), peers=[rpc_pb2.PeerInfo(peerID=b"\xff" * 9)])
    (prune,) = decode(theirs.SerializeToString()).control.prune
    assert prune.SerializeToString() == rpc.Prune(topic=TOPIC).SerializeToString()
