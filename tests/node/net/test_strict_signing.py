"""A message that the node forwards is signed as GossipSub's policy StrictSign wants it, in every field. Some libraries
take other messages and some refuse them, and charge the peer that forwarded them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX

from sapo_node.net.interface import Malformed

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Attacker, Probe, Start, Until

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"
PADDING = bytes(700_000)


@asynccontextmanager
async def mesh_peer(node: "Probe", attacker: "Attack", until: "Until") -> "AsyncIterator[Attacker]":
    """A peer that the node forwards messages to, and that keeps what it gets as it came."""
    async with attacker(node.address, 201) as peer:
        control = rpc_pb2.ControlMessage(graft=[rpc_pb2.ControlGraft(topicID=TOPIC)])
        topic = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=TOPIC)
        await peer.send_rpc(rpc_pb2.RPC(subscriptions=[topic], control=control))
        await until(lambda: peer.host.get_id() in node.router.mesh[TOPIC])
        yield peer


def forwarded_to(peer: "Attacker") -> list[Any]:
    return [message for rpc in peer.received for message in rpc.publish]


def with_anothers_key(mallory: "Attacker") -> Any:
    message = mallory.message(b"m")
    message.key = bytes.fromhex("08011220") + bytes(32)
    return message


def with_a_long_key(mallory: "Attacker") -> Any:
    message = mallory.message(b"m")
    message.key += PADDING
    return message


def by_the_identity(_: "Attacker") -> Any:
    """A message whose author is the neutral point of the curve, of which anybody can make a signature: S = 1, R = B."""
    author = bytes.fromhex("0024080112200100000000000000000000000000000000000000000000000000000000000000")
    message = rpc_pb2.Message(data=b"m", topicIDs=[TOPIC], from_id=author, seqno=bytes(8))
    signature = bytes.fromhex("58" + "66" * 31 + "01" + "00" * 31)
    key = Ed25519PublicKey.from_public_bytes(author[-32:])
    key.verify(signature, PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString())  # OpenSSL takes it
    message.signature = signature
    return message


def numbered(mallory: "Attacker", seqno: bytes) -> Any:
    message = mallory.message(b"m")
    message.seqno = seqno
    unsigned = rpc_pb2.Message(data=b"m", topicIDs=[TOPIC], from_id=message.from_id, seqno=seqno)
    message.signature = mallory.keys.private_key.sign(PUBSUB_SIGNING_PREFIX.encode() + unsigned.SerializeToString())
    return message


async def test_messages_that_some_libraries_take_and_others_refuse_go_no_further_and_are_charged_to_nobody(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    """The key of another peer, a key and more, an author of small order, no number, a long number."""
    node = await start(1)
    async with mesh_peer(node, attacker, until) as other, attacker(node.address) as mallory:
        for made in (with_anothers_key, with_a_long_key, by_the_identity):
            await mallory.send_rpc(mallory.rpc(made(mallory)))
        for seqno in (b"", PADDING):
            await mallory.send_rpc(mallory.rpc(numbered(mallory, seqno)))
        await mallory.send_rpc(mallory.rpc(mallory.message(b"the next one", seqno=2)))
        await until(lambda: forwarded_to(other))
        assert [message.data for message in forwarded_to(other)] == [b"the next one"]
    assert node.noticed(Malformed) == [], "an honest peer with another library may have forwarded it"


async def test_a_message_without_the_key_that_its_author_already_names_is_forwarded(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1)
    async with mesh_peer(node, attacker, until) as other, attacker(node.address) as mallory:
        message = mallory.message(b"m")
        message.ClearField("key")
        await mallory.send_rpc(mallory.rpc(message))
        await until(lambda: forwarded_to(other))
    assert node.noticed(Malformed) == []


async def test_what_a_peer_adds_in_an_unknown_field_is_not_forwarded(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1)
    async with mesh_peer(node, attacker, until) as other, attacker(node.address) as mallory:
        message = mallory.message(b"m")
        padded = rpc_pb2.Message.FromString(message.SerializeToString() + b"\x7a\xe0\xdc\x2a" + PADDING)
        await mallory.send_rpc(mallory.rpc(padded))
        await until(lambda: forwarded_to(other))
        assert forwarded_to(other) == [message]
    assert node.noticed(Malformed) == []
